"""`densify`: the dense form of a PyTorch model, layer by layer."""

from pathlib import Path
from typing import Annotated, Any

import typer

from imlp.backend import backend as get_backend
from imlp.commands.console import Force, check_suffix, err, out, print_json, sizes, watched
from imlp.commands.options import named_values
from imlp.errors import ModuleError
from imlp.files import check_new, check_path, whole_file
from imlp.look.verify import TOLERANCE

_image = sizes((1, 2, 3), "CHANNELSxHEIGHTxWIDTH, for example 3x32x32")


def densify(
    model: Annotated[
        str,
        typer.Argument(
            help="A function that makes the model: package.module:NAME, timm:NAME or FILE.py:NAME. It is run."
        ),
    ],
    image: Annotated[
        Any, typer.Option(help="The shape of one image. Default 3x32x32.", parser=_image, metavar="CxHxW")
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these layers: names, types, globs like 'layer4*'; '!NAME' leaves out. Repeat for more."
        ),
    ] = None,
    skip_refused: Annotated[
        bool, typer.Option("--skip-refused", help="Leave layers that have no dense form as they are.")
    ] = False,
    options: Annotated[
        list[str] | None, typer.Option(help="Its arguments, NAME=VALUE: num_classes=10. Repeat for more.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Seed of the weights, and of the images to compare with.")
    ] = 0,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write the weights of the dense form (.safetensors).")
    ] = None,
    force: Force = False,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Turn the convolutions of a PyTorch model into dense layers: the same function, as matrices.

    Linear layers that serve many rows (tokens) become matrices too; everything else stays as it is. Shows each matrix
    and how much the two models differ on random images. Exits with 1 if the difference exceeds rounding.

    First things to try:

    - `densify torchvision.models:resnet18 --options num_classes=10`
    - `densify timm:resnet18` (of the package timm, if it is installed)
    - `densify torchvision.models:squeezenet1_1 --image 3x64x64 --layers 'features.1*' --out dense.safetensors`
    - `densify mine.py:network --image 1x28x28 --json`
    """
    get_backend("accel")  # it names what is missing
    import torch

    import imlp.nn
    from imlp.nn.densify import check_pass_fits, check_room, replaced
    from imlp.nn.factory import make

    check_suffix(out_file, ".safetensors")
    check_new(out_file, force=force)
    image = image or (3, 32, 32)
    given = named_values(options)
    with watched(quiet=json) as progress:
        progress("making the model", 0, 5)
        prior = make(model, seed=seed, options=given)
        progress("finding its layers", 1, 5)
        try:
            plan = imlp.nn.find(prior, image, layers or None, skip="refused" if skip_refused else None)
        except imlp.nn.RefusedError as error:
            remedy = f"{_short([one.name for one in error.layers])}, or give --skip-refused"
            raise ModuleError(error.problem, remedy) from error
        table = imlp.nn.size_table(plan)
        progress("building the matrices", 2, 5)
        try:
            check_room(plan, prior)
        except imlp.nn.TooLargeError as error:
            if not error.left_out:  # nothing can be left out, and the table would help nobody
                raise ModuleError(error.problem, error.remedy) from error
            if not json:
                err.print(f"{model}, layer by layer:\n{table}\n", soft_wrap=True)
            raise ModuleError(error.problem, _short(error.left_out)) from error
        dense = replaced(prior, plan, init="prior")
        check_pass_fits(prior, plan)
        progress("comparing the two", 3, 5)
        images = torch.randn(2, *image, generator=torch.Generator().manual_seed(seed))
        errors = imlp.nn.verify(dense, prior, images)
        if out_file is not None:
            progress("writing", 4, 5)
            _write(dense, check_path(out_file))
    worst = max(row["error"] for row in errors.values())
    total = sum(parameter.numel() for parameter in dense.parameters())
    rows = imlp.nn.Table()
    for layer in plan.layers:
        rows[layer.name] = table[layer.name or "the module"] | {"error": errors[layer.name]["error"]}
    if json:
        by_layer = {layer.name: rows[layer.name] | {"spec": str(layer.spec)} for layer in plan.layers}
        report: dict[str, Any] = {"model": model, "image": list(image), "layers": by_layer, "left": plan.left}
        report |= {"numbers": plan.numbers, "parameters": total, "output_error": errors["output"]["error"]}
        print_json(report | {"error": worst, "tolerance": TOLERANCE["float32"]})
    else:
        narrow = imlp.nn.Table({name: {k: v for k, v in row.items() if k != "numbers"} for name, row in rows.items()})
        out.print(f"{model}, layer by layer:\n{narrow}\n", soft_wrap=True)
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


def _short(names: list[str]) -> str:
    """What to leave out, as options of this command; a few of the names."""
    shown = " ".join(f"--layers '!{name}'" for name in names[:4])
    return f"leave out {len(names)}: {shown}{' ...' if len(names) > 4 else ''}"


def _write(dense: Any, path: Path) -> None:
    import safetensors.torch

    state, seen = {}, set()
    for name, tensor in dense.state_dict().items():  # a weight that is used in two places is written twice
        shared = tensor.data_ptr() in seen
        seen.add(tensor.data_ptr())
        state[name] = tensor.clone() if shared else tensor.contiguous()
    with whole_file(path) as partial:
        safetensors.torch.save_file(state, partial)
