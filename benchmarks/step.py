"""One training step of the paper's networks: ours, plain `torch.nn` with `torch.optim.Adam`, and the products alone.

    python benchmarks/step.py [--network cnn] [--batch 128] [--threads 2] [--repeats 30] [--lanes 1 4 12]

All candidates run in turns within one process; a ratio is the median of the ratios of the turns, so that a machine
that is busy for a while slows both sides. The floor is what no step can go below: the matrix products of forward and
backward (no gradient at the images), each written to a place that is there already, and nothing else.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from imlp import accel, networks
from imlp.networks import Network


def plain(network: Network, dense: bool) -> nn.Sequential:
    """The network as a user of torch would write it; for networks without residual blocks."""
    modules: list[nn.Module] = [] if dense else [nn.Unflatten(1, network.image)]
    for _, steps in network.sections(dense=dense):
        for step in steps:
            if step.op == "linear" and (dense or step.name == "head"):
                modules += [nn.Flatten(), nn.Linear(*reversed(step.of.spec.matrix_shape))]
            elif step.op == "linear":
                s = step.of.spec
                modules.append(nn.Conv2d(s.in_shape[0], s.out_channels, s.kernels, s.strides, s.paddings))
                shape = s.out_shape
            elif step.op == "norm":
                modules.append(nn.LayerNorm(step.of.features if dense else shape, elementwise_affine=step.of.learned))
            else:
                modules.append(nn.GELU())
    return nn.Sequential(*modules)


def plain_step(network: Network, dense: bool, x: Tensor, y: Tensor, **options: bool) -> Callable[[], object]:
    model = plain(network, dense)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **options)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def our_step(network: Network, dense: bool, lanes: int | None, x: Tensor, y: Tensor) -> Callable[[], object]:
    model = accel.init(network, dense=dense, seed=0, lanes=lanes)
    return lambda: accel.train_step(model, x, y)


def floor(network: Network, batch: int) -> Callable[[], object]:
    """`y = x W^T`, `dW = dy^T x` and `dx = dy W` of every layer of one I-MLP."""
    products = []
    for n, layer in enumerate((*network.layers, network.head)):
        m_out, m_in = layer.spec.matrix_shape
        x, W, dy = torch.randn(batch, m_in), torch.randn(m_out, m_in), torch.randn(batch, m_out)
        products += [(x, W.T, torch.empty(batch, m_out)), (dy.T, x, torch.empty(m_out, m_in))]
        products += [(dy, W, torch.empty(batch, m_in))] if n else []

    def step() -> None:
        for left, right, out in products:
            torch.mm(left, right, out=out)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="cnn", choices=["cnn", "mlp1", "mlp2"])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--lanes", type=int, nargs="*", default=[1, 4, 12])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rng = np.random.default_rng(0)
    network = networks.make(given.network)
    x = torch.from_numpy(rng.normal(size=(given.batch, 3072))).float()
    y = torch.from_numpy(rng.integers(0, network.classes, given.batch))
    candidates = {
        "prior, torch.nn": plain_step(network, False, x, y),
        "prior, imlp": our_step(network, False, None, x, y),
        "dense, floor": floor(network, given.batch),
        "dense, torch.nn": plain_step(network, True, x, y),
        "dense, torch.nn, fused Adam": plain_step(network, True, x, y, fused=True),
        "dense, imlp": our_step(network, True, None, x, y),
    }
    candidates |= {f"{lanes} lanes, imlp": our_step(network, True, lanes, x, y) for lanes in given.lanes}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(given.repeats + 3):
        for name, step in candidates.items():
            start = time.perf_counter()
            step()
            if turn >= 3:  # the first turns warm up
                times[name].append(1e3 * (time.perf_counter() - start))

    print(f"{given.network}, batch {given.batch}, {given.threads} threads, {given.repeats} turns, float32")
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    )
    for name, values in times.items():
        low, median, high = np.percentile(values, [10, 50, 90])
        print(f"{name:28} {median:8.1f} ms  (10% {low:.1f}, 90% {high:.1f})")
    pairs = [
        ("prior, imlp", "prior, torch.nn", 1),
        ("dense, imlp", "dense, floor", 1),
        ("dense, imlp", "dense, torch.nn", 1),
        *((f"{lanes} lanes, imlp", "dense, imlp", lanes) for lanes in given.lanes),
    ]
    for name, against, scale in pairs:
        ratio = statistics.median(a / b for a, b in zip(times[name], times[against], strict=True))
        print(f"ratio {name} / {against}: {ratio:.2f}" + (f", {ratio / scale:.2f} a lane" if scale > 1 else ""))


if __name__ == "__main__":
    main()
