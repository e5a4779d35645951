"""Other people's models made dense, one after the other: docs/models.md.

Run: python benchmarks/models.py [--models FILE] [--only resnet] [--limit-mb 1600] [--out docs/models.md]

Each model is made with random weights and given to `densify` with `skip="refused"`. If its matrices exceed the limit,
what the refusal proposes to leave out is left out. Then each layer, and the whole output, is compared with the model's
own on random images, and so are the gradients of the images. Each model has a process; those of packages that
are missing are named and left out.

Must show: at least 90 % of the models are made dense with at most one refusal each, to 1e-5 of the largest number (the
gradients to 1e-4).
"""

import ast
import json
import multiprocessing
import resource
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from measure import console, run
from torch import nn

import imlp.nn
from imlp.errors import ImlpError
from imlp.files import whole_file
from imlp.machine import facts_of_this_machine
from imlp.nn.watch import tensors

LIST = Path(__file__).with_name("models.txt")
PACKAGES = {"timm": "timm", "tv": "torchvision"}
TOO_LARGE = "too large"
HEAD = (
    "model",
    "image",
    "dense layers",
    "left out",
    "numbers",
    "MB",
    "peak, MB",
    "CPU seconds",
    "largest error",
    "of gradients",
    "why",
)
HEADER = """# Models of timm and torchvision

**{right} of {rows} models are made dense with at most one refusal each: {layers:,} layers. No layer and no whole model
differs from the original by more than {worst:.0e} of its largest number, no gradient by more than {steepest:.0e}.**

`densify(model, (3, size, size), skip="refused")`, with random weights in float32 and a limit on all matrices of
{limit_mb:,} MB: where they would exceed it, the layers that the refusal proposes are left out. A layer that is left out
stays as it is. Scales of residual branches that a model starts with zeros are drawn as well, since they would hide
errors. The seconds are those of one core in `densify`, its check included. The gradients are those of the
images, for random gradients of the output.
"""


@dataclass
class Row:
    """What became of a model."""

    package: str
    model: str
    image: int
    refusals: int = 0
    layers: int = 0
    numbers: int = 0
    seconds: float = 0.0
    error: float = 0.0
    of_gradients: float = 0.0
    peak_mb: int = 0
    left: Mapping[str, str] = field(default_factory=dict)  # layers that were left out, with the reason
    problem: str = ""

    @property
    def is_right(self) -> bool:
        return not self.problem and self.refusals <= 1 and self.error < 1e-5 and self.of_gradients < 1e-4

    def cells(self) -> list[str]:
        """One number in each, for a table."""
        if self.problem:
            return [f"`{self.model}`", str(self.image), *[""] * (len(HEAD) - 3), self.problem]
        why = "; ".join(f"{reason} ({n})" for reason, n in Counter(self.left.values()).most_common())
        counts = [self.layers, len(self.left), self.numbers, round(4 * self.numbers / 1e6), self.peak_mb]
        measured = [f"{self.seconds:.1f}", f"{self.error:.0e}", f"{self.of_gradients:.0e}"]
        return [f"`{self.model}`", str(self.image), *(f"{n:,}" for n in counts), *measured, why]


def listed(path: Path) -> list[tuple[str, str, int, dict[str, Any]]]:
    """Package, name, image size and options of each model."""
    lines = [line.split(maxsplit=3) for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [(own[0], own[1], int(own[2]), _options(own[3]) if len(own) > 3 else {}) for own in lines]


def _options(text: str) -> dict[str, Any]:
    """As JSON writes them, or Python.

    >>> _options('{"init_weights": false}') == _options("{'init_weights': False}")
    True
    """
    try:
        options: dict[str, Any] = json.loads(text)
    except ValueError:
        options = ast.literal_eval(text)
    return options


def made(package: str, name: str, size: int, options: dict[str, Any]) -> nn.Module:
    """The model with random weights, for images of this size where it has to be told."""
    torch.manual_seed(0)
    if package == "timm":
        create = import_module("timm").create_model
        try:
            return create(name, img_size=size, **options).eval()
        except TypeError:  # takes any size
            return create(name, **options).eval()
    models = import_module("torchvision.models")
    takes = signature(models.get_model_builder(name)).parameters
    none = {key: None for key in ("weights", "weights_backbone") if key in takes}
    return models.get_model(name, **none, **options).eval()


def measured(package: str, name: str, size: int, options: dict[str, Any], limit: int) -> Row:
    """One model, made dense and compared."""
    row = Row(package, name, size)
    try:
        prior, image, layers, left = made(package, name, size, options), (3, size, size), None, dict[str, str]()
        for own, parameter in prior.named_parameters():  # a branch that is multiplied by zeros would hide its errors
            if not parameter.any() and not own.endswith("bias"):
                nn.init.uniform_(parameter, 0.2, 0.8)
        begin = time.process_time()
        try:
            dense = imlp.nn.densify(prior, image, skip="refused", limit=limit)
        except imlp.nn.TooLargeError as error:
            row.refusals, layers = 1, [f"!{layer}" for layer in error.left_out]
            left = dict.fromkeys(error.left_out, TOO_LARGE)
            dense = imlp.nn.densify(prior, image, layers=layers, skip="refused", limit=limit)
        row.seconds = time.process_time() - begin
        matrices = [own for own in dense.modules() if isinstance(own, imlp.nn.Dense)]
        row.layers, row.numbers = len(matrices), sum(p.numel() for own in matrices for p in own.parameters())
        images = torch.randn(2, *image, generator=torch.Generator().manual_seed(0))
        row.error = max(own["error"] for own in imlp.nn.verify(dense, prior, images).values())
        row.of_gradients = between_gradients(dense, prior, images)
        row.left = left | dict(dense.left_structured)  # type: ignore
    except (ImlpError, RuntimeError, ValueError, TypeError) as error:  # those of other people's packages too
        row.problem = " ".join(str(error).split())[:300]
    row.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return row


def between_gradients(dense: nn.Module, prior: nn.Module, images: torch.Tensor) -> float:
    """The largest difference of the gradients of the images, beside the largest gradient."""
    found = []
    for model in (prior, dense):
        x, random = images.clone().requires_grad_(), torch.Generator().manual_seed(1)
        results = [own for own in tensors(model.requires_grad_(False)(x)) if own.requires_grad]
        torch.autograd.backward([(y * torch.randn(y.shape, generator=random)).sum() for y in results])
        assert x.grad is not None
        found.append(x.grad)
    return float((found[0] - found[1]).abs().max() / found[0].abs().max())


def _in_a_process(given: tuple[Any, ...]) -> Row:
    """The packages are imported once, and the memory of a model is given back."""
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=lambda: send.send(measured(*given)))
    child.start()
    send.close()
    try:
        row: Row = receive.recv()
    except EOFError:
        row = Row(*given[:3], problem="its process died")
    child.join()
    return row


def page(rows: list[Row], missing: list[str], command: str, limit_mb: int) -> str:
    """docs/models.md."""
    right, layers = [row for row in rows if row.is_right], sum(row.layers for row in rows)
    worst, steepest = (max((getattr(row, name) for row in rows), default=0.0) for name in ("error", "of_gradients"))
    facts = {name: value for name, value in facts_of_this_machine().items() if name != "because"}
    facts |= {name: version(name) for name in PACKAGES.values() if name not in missing}
    lines = [
        HEADER.format(
            right=len(right), rows=len(rows), layers=layers, worst=worst, steepest=steepest, limit_mb=limit_mb
        )
    ]
    tried = {(row.package, row.model, row.image) for row in rows}
    if others := [
        f"`{name}` ({size})" for package, name, size, _ in listed(LIST) if (package, name, size) not in tried
    ]:
        lines += [f"In `benchmarks/models.txt`, and not tried here: {', '.join(others)}.", ""]
    for package, title in PACKAGES.items():
        own = [row for row in rows if row.package == package]
        if own:
            lines += [f"## {title}", "", f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
            lines += [*(f"| {' | '.join(row.cells())} |" for row in own), ""]
    lines += ["<details><summary>What was left out, by name</summary>", ""]
    lines += [f"- `{row.model}` ({row.image}): {', '.join(row.left)}" for row in rows if row.left]
    lines += ["", "</details>", ""]
    lines += [f"{name} is not installed: its models are missing here." for name in missing]
    lines += [f"`{command}`: {', '.join(f'{name} {value}' for name, value in facts.items())}."]
    return "\n".join(lines) + "\n"


def main(
    models: Annotated[Path, typer.Option(help="The list.")] = LIST,
    only: Annotated[str, typer.Option(help="Those with this in their name.")] = "",
    limit_mb: Annotated[int, typer.Option(help="Of all matrices of a model.")] = 1600,
    out: Annotated[Path | None, typer.Option(help="Write the page.")] = None,
) -> None:
    missing, rows = [], []
    for name in PACKAGES.values():
        try:
            import_module(name)
        except ImportError:
            missing.append(name)
            console.print(f"{name} is not installed: its models are left out")
    command = f"python benchmarks/models.py --limit-mb {limit_mb}" + (f" --only {only}" if only else "")
    for package, name, size, options in listed(models):
        if only in name and PACKAGES[package] not in missing:
            row = _in_a_process((package, name, size, options, limit_mb * 10**6))
            rows.append(row)
            console.print(" | ".join((package, *row.cells())), soft_wrap=True)
            if out is not None:  # so far
                with whole_file(out) as partial:
                    partial.write_text(page(rows, missing, command, limit_mb))
    right = sum(row.is_right for row in rows)
    console.print(f"{right} of {len(rows)} with at most one refusal")
    if right < 0.9 * len(rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    run(main)
