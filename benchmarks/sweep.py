"""A sweep over eight alphas against eight separate runs of `train`, with the same settings, epochs and images.

Run: python benchmarks/sweep.py [--epochs 2] [--images 5120] [--every step] [--at-once 8]

Half of the runs go before the sweep and half after it, so that both are affected if the machine gets slower or faster.
There are two ratios: of the whole commands (start, data, check against the reference, checkpoints), and of the training
alone, which is what counts when runs are long.
"""

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from measure import console, print_machine, run, table
from safetensors.numpy import load_file

from imlp.couplings.schedule import alphas_of
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import Run, find_runs

ALPHAS = "0,1e-4..1:7log"
ROOT = Path(__file__).parents[1]


def timed(*arguments: object) -> float:
    begin = time.perf_counter()
    command = [sys.executable, ROOT / "cli.py", *arguments]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def steps_of_prior(runs: list[Run]) -> int:
    """How many steps a prior was trained for, by Adam's own count."""
    newest = [RunFolder(run.folder).checkpoints()[0] for run in runs]
    return sum(int(load_file(path)["prior/optimizer.step"]) for path in newest)


def training(runs: list[Run]) -> float:
    return sum(row["train"] for run in runs for row in run.times)


def main(
    epochs: Annotated[int, typer.Option(help="Epochs of each run.")] = 2,
    images: Annotated[int, typer.Option(help="Training images of `shapes`.")] = 5120,
    every: Annotated[str, typer.Option(help="Cadence: epoch or step.")] = "epoch",
    at_once: Annotated[int, typer.Option(help="Lanes in one run of the sweep.")] = 8,
) -> None:
    print_machine()
    alphas = alphas_of(ALPHAS)
    common = ["--data", "shapes", "--train-size", images, "--epochs", epochs, "--every", every, "--quiet"]
    with TemporaryDirectory() as folder:
        whole = Path(folder) / "sweep"
        timed("train", *common, "--alpha", "0", "--out", Path(folder) / "warm", "--epochs", 1, "--train-size", 128)
        separate = 0.0
        for k, alpha in enumerate(alphas):
            if k == len(alphas) // 2:
                options = ["--alpha", ALPHAS, "--seeds", 1, "--lanes-at-once", at_once]
                together = timed("sweep", *common, *options, "--out", whole)
            separate += timed("train", *common, "--alpha", alpha, "--out", Path(folder) / "train" / f"{k}")
        runs = {"eight runs of train": find_runs([Path(folder) / "train"]), "one sweep": find_runs([whole])}
        shown = table(f"{len(alphas)} alphas, {epochs} epochs of {images} images, every {every}", "", "command, s")
        for column in ("training, s", "steps of the prior"):
            shown.add_column(column, justify="right")
        for (name, own), seconds in zip(runs.items(), (separate, together), strict=True):
            shown.add_row(name, f"{seconds:.1f}", f"{training(own):.1f}", str(steps_of_prior(own)))
        console.print(shown)
        expected = epochs * -(-images // 128)
        assert steps_of_prior(runs["one sweep"]) == expected, "the prior was not trained exactly once"
        ratios = together / separate, training(runs["one sweep"]) / training(runs["eight runs of train"])
        console.print(f"the sweep takes {ratios[0]:.2f} of the time of the commands, {ratios[1]:.2f} of the training")
        console.print(f"its prior was trained once: {expected} steps")


if __name__ == "__main__":
    run(main)
