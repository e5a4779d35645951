"""Training the CNN pair: ours against a program put together by hand, and against the matrix products alone.

Run: python benchmarks/train.py [--data shapes|cifar10] [--steps 40] [--rounds 5]

(a) by hand: a `DataLoader` with torchvision's transforms and 2 workers, `nn.Module`s, and two `torch.optim.Adam`. After
    every epoch the kernels are turned into matrices by convolving the identity, and mixed in densely.
(b) floor: the products of the dense layers alone (see step.py), the least that a step of the I-MLP can take.

Both train the same pair (one prior, one I-MLP, alpha 0.5) on batches of 128. They take turns of `--steps` steps; each
turn also includes its share of the interpolation at the end of an epoch of 391 steps (CIFAR-10).
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from data import Pictures
from measure import console, print_machine, run, table
from priors import identity_matrix
from step import floor, plain
from torch import nn

from imlp.data import Dataset, load_data_set
from imlp.train.config import Config, Lane
from imlp.train.loop import Trainer

BATCH, EPOCH = 128, 391  # steps of an epoch of CIFAR-10


class ByHand:
    """The pair in plain PyTorch."""

    def __init__(self, data: Dataset, config: Config):
        self.network = config.make_network(data.image, data.n_classes)
        self.models = [plain(self.network, dense) for dense in (False, True)]
        self.optimizers = [torch.optim.Adam(model.parameters(), lr=1e-4) for model in self.models]
        self.loader = torch.utils.data.DataLoader(
            Pictures(data), BATCH, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True
        )
        self.batches = self._batches()

    def _batches(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def train(self, steps: int) -> None:
        for _ in range(steps):
            images, labels = next(self.batches)
            for model, optimizer in zip(self.models, self.optimizers, strict=True):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images.flatten(1)), labels).backward()
                optimizer.step()

    @torch.no_grad()
    def interpolate(self, alpha: float) -> None:
        prior, dense = self.models
        convolutions = [module for module in prior if isinstance(module, nn.Conv2d)]
        linears = [module for module in dense if isinstance(module, nn.Linear)]
        for layer, conv, linear in zip(self.network.layers, convolutions, linears, strict=False):
            linear.weight.mul_(1 - alpha).add_(identity_matrix(layer.spec, conv.weight), alpha=alpha)
            places = layer.spec.matrix_shape[0] // conv.out_channels
            linear.bias.mul_(1 - alpha).add_(conv.bias.repeat_interleave(places), alpha=alpha)


class Ours:
    """The trainer's own step and mixing, as in a run."""

    def __init__(self, data: Dataset, config: Config, folder: Path):
        self.trainer = Trainer(config, data, folder)
        self.trainer.state = self.trainer.states.new()
        self.trainer.place_images()
        self.order = torch.randperm(len(data.x)).numpy()

    def train(self, steps: int) -> None:
        state = self.trainer.state
        for _ in range(steps):
            start = state.step * BATCH % (len(self.order) - BATCH)
            self.trainer.step(self.order[start : start + BATCH])
            state.step += 1

    def interpolate(self, alpha: float) -> None:
        state = self.trainer.state
        self.trainer.backend.mix(state.lanes, state.prior, alpha)


def seconds(function: Any, *arguments: Any) -> float:
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin


def main(data: str = "shapes", steps: int = 40, rounds: int = 5, threads: int = 2) -> None:
    torch.set_num_threads(threads)
    print_machine()
    config = Config(lanes=(Lane("0.5"),), batch=BATCH)
    images = load_data_set(data)
    with TemporaryDirectory() as folder:
        ours, by_hand = Ours(images, config, Path(folder)), ByHand(images, config)
        products = floor(ours.trainer.network, BATCH, fresh=False)
        for one in (ours, by_hand):
            one.train(5)
            one.interpolate(0.5)
        turns: dict[str, list[float]] = {"imlp": [], "by hand": [], "products": []}
        mixing: dict[str, list[float]] = {"imlp": [], "by hand": []}
        for _ in range(rounds):
            for name, one in (("imlp", ours), ("by hand", by_hand)):
                mixing[name].append(seconds(one.interpolate, 0.5))
                turns[name].append(seconds(one.train, steps) / steps + mixing[name][-1] / EPOCH)
            turns["products"].append(seconds(lambda: [products() for _ in range(10)]) / 10)
    shown = table(f"the CNN pair on {images.name}, batch {BATCH}, {threads} threads, {rounds} turns of {steps} steps",
                  "program", "images/s", "ms per step", "ms per mixing")  # fmt: skip
    for name, values in turns.items():
        step = statistics.median(values)
        mix = f"{1e3 * statistics.median(mixing[name]):.1f}" if name in mixing else ""
        shown.add_row(name, f"{BATCH / step:,.0f}", f"{1e3 * step:.1f}", mix)
    console.print(shown)
    pairs = list(zip(*turns.values(), strict=True))
    console.print(
        f"imlp / by hand: {statistics.median(hand / own for own, hand, _ in pairs):.2f} times as many images per second"
    )
    share = statistics.median(least / own for own, _, least in pairs)
    console.print(f"the I-MLP's own matrix products (the floor) take {100 * share:.0f} % of a step of the pair")


if __name__ == "__main__":
    run(main)
