"""`densify`: the dense form of a PyTorch model, layer by layer."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from imlp.backend import backend as get_backend
from imlp.commands.console import err, out, print_json, sizes, steps
from imlp.commands.options import with_options
from imlp.errors import ModuleError
from imlp.files import check_path, whole_file
from imlp.look.verify import TOLERANCE


def _image(text: str) -> tuple[int, ...]:
    return sizes(text, (1, 2, 3), "CHANNELSxHEIGHTxWIDTH, for example 3x32x32")


def densify(
    model: Annotated[
        str, typer.Argument(help="A function that makes the model: package.module:NAME or FILE.py:NAME. It is run.")
    ],
    image: Annotated[
        Any, typer.Option(help="The shape of one image. Default 3x32x32.", parser=_image, metavar="CxHxW")
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(help="Only these layers: names or globs like 'layer4*'; '!NAME' leaves one out. Repeat for more."),
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option(help="For the function, NAME=VALUE: num_classes=10, .... Repeat for more.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Draws the weights, and the images to compare with.")
    ] = 0,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write the weights of the dense form (.safetensors).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Turn the convolutions of a PyTorch model into dense layers: the same function, as matrices.

    Linear layers that serve many rows (tokens) become matrices too; everything else stays as it is. Shows each matrix
    and how much the two models differ on random images. Exits with 1 if the difference exceeds rounding.

    First things to try:

    - `densify torchvision.models:resnet18 --options num_classes=10`
    - `densify torchvision.models:squeezenet1_1 --image 3x64x64 --layers 'features.1*' --out dense.safetensors`
    - `densify mine.py:network --image 1x28x28 --json`
    """
    get_backend("accel")  # it names what is missing
    import torch

    import imlp.nn
    from imlp.nn.check import check_pass_fits
    from imlp.nn.densify import replaced
    from imlp.nn.factory import make

    if out_file is not None and out_file.suffix != ".safetensors":
        raise ModuleError(f"--out {out_file.name:.60}", "the file's name has to end with .safetensors")
    image = image or (3, 32, 32)
    given = with_options({"options": options or []})["options"]
    with steps(4 if out_file is None else 5, quiet=json) as step:
        step("making the model")
        prior = make(model, seed=seed, options=given)
        step("finding its layers")
        plan = imlp.nn.find(prior, image, layers)
        table = imlp.nn.size_table(plan)
        step("building the matrices")
        try:
            dense = replaced(prior, plan, init="prior")
        except imlp.nn.TooLargeError as error:
            if not json:
                _print(model, table, {}, err)
            raise ModuleError(error.problem, _short(error.left_out)) from error
        check_pass_fits(prior, plan)
        step("comparing the two")
        images = torch.randn(2, *image, generator=torch.Generator().manual_seed(seed))
        errors = imlp.nn.verify(dense, prior, images)
        if out_file is not None:
            step("writing")
            _write(dense, check_path(out_file))
    worst = max(row["error"] for row in errors.values())
    total = sum(parameter.numel() for parameter in dense.parameters())
    if json:
        rows = {
            layer.name: {
                **table[layer.name or "the module"],
                "spec": str(layer.spec),
                "error": errors[layer.name]["error"],
            }
            for layer in plan.layers
        }
        found: dict[str, Any] = {"model": model, "image": list(image), "layers": rows, "left": plan.left}
        found |= {"numbers": plan.numbers, "parameters": total, "output_error": errors["output"]["error"]}
        print_json(found | {"error": worst, "tolerance": TOLERANCE["float32"]})
    else:
        _print(model, table, errors, out)
        before = sum(parameter.numel() for parameter in prior.parameters())
        out.print(
            f"{before:,} parameters, {total:,} in the dense form, of which {plan.numbers:,} in these layers",
            soft_wrap=True,
        )
        for name, reason in plan.left.items():
            out.print(f"{name} stays as it is: {reason}", soft_wrap=True)
        whole = errors["output"]
        out.print(f"largest error of the dense form: {worst:.1e} (of the output: {whole['error']:.1e}), relative")
        if out_file is not None:
            out.print(f"written: {out_file} (read it with safetensors.torch.load_file)", soft_wrap=True)
    if not worst <= TOLERANCE["float32"]:
        raise typer.Exit(1)


def _print(model: str, rows: dict[str, dict[str, Any]], errors: dict[str, dict[str, Any]], to: Any) -> None:
    table = Table(
        title=f"{model}, layer by layer", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1)
    )
    table.add_column("layer", no_wrap=True)
    for name in ("spec", "matrix", "numbers", "% not 0", *(["error"] if errors else [])):
        table.add_column(name, justify="left" if name == "spec" else "right", no_wrap=True)
    for name, row in rows.items():
        cells = [row["spec"], row["matrix"], f"{row['numbers']:,}", f"{100 * row['nonzero']:.1f}"]
        table.add_row(name, *cells, *([f"{errors[name]['error']:.0e}"] if errors else []))
    to.print(table)


def _short(names: list[str]) -> str:
    """What to leave out, as options of this command."""
    shown = " ".join(f"--layers '!{name}'" for name in names[:4])
    return f"leave out the largest layers ({len(names)}): {shown}{' ...' if len(names) > 4 else ''}"


def _write(dense: Any, path: Path) -> None:
    import safetensors.torch

    state, seen = {}, set()
    for name, tensor in dense.state_dict().items():  # a weight that is used in two places is written twice
        shared = tensor.data_ptr() in seen
        seen.add(tensor.data_ptr())
        state[name] = tensor.clone() if shared else tensor.contiguous()
    with whole_file(path) as partial:
        safetensors.torch.save_file(state, partial)
