"""One training step: ours, plain `torch.nn` with `torch.optim.Adam`, and the matrix products alone.

Run: python benchmarks/step.py [--network cnn] [--batch 128] [--threads 2] [--repeats 30] [--device cuda] [--lanes 12]
     [--only-mixing]

(a) torch.nn: the same network from `nn.Conv2d`, `nn.Linear`, `nn.LayerNorm`, `nn.GELU`, with default and fused Adam.
(b) floor: the products `x W^T`, `dy^T x` and `dy W` of every dense layer (without the gradient at the images) and
    nothing else: no bias, norm, activation or optimizer. "in place" writes the results to existing memory; "fresh"
    allocates memory, as autograd does. "bfloat16" is a step with the products of dense layers in bfloat16, "module" one
    of the dense form of the network in `torch.nn`, as the trainer takes PyTorch models.
(c) lanes: each lane is computed as if it were alone, so its bits cannot depend on the other lanes. The products alone
    show what this costs: one by one, as imlp computes them, and joined (one product for the first layer, `bmm` for the
    others).

(d) mixing: nine lanes that are mixed after every step, by `interpolate` and by `self`: the time that this takes within
    a step, as a share of the rest of that step. "at the end" is what imlp does: when all lanes have been updated. "at
    once" moves each layer right after its own update by Adam, which gives the same bits. "scaling" is one in-place
    scaling of the same weights at the end, the least that any mixing takes.

The times of a candidate are those of its turns; a ratio is the median over the turns. "quiet" is the ratio of the
fastest tenth of the turns on either side: use it when the machine is busy with other things.
"""

import statistics
import time
from collections.abc import Callable
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer
from measure import console, interleaved, milliseconds, print_machine, ratio, run, table
from torch import Tensor, nn

from imlp import accel, networks
from imlp.accel import layer_verbs
from imlp.accel.adam import adam
from imlp.accel.layers import product
from imlp.accel.network import _loss_and_backward
from imlp.accel.precision import computing
from imlp.accel.stack import one_by_one
from imlp.couplings import Move, Moves, coupling
from imlp.model import Model
from imlp.model.mixing import move_lane, prepare
from imlp.networks import Layer, Network, Norm
from imlp.optimizers import ADAM
from imlp.train.modules import ModuleNetwork

Step = Callable[[], object]
Mixed = Callable[[], tuple[float, float]]


def plain(network: Network, dense: bool) -> nn.Sequential:
    """The network as a user of torch would write it. It must not have residual blocks."""
    modules: list[nn.Module] = [] if dense else [nn.Unflatten(1, network.image)]
    for step in network.operations(dense=dense):
        if isinstance(step, Layer) and (dense or step.name == "head"):
            modules += [nn.Flatten(), nn.Linear(*reversed(step.spec.matrix_shape))]
        elif isinstance(step, Layer):
            s = step.spec
            modules.append(nn.Conv2d(s.in_shape[0], s.out_channels, s.kernel, s.stride, s.padding))
            shape = s.out_shape
        elif isinstance(step, Norm):
            modules.append(nn.LayerNorm(step.features if dense else shape, elementwise_affine=step.learned))
        else:
            modules.append(nn.GELU())
    return nn.Sequential(*modules)


def plain_step(network: Network, dense: bool, x: Tensor, y: Tensor, fused: bool = False) -> Step:
    model = plain(network, dense).to(x.device)
    assert sum(p.numel() for p in model.parameters()) == network.n_parameters(dense=dense)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def our_step(network: Network, dense: bool, lanes: int | None, x: Tensor, y: Tensor, *, products: str = "full") -> Step:
    model = accel.init(network, dense=dense, seed=0, lanes=lanes, device=x.device)

    def step() -> None:
        with computing(products=products):
            accel.train_step(model, x, y)

    return step


def as_module(network: Network) -> Any:
    """The prior in `torch.nn` as the trainer takes it, which makes its dense form."""
    return ModuleNetwork("plain", network.image, lambda seed: plain(network, dense=False)[1:], ())


def mixed_step(network: Network, lanes: int, x: Tensor, y: Tensor, name: str, *, at_once: bool) -> Mixed:
    """A step of all lanes with mixing; it returns the seconds that the mixing took, and those of everything else."""
    model = accel.init(network, dense=True, seed=0, lanes=lanes, device=x.device)
    prior = accel.init(network, dense=False, seed=0, device=x.device)
    move = Move(coupling("interpolate" if name == "scaling" else name), (0.01,))
    moves = {layer: [move] * lanes for layer in network.interpolated}
    spent = 0.0

    def mix(lane: Model, index: int, own: Moves) -> None:
        nonlocal spent
        begin = time.perf_counter()
        if name == "scaling":
            for layer in own:
                lane.parameters[f"{layer}.weight"].mul_(0.99)
        else:
            move_lane(layer_verbs, lane, index, prior, own, step=model.step + 1)
        spent += time.perf_counter() - begin

    @torch.no_grad()
    def step() -> tuple[float, float]:
        nonlocal spent
        spent, begin = 0.0, time.perf_counter()
        prepare(model, prior, moves)
        model.keep_state(ADAM, torch.zeros_like)
        lanes = one_by_one(model)
        backwards = [_loss_and_backward(lane, x, y, keep=True, reuse=True)[1] for lane in lanes]
        for index, (lane, backward) in enumerate(zip(lanes, backwards, strict=True)):

            def receive(grads: dict[str, Tensor], lane: Model = lane, index: int = index) -> None:
                adam(lane, grads, ADAM)
                for layer in moves if at_once else ():
                    if f"{layer}.weight" in grads:
                        mix(lane, index, {layer: moves[layer]})

            backward(receive)
        for index, lane in enumerate(() if at_once else lanes):
            mix(lane, index, moves)
        model.step += 1
        return spent, time.perf_counter() - begin - spent

    return step


def print_mixing(network: Network, x: Tensor, y: Tensor, repeats: int) -> None:
    wanted = [("scaling", False), ("interpolate", False), ("interpolate", True), ("self", False), ("self", True)]
    steps = {which: mixed_step(network, 9, x, y, which[0], at_once=which[1]) for which in wanted}
    found: dict[tuple[str, bool], list[tuple[float, float]]] = {which: [] for which in wanted}
    for turn in range(repeats + 1):
        for which, step in steps.items():
            times = step()
            if turn:  # the first is to warm up
                found[which].append(times)
    made = table(
        f"mixing after every step, 9 lanes, {repeats} turns", "mixing", "where", "ms", "% of the rest", "middle half"
    )
    for (name, at_once), each in found.items():
        shares = [100 * own / rest for own, rest in each]
        low, middle, high = statistics.quantiles(shares, n=4)
        took = f"{1e3 * statistics.median(own for own, _ in each):.1f}"
        where = "at once" if at_once else "at the end"
        made.add_row(name, where, took, f"{middle:.1f}", f"{low:.1f} .. {high:.1f}")
    console.print(made)


def floor(network: Network, batch: int, *, fresh: bool, device: str = "cpu") -> Step:
    products = []
    for n, layer in enumerate((*network.layers, network.head)):
        m_out, m_in = layer.spec.matrix_shape
        x, W, dy = (torch.randn(size, device=device) for size in ((batch, m_in), (m_out, m_in), (batch, m_out)))
        products += [(x, W.T), (dy.T, x)] + ([(dy, W)] if n else [])
    room = [None if fresh else left @ right for left, right in products]

    def step() -> list[Tensor]:
        return [torch.mm(left, right, out=out) for (left, right), out in zip(products, room, strict=True)]

    return step


def products_of_lanes(network: Network, batch: int, lanes: int, *, joined: bool, device: str = "cpu") -> Step:
    """The products of all lanes, in place: joined where possible, or one lane after the other."""
    layers = []
    for n, layer in enumerate((*network.layers, network.head)):
        m_out, m_in = layer.spec.matrix_shape
        x_shape = (batch, m_in) if n == 0 else (lanes, batch, m_in)
        x, W, dy = (torch.randn(s, device=device) for s in (x_shape, (lanes, m_out, m_in), (lanes, batch, m_out)))
        layers.append((x, W, dy, torch.empty_like(W)))

    def together() -> None:
        for x, W, dy, dW in layers:
            if x.ndim == 2:
                rows = W.flatten(0, 1)
                torch.mm(x, rows.T).view(len(x), lanes, -1).transpose(0, 1).contiguous()
                torch.mm(dy.transpose(0, 1).reshape(len(x), -1).T, x, out=dW.flatten(0, 1))
            else:
                torch.bmm(x, W.mT)
                torch.bmm(dy.mT, x, out=dW)
                torch.bmm(dy, W)

    def one_by_one() -> None:
        for x, W, dy, dW in layers:
            for lane in range(lanes):
                own = x if x.ndim == 2 else x[lane]
                product(own, W[lane].T)
                torch.mm(dy[lane].T, own, out=dW[0])
                if x.ndim == 3:
                    product(dy[lane], W[lane])

    return together if joined else one_by_one


def quiet(seconds: dict[str, list[float]], name: str, to: str) -> float:
    fastest = [statistics.quantiles(seconds[one], n=10)[0] for one in (name, to)]
    return fastest[0] / fastest[1]


def main(
    network: Annotated[Literal["cnn", "mlp1", "mlp2"], typer.Option()] = "cnn",
    batch: int = 128,
    threads: int = 2,
    repeats: int = 30,
    device: str = "cpu",
    lanes: Annotated[list[int], typer.Option()] = [1, 4, 12],  # noqa: B006
    only_mixing: bool = False,
) -> None:
    torch.set_num_threads(threads)
    print_machine()
    made, rng = networks.make(network), np.random.default_rng(0)
    module = as_module(made)
    x = torch.from_numpy(rng.normal(size=(batch, prod(made.image)))).float().to(device)
    y = torch.from_numpy(rng.integers(0, made.classes, batch)).to(device)
    groups: list[tuple[dict[str, Step], list[tuple[str, str]]]] = [
        (
            {"prior, torch.nn": plain_step(made, False, x, y), "prior, imlp": our_step(made, False, None, x, y)},
            [("prior, imlp", "prior, torch.nn")],
        ),
        (
            {
                "products in place": floor(made, batch, fresh=False, device=device),
                "products fresh": floor(made, batch, fresh=True, device=device),
                "dense, torch.nn": plain_step(made, True, x, y),
                "dense, torch.nn, fused": plain_step(made, True, x, y, fused=True),
                "dense, imlp": our_step(made, True, None, x, y),
                "dense, imlp, bfloat16": our_step(made, True, None, x, y, products="bfloat16"),
                "dense module": our_step(module, True, None, x, y),
                "dense module, bfloat16": our_step(module, True, None, x, y, products="bfloat16"),
            },
            [
                *(
                    (name, to)
                    for to in ("products in place", "products fresh")
                    for name in ("dense, torch.nn", "dense, torch.nn, fused", "dense, imlp")
                ),
                ("dense, imlp, bfloat16", "dense, imlp"),
                ("dense module, bfloat16", "dense module"),
            ],
        ),
        (
            {"dense, imlp": our_step(made, True, None, x, y)}
            | {f"{n} lanes, imlp": our_step(made, True, n, x, y) for n in lanes},
            [(f"{n} lanes, imlp", "dense, imlp") for n in lanes],
        ),
    ]
    for n in lanes:
        made_of = {f"{n} lanes, products {how}": joined for how, joined in (("one by one", False), ("joined", True))}
        groups.append(
            (
                {
                    name: products_of_lanes(made, batch, n, joined=joined, device=device)
                    for name, joined in made_of.items()
                }
                | {f"{n} lanes, imlp": our_step(made, True, n, x, y)},
                [(f"{n} lanes, products one by one", f"{n} lanes, products joined")],
            )
        )
    for candidates, pairs in groups if not only_mixing else []:
        seconds = interleaved(candidates, repeats=repeats, warm_up=3)
        title = f"{network}, batch {batch}, float32, {threads} threads, {repeats} turns"
        times = table(title, "step", "ms (middle half)")
        for name, values in seconds.items():
            times.add_row(name, milliseconds(values))
        console.print(times)
        for name, to in pairs:
            console.print(f"{name} / {to}: {ratio(seconds, name, to):.2f} (quiet {quiet(seconds, name, to):.2f})")
    print_mixing(made, x, y, repeats)


if __name__ == "__main__":
    run(main)
