"""`build-prior`: the dense form of one structured layer, printed, saved and drawn."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import numpy as np
import typer
from scipy import sparse

from imlp import checks, init, kinds, reference
from imlp.backend import backend as get_backend
from imlp.commands.console import PICTURES, Force, check_suffix, in_panel, print_facts, print_json, sizes, watched
from imlp.commands.console import out as console
from imlp.errors import FileError, SpecError, did_you_mean
from imlp.files import check_new, open_regular, reason, shown, write_whole
from imlp.spec import Spec, Window

if TYPE_CHECKING:
    from imlp.look.explain import Derivation

MOST_ENTRIES = 100_000_000  # non-zeros; building them takes some 50 bytes each
LONGEST_KERNEL = 100_000  # pixels along one side
WEIGHTS = (".npy", ".pt", ".safetensors")
LARGEST_DENSE = 4 * 2**30  # bytes; a larger full matrix is refused without trying


_image = sizes((3,), "CHANNELSxHEIGHTxWIDTH, for example 3x32x32")
_entry = sizes((1, 2), "ROW or ROW,COLUMN, for example 12 or 12,7")


def _pair(text: str) -> tuple[int, ...]:
    values = sizes((1, 2), "N or VERTICALxHORIZONTAL, for example 3 or 3x5")(text)
    return values * 2 if len(values) == 1 else values


_conv = partial(in_panel("Geometry: convolution and local"), show_default=False)
_mixer = partial(in_panel("Geometry: parts of an MLP-Mixer"), show_default=False)
_result = partial(in_panel("Result"), show_default=False)


def build_prior(
    kind: Annotated[
        str,
        typer.Option(
            help=f"Which structured layer to write as a matrix: {', '.join(kinds.KINDS)}; or your own, FILE.py:Class.",
            metavar="KIND",
        ),
    ] = "conv",
    options: Annotated[
        list[str] | None,
        typer.Option(help="Geometry of a kind of your own, NAME=VALUE. Repeat for more.", show_default=False),
    ] = None,
    image: Annotated[
        Any,
        _conv("Input image (conv, local, patchify, patch-embed). Default 3x32x32.", parser=_image, metavar="CxHxW"),
    ] = None,
    out_channels: Annotated[int | None, _conv("Output channels. Default 1.")] = None,
    kernel: Annotated[Any, _conv("Kernel size. Default 3.", parser=_pair, metavar="N|VxH")] = None,
    stride: Annotated[Any, _conv("Stride. Default 1.", parser=_pair, metavar="N|VxH")] = None,
    padding: Annotated[Any, _conv("Zero padding. Default 1.", parser=_pair, metavar="N|VxH")] = None,
    dilation: Annotated[Any, _conv("Dilation. Default 1.", parser=_pair, metavar="N|VxH")] = None,
    groups: Annotated[int | None, _conv("Groups of channels. Default 1.")] = None,
    patch: Annotated[int | None, _mixer("Patch size (patchify, patch-embed). Default 8.")] = None,
    patches: Annotated[int | None, _mixer("Number of patches (the mixing kinds). Default 16.")] = None,
    dim: Annotated[int | None, _mixer("Channels of a patch (patch-embed, mixing). Default 128.")] = None,
    hidden: Annotated[int | None, _mixer("Width between two mixing layers. Default: no expansion.")] = None,
    rows: Annotated[int | None, _mixer("Rows of the matrix (transpose, shared). Default 16.")] = None,
    cols: Annotated[int | None, _mixer("Columns of the matrix (transpose). Default 128.")] = None,
    in_features: Annotated[int | None, _mixer("Inputs of the small layer (shared). Default 128.")] = None,
    out_features: Annotated[int | None, _mixer("Outputs of the small layer (shared). Default 128.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the weight.", min=0)] = 0,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Take the small layer's weight from this file: .npy, .pt or .safetensors (of several, FILE:NAME).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, _result("Write the matrix: .npz for scipy.sparse.load_npz, .npy for a full array.")
    ] = None,
    explain_entry: Annotated[
        bool, _result("Derive one entry: what it connects, with the numbers filled in.", "--explain")
    ] = False,
    entry_given: Annotated[
        Any,
        _result("Which entry. Default: one of the middle row.", "--entry", parser=_entry, metavar="ROW[,COLUMN]"),
    ] = None,
    force: Force = False,
    plot: Annotated[Path | None, _result("Draw the matrix: .png, .svg or .pdf.")] = None,
    json: Annotated[bool, _result("Print the facts as JSON.", "--json")] = False,
) -> None:
    """Build W_P, the matrix of a structured layer. The default geometry is the paper's.

    First things to try:

    - `build-prior --kind patchify --out p.npz`: the 3072 x 3072 permutation that cuts an image into patches
    - `build-prior --kind conv --image 1x5x5 --plot conv.png`: a convolution small enough to see every entry
    - `build-prior --kind patch-embed --explain --entry 5,40`: where the entry in row 5 and column 40 comes from
    - `build-prior --kind conv --image 3x224x224 --out-channels 16 --stride 2`: a layer of your own
    """
    sizes_of_kinds = {name for known_kind in kinds.KINDS.values() for name in known_kind.defaults}
    given = {name: value for name, value in locals().items() if name in sizes_of_kinds and value is not None}
    if options:
        from imlp.commands.options import named_values  # with the trainer, which nobody else here needs

        given |= named_values(options)
    spec = kinds.make(kind, **given)
    _check_size(spec)
    derivation, value = None, 0.0
    if explain_entry or entry_given:
        from imlp.look.explain import entry, explain

        place = entry_given or ()
        derivation = explain(spec, *(place if len(place) == 2 else entry(spec, *place)))
    check_suffix(out, ".npz", ".npy")
    check_suffix(plot, *PICTURES)
    check_new(out, plot, force=force)
    m_out, m_in = spec.matrix_shape
    if out is not None and out.suffix == ".npy" and 8 * m_out * m_in > LARGEST_DENSE:
        problem = f"a full matrix of {m_out:,} x {m_in:,} takes {8 * m_out * m_in / 2**30:,.0f} GiB"
        raise FileError(problem, "write .npz instead, which stores only the non-zero entries")

    equation, meaning = kinds.find(kind).equation, kinds.find(kind).meaning
    with watched(quiet=json) as progress:
        files = (out is not None) + (plot is not None)
        progress("building", 0, 1 + files)
        weight, source = _weight(spec, weights, seed)
        matrix = reference.matrix(spec, weight)
        if out is not None:
            progress("writing", 1, 1 + files)
            with write_whole(out) as file:
                sparse.save_npz(file, matrix) if out.suffix == ".npz" else np.save(file, matrix.toarray())
        if plot is not None:
            progress("drawing", files, 1 + files)
            from imlp.look import plot as drawing  # matplotlib takes a second to import

            drawing.save(drawing.matrix_figure(matrix, spec, equation), plot)

    facts: dict[str, Any] = {
        "kind": kind,
        "equation": equation,
        "spec": str(spec),
        "geometry": asdict(spec),
        "shape": [m_out, m_in],
        "nnz": int(matrix.nnz),
        "density": matrix.nnz / (m_out * m_in),
        "n_parameters": spec.n_parameters,
        "dense_parameters": m_out * m_in + m_out,
        "weight": source,
    }
    if derivation is not None:
        value = float(matrix[derivation.i, derivation.j])
        facts["entry"] = {**asdict(derivation), "value": value}
    if json:
        print_json({**facts, "out": out and str(out), "plot": plot and str(plot)})
        return
    lines = {
        "equation": equation,
        "spec": spec,
        "matrix": f"{m_out:,} x {m_in:,}",
        "non-zeros": f"{matrix.nnz:,} ({100 * facts['density']:.4g} % of the entries)",
        "parameters": f"{spec.n_parameters:,} structured, {facts['dense_parameters']:,} dense",
        "weight": source,
    }
    print_facts(lines, f"{kind}: {meaning}")
    if out is not None:
        reader = "numpy.load" if out.suffix == ".npy" else "scipy.sparse.load_npz"
        console.print(f"written: {out} (read it with {reader})", soft_wrap=True)
    if plot is not None:
        console.print(f"drawn: {plot}", soft_wrap=True)
    if derivation is not None:
        _print_derivation(derivation, spec, equation, value)


def _check_size(spec: Spec) -> None:
    """Refuse a matrix that would fill the memory, or take minutes to count."""
    remedy = f"choose a geometry with at most {MOST_ENTRIES:,}"
    taps = max(spec.kernel) if isinstance(spec, Window) else 0
    if taps > LONGEST_KERNEL:
        raise SpecError(f"the kernel spans {taps:,} pixels", f"use at most {LONGEST_KERNEL:,}")
    sides = zip(("rows", "columns"), spec.matrix_shape, strict=True)
    counts = ((what, getattr(spec, name)) for what, name in (("weights", "n_parameters"), ("non-zeros", "nnz")))
    for what, count in chain(sides, counts):  # to count the last ones, the others must be small
        if count > MOST_ENTRIES:
            raise SpecError(f"the matrix would have {count:,} {what}", remedy)


def _weight(spec: Spec, file: Path | None, seed: int) -> tuple[np.ndarray | None, str]:
    if file is None:
        weight = init.prior_weight(spec, rng=np.random.default_rng([seed, 0]))
        return weight, "none (a permutation)" if weight is None else f"seed {seed}"
    path, _, name = (str(file), "", "") if file.suffix in WEIGHTS else str(file).rpartition(":")
    check_suffix(Path(path or file), *WEIGHTS)
    if not path.endswith(".npy"):
        get_backend("accel")  # it names what is missing
    remedy = "save the weight as a plain array of numbers"
    try:
        with open_regular(path) as stream:
            arrays = _arrays(stream, path)
    except OSError as error:
        raise FileError(f"cannot read {shown(path)}: {reason(error)}", remedy) from error
    except Exception as error:  # whatever the readers of the three formats raise
        raise FileError(f"cannot read {path}: not a plain array ({reason(error)})", remedy) from error
    name = next(iter(arrays)) if len(arrays) == 1 and not name else name
    if name not in arrays:
        remedy = f"{did_you_mean(name, arrays)}write {path}:NAME; there are {', '.join(map(str, arrays))}"
        raise FileError(f"{path} has no array {name!r}" if name else f"{path} has {len(arrays)} arrays", remedy)
    weight = checks.numbers(arrays[name], f"the weight in {path}")
    if not np.isfinite(weight).all():
        raise FileError(f"{path} does not hold an array of finite real numbers", remedy)
    return weight, str(file)


def _arrays(stream: BinaryIO, path: str) -> Mapping[str, Any]:
    """The arrays of a file by name, "" for the only one; no program in a file is run."""
    if path.endswith(".npy"):
        from imlp.data import store  # what reads pictures and downloads takes a tenth of a second to import

        store.check_header(stream, os.fstat(stream.fileno()).st_size)
        stream.seek(0)
        return {"": np.lib.format.read_array(stream, allow_pickle=False)}
    import safetensors.torch
    import torch

    if path.endswith(".safetensors"):
        return safetensors.torch.load(stream.read())
    content = torch.load(stream, "cpu", weights_only=True)
    return content if isinstance(content, Mapping) else {"": content}


def _print_derivation(derivation: "Derivation", spec: Spec, equation: str, number: float) -> None:
    """Print the steps; each part of a product has its place in the paper as a heading."""
    from imlp.look.explain import APPENDICES, axis_names, in_shape, out_shape, place

    console.print(f"\n{equation} ({place(spec)}), entry (i, j) = ({derivation.i}, {derivation.j})", soft_wrap=True)
    sides = (
        (f"output i = {derivation.i}", derivation.output, out_shape(spec)),
        (f"input  j = {derivation.j}", derivation.input, in_shape(spec)),
    )
    for side, where, shape in sides:
        named = ", ".join(f"{name} {index}" for name, index in zip(axis_names(shape), where, strict=True))
        console.print(f"{side}: {named} of {' x '.join(map(str, shape))}", soft_wrap=True)
    part, width = "", max((len(step.meaning) for step in derivation.steps), default=0)
    for step in derivation.steps:
        if step.part != part:
            part = step.part
            console.print(f"\n{part} ({APPENDICES[part]})")
        line = f"{step.name} = {step.formula} = {step.numbers} = {step.value}"
        console.print(f"  {step.meaning:<{width}}  {line}", soft_wrap=True)
    value = f" = {number:.6g}" if derivation.tap is not None and spec.parameters else ""
    console.print(f"\nentry ({derivation.i}, {derivation.j}) = {derivation.conclusion}{value}", soft_wrap=True)
