"""Building and mixing in `W_P`: strided diagonals against the identity convolution, and against the floor.

`interpolate` takes the path that `python cli.py info` names; `views` uses torch's views, which work on every machine.

Run: python benchmarks/priors.py [--repeats 12] [--plot benchmarks/priors.png] [--device cuda]

(a) identity: push the identity through the layer to get the dense `W_P`, then `W.mul_(1 - a).add_(W_P, alpha=a)`.
(b) floor: one in-place scaling of the same `W`, the least that any interpolation must do.
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
from torch import Tensor
from torch.nn import functional

from imlp import accel, networks
from imlp.accel import verbs
from imlp.spec import Chain, Conv, Patchify, Shared, Spec, Transpose

LIMIT = 8e9  # bytes; the identity method is not tried if it needs more
SIZES = (32, 64, 128, 224)


def identity_matrix(spec: Spec, weight: Tensor) -> Tensor:
    """`W_P` as RepMLPNet does it: the layer applied to every row of the identity, transposed."""
    x = torch.eye(spec.matrix_shape[1], device=weight.device)
    for part in spec.parts if isinstance(spec, Chain) else (spec,):
        match part:
            case Conv():
                x = functional.conv2d(x.reshape(-1, *part.in_shape), weight, None, part.stride, part.padding)
            case Patchify():
                h, w = part.grid
                x = x.reshape(-1, part.channels, h, part.patch, w, part.patch).permute(0, 2, 4, 1, 3, 5)
            case Transpose():
                x = x.reshape(-1, part.rows, part.cols).transpose(1, 2)
            case Shared():
                x = functional.linear(x.reshape(-1, part.rows, part.in_features), weight)
    return x.reshape(spec.matrix_shape[1], -1).T.contiguous()


def compare(name: str, repeats: int, device: str) -> None:
    """Time one network's interpolated layers: all of them one after the other, as in a training run."""
    network = networks.make(name)
    specs = [layer.spec for layer in network.layers]
    dense = [torch.randn(spec.matrix_shape, device=device) for spec in specs]
    prior = accel.init(network, dense=False, seed=0, device=device)  # its weights as a training step stores them
    weights = [prior.parameters[f"{layer.name}.weight"] for layer in network.layers]
    alpha = 1e-4

    def each(action: Callable[[Tensor, Spec, Tensor], object]) -> Callable[[], None]:
        def run() -> None:
            for W, spec, weight in zip(dense, specs, weights, strict=True):
                action(W, spec, weight)

        return run

    floor, fast, views, build, identity, identity_build = ways = {
        "floor: W.mul_(c)": each(lambda W, spec, w: W.mul_(1 - alpha)),
        "interpolate": each(lambda W, spec, w: accel.interpolate(W, spec, w, alpha)),
        "interpolate, views": each(lambda W, spec, w: verbs._interpolate(W, spec, w, 1 - alpha, alpha)),
        "build, views": each(lambda W, spec, w: accel.matrix(spec, w)),
        "interpolate, identity": each(lambda W, spec, w: W.mul_(1 - alpha).add_(identity_matrix(spec, w), alpha=alpha)),
        "build, identity": each(lambda W, spec, w: identity_matrix(spec, w)),
    }
    # A turn has several calls. The first is not counted: it suffers from what the method before it left in the caches.
    seconds = interleaved(ways, repeats=repeats, calls={floor: 20, fast: 20, views: 20, build: 5})
    result = table(
        f"{name}: {len(specs)} layers, {sum(W.numel() for W in dense):,} weights, float32, {repeats} turns", "way",
        "ms (middle half)", "of the floor", "faster than identity",
    )  # fmt: skip
    for way in ways:
        slower = {fast: identity, views: identity, build: identity_build}.get(way)
        times = f"{1 / ratio(seconds, way, slower):.0f} x" if slower else ""
        result.add_row(way, milliseconds(seconds[way]), f"{ratio(seconds, way, floor):.2f}", times)
    console.print(result)


def growing(size: int) -> Conv:
    return Conv((3, size, size), 16, kernel=3, stride=2, padding=1)


def child(way: str, size: int) -> None:
    """Build one matrix in a separate process and print the seconds and the peak memory."""
    spec = growing(size)
    weight = torch.randn(spec.weight_shape)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    begin = time.perf_counter()
    _ = identity_matrix(spec, weight) if way == "identity" else accel.matrix(spec, weight, layout="sparse")
    seconds = time.perf_counter() - begin
    peak = memory("VmHWM") - before
    print(json.dumps({"seconds": seconds, "bytes": peak}))


def memory(field: str) -> int:
    """Bytes that this process uses (`VmRSS`) or used at its peak (`VmHWM`); Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def growth(plot: Path | None) -> None:
    """Time and peak memory of building the matrix of a 3 x 3 convolution from 3 to 16 channels with stride 2."""
    result = table(
        "building W_P of Conv(3 -> 16, 3x3, stride 2) as the image grows", "image", "matrix", "non-zeros",
        "identity, s", "identity, MB", "sparse, s", "sparse, MB",
    )  # fmt: skip
    found: dict[str, dict[int, dict[str, float]]] = {"identity": {}, "diagonals": {}}
    for size in SIZES:
        m_out, m_in = growing(size).matrix_shape
        needed = 4 * (m_in * m_in + 2 * m_out * m_in)  # the identity, its image, and the transposed copy
        cells = []
        for way in found:
            if way == "identity" and needed > LIMIT:
                cells += [f"needs {needed / 1e9:.0f} GB", "stopped"]
                continue
            command = [sys.executable, __file__, "--child", way, "--size", str(size)]
            measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            found[way][size] = measured
            cells += [f"{measured['seconds']:.3f}", f"{measured['bytes'] / 1e6:.0f}"]
        result.add_row(f"{size} x {size}", f"{m_out:,} x {m_in:,}", f"{growing(size).nnz:,}", *cells)
    console.print(result)
    if plot is not None:
        draw(found, plot)


def draw(found: dict[str, dict[int, dict[str, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    from imlp.look.plot import save

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, key, label, scale in zip(
        figure.subplots(1, 2), ("seconds", "bytes"), ("seconds", "peak memory, MB"), (1, 1e-6), strict=True
    ):
        for (way, points), marker in zip(found.items(), "os", strict=True):
            axes.plot(list(points), [point[key] * scale for point in points.values()], marker=marker, label=way)
        axes.set(xlabel="image height and width", ylabel=label, xscale="log", yscale="log", xticks=SIZES)
        axes.set_xticklabels(map(str, SIZES))
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle("Building the matrix of a convolution: the identity method stops where it needs more than 8 GB")
    save(figure, path)


def main(
    repeats: int = 12,
    plot: Path | None = None,
    device: str = "cpu",
    child_way: Annotated[str | None, typer.Option("--child", hidden=True)] = None,
    size: Annotated[int, typer.Option(hidden=True)] = 32,
) -> None:
    if child_way is not None:
        child(child_way, size)
        return
    print_machine()
    for name in ("cnn", "mixer"):
        compare(name, repeats, device)
    if device == "cpu":
        growth(plot)


if __name__ == "__main__":
    run(main)
