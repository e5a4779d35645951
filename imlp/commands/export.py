"""`export`: write a trained network to a file that others can use."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from imlp.commands.console import Force, OutsideCoupling, OutsideNetwork, out, output_file
from imlp.errors import FileError, RunError
from imlp.train import export as exporting
from imlp.train.run_folder import FORMATS

HOW = {
    "safetensors": "read it with safetensors.numpy.load_file or safetensors.torch.load_file",
    "npz": "read it with numpy.load",
    "torch": "run it with torch.export.load(FILE).module()(images)",
    "onnx": "run it with onnxruntime.InferenceSession(FILE)",
}


def export(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    lane: Annotated[str, typer.Option(help="The lane's number, from 0 in the order of config.toml; or prior.")] = "0",
    format: Annotated[
        Literal["safetensors", "torch", "onnx", "npz"],
        typer.Option(help="Arrays (safetensors, npz), or a program that runs without imlp (torch, onnx)."),
    ] = "safetensors",
    out_file: Annotated[
        Path | None, typer.Option("--out", help="The file. Default: RUN/laneK, with the suffix of the format.")
    ] = None,
    network: OutsideNetwork = None,
    coupling: OutsideCoupling = None,
    force: Force = False,
) -> None:
    """Write a trained network. It maps images (N, channels, height, width), with values from 0 to 1, to logits.

    The prior takes standardised images, (x - mean) / std per channel; both are written with its weights.
    """
    if lane != "prior" and not re.fullmatch("[0-9]{1,9}", lane):
        raise RunError(f"--lane is {lane!r:.60}", "give a number from 0, or prior")
    if lane == "prior" and format in ("torch", "onnx"):
        raise RunError(f"the prior has no {format} form", "use --format safetensors or npz")
    name = "prior" if lane == "prior" else f"lane{lane}"
    suffix = FORMATS[format]
    if out_file is not None and out_file.suffix not in ("", suffix):
        raise FileError(f"{out_file.name:.60} is no name for {format}", f"let it end with {suffix}, or give --format")
    path = output_file(out_file, run / f"{name}{suffix}", force=force)
    exporting.write(run, path, lane if lane == "prior" else int(lane), format, network, coupling)
    out.print(f"written: {path} ({HOW[format]})", soft_wrap=True)
