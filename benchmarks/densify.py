"""A whole PyTorch model made dense, and its knob: `imlp.nn` against two other ways to build the same matrices.

Run: python benchmarks/densify.py [--model torchvision.models:resnet18] [--image 32] [--repeats 5] [--device cuda]

(a) identity: push the identity through each convolution, as RepMLPNet does; a batch of rows at a time, to fit memory.
(b) contraction: the kernel times three-way index tensors that say which tap joins which pixel to which output, as
    einconv writes a convolution. That package is not installed here: its contraction is written out with `einsum`.
(c) floor of the knob: one in-place scaling of the same weights, the least that any interpolation must do.

Must show: densify at least 10 times faster than (a), `knob.step()` at most 2.5 times (c).
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from measure import console, interleaved, milliseconds, print_machine, ratio, run, table
from torch import Tensor, nn
from torch.nn import functional

import imlp.nn
from imlp.nn.factory import make
from imlp.spec import Conv

ALPHA = 1e-4
ROWS = 512  # of the identity at a time
WAYS = ("imlp.nn", "identity", "contraction")


def identity_matrix(spec: Conv, weight: Tensor) -> Tensor:
    """The layer applied to every row of the identity, transposed."""
    m_out, m_in = spec.matrix_shape
    built = weight.new_empty(m_in, m_out)
    geometry = (None, spec.stride, spec.padding, spec.dilation, spec.groups)
    for start in range(0, m_in, ROWS):
        some = range(start, min(start + ROWS, m_in))
        rows = weight.new_zeros(len(some), m_in)
        rows[torch.arange(len(some)), torch.tensor(some)] = 1
        built[start : some.stop] = functional.conv2d(rows.view(-1, *spec.in_shape), weight, *geometry).flatten(1)
    return built.T.contiguous()


def contracted_matrix(spec: Conv, weight: Tensor) -> Tensor:
    """`einsum` of the kernel with a pattern for each axis: `P[tap, output, pixel]` is 1 where the three meet."""
    patterns = [_pattern(spec, axis).to(weight) for axis in (0, 1)]
    (c, *_), (o, *_), g = spec.in_shape, spec.out_shape, spec.groups
    if g == 1:
        return torch.einsum("ocij,iyv,jxu->oyxcvu", weight, *patterns).reshape(spec.matrix_shape)
    own = torch.einsum("gocij,iyv,jxu->goyxcvu", weight.view(g, o // g, c // g, *spec.kernel), *patterns)
    return torch.block_diag(*own.reshape(g, spec.matrix_shape[0] // g, -1))


def _pattern(spec: Conv, axis: int) -> Tensor:
    """`(taps, outputs, pixels)` of one axis of the image."""
    pattern = torch.zeros(spec.kernel[axis], spec.out_shape[1 + axis], spec.in_shape[1 + axis])
    for tap in range(spec.kernel[axis]):
        for output in spec.outputs_reached(axis, tap):
            pattern[tap, output, spec.pixel(axis, output, tap)] = 1
    return pattern


def layers(model: str, size: int, device: str) -> tuple[nn.Module, imlp.nn.Plan, list[tuple[Conv, Tensor]]]:
    """The module, its plan, and spec and kernel of every convolution."""
    prior = make(model, seed=0, options={"num_classes": 10}).to(device).eval()
    plan = imlp.nn.find(prior, (3, size, size), nn.Conv2d)
    pairs = [(found.spec, prior.get_submodule(found.name).weight.detach()) for found in plan.layers]
    return prior, plan, pairs  # type: ignore[return-value]


def build(way: str, prior: nn.Module, size: int, pairs: list[tuple[Conv, Tensor]]) -> object:
    """Every matrix, all kept, as a dense model would hold them."""
    if way == "imlp.nn":
        return imlp.nn.densify(prior, (3, size, size), layers=nn.Conv2d, init="prior", check=False)
    function = identity_matrix if way == "identity" else contracted_matrix
    return [function(spec, weight) for spec, weight in pairs]


def check(pairs: list[tuple[Conv, Tensor]], dense: nn.Module, names: list[str]) -> None:
    """All ways build the same matrices."""
    for name, (spec, weight) in zip(names, pairs, strict=True):
        W = dense.get_submodule(name).weight
        for function in (identity_matrix, contracted_matrix):
            assert torch.allclose(function(spec, weight), W, atol=1e-6), (name, function.__name__)


def child(way: str, model: str, size: int) -> None:
    """Build once in a separate process and print the seconds and the peak memory."""
    prior, _, pairs = layers(model, size, "cpu")
    status = Path("/proc/self/status")

    def memory(field: str) -> int:
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith(field))

    small = nn.Sequential(nn.Conv2d(3, 16, 3))  # what is loaded at first use is not counted, for any of the ways
    build(way, small, 16, [(imlp.nn.find(small, (3, 16, 16)).layers[0].spec, small[0].weight.detach())])  # type: ignore
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    begin = time.perf_counter()
    _ = build(way, prior, size, pairs)
    print(json.dumps({"seconds": time.perf_counter() - begin, "bytes": memory("VmHWM") - before}))


def building(model: str, size: int, repeats: int, title: str, floor: int) -> None:
    """Time and peak memory of building all matrices, each way in a separate process, in turns."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            command = [sys.executable, __file__, "--child", way, "--model", model, "--image", str(size)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
    seconds = {way: [one["seconds"] for one in found[way]] for way in WAYS}
    result = table(title, "way", "fastest, s", "slowest, s", "imlp.nn is faster by", "peak, MB", "of the matrices")
    for way in WAYS:
        peak = max(one["bytes"] for one in found[way])
        faster = "" if way == "imlp.nn" else f"{min(seconds[way]) / min(seconds['imlp.nn']):.1f} x"
        times = (f"{min(seconds[way]):.2f}", f"{max(seconds[way]):.2f}")
        result.add_row(way, *times, faster, f"{peak / 1e6:,.0f}", f"{peak / floor:.2f}")
    console.print(result)


def stepping(prior: nn.Module, dense: nn.Module, pairs: list[tuple[Conv, Tensor]], names: list[str], n: int) -> None:
    """One step of the knob against building and mixing densely, and against the floor."""
    weights = [dense.get_submodule(name).weight.detach() for name in names]
    knob = imlp.nn.Interpolation(dense, prior, ALPHA)

    def mixed(function: Callable[[Conv, Tensor], Tensor]) -> Callable[[], None]:
        def mix() -> None:
            for W, (spec, weight) in zip(weights, pairs, strict=True):
                W.mul_(1 - ALPHA).add_(function(spec, weight), alpha=ALPHA)

        return mix

    def scale() -> None:
        for W in weights:
            W.mul_(1 - ALPHA)

    floor, step, identity, contraction = ways = {
        "floor: W.mul_(c)": scale,
        "knob.step()": knob.step,
        "identity, then mixed": mixed(identity_matrix),
        "contraction, then mixed": mixed(contracted_matrix),
    }
    seconds = interleaved(ways, repeats=n, warm_up=1, calls={floor: 5, step: 5})
    result = table("one step of the knob", "way", "ms (middle half)", "of the floor", "knob.step() is faster by")
    for way in ways:
        times = f"{1 / ratio(seconds, step, way):.1f} x" if way in (identity, contraction) else ""
        result.add_row(way, milliseconds(seconds[way]), f"{ratio(seconds, way, floor):.2f}", times)
    console.print(result)


def main(
    model: Annotated[str, typer.Option(help="A function that makes the model.")] = "torchvision.models:resnet18",
    image: Annotated[int, typer.Option(help="Side of the images.")] = 32,
    repeats: Annotated[int, typer.Option(help="Turns.")] = 5,
    device: Annotated[str, typer.Option(help="Where the steps are measured.")] = "cpu",
    child_way: Annotated[str, typer.Option("--child", hidden=True)] = "",
) -> None:
    """A whole model made dense, and its knob, against the identity and an einsum."""
    if child_way:
        child(child_way, model, image)
        return
    print_machine()
    prior, plan, pairs = layers(model, image, device)
    names = [found.name for found in plan.layers]
    title = f"{model} at 3 x {image} x {image}: {len(names)} matrices, {plan.numbers:,} numbers, {repeats} turns"
    dense = imlp.nn.densify(prior, (3, image, image), layers=nn.Conv2d, init="prior", check=False)
    check(pairs, dense, names)
    stepping(prior, dense, pairs, names, repeats)
    del dense
    building(model, image, repeats, title, 4 * plan.numbers)


if __name__ == "__main__":
    run(main)
