"""Augmented batches: ours against a DataLoader with torchvision's transforms, and their share of a training step.

    python benchmarks/data.py

One run measures everything on the same images: batches of 128, crops with padding 4, flips, standardisation. Exits with
1 if ours makes fewer than 5 times as many images per second, or takes 3 % of a step of the CNN pair or more.
"""

import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a checkout without installation

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torchvision import transforms

from imlp import augment
from imlp.accel import augment as accel
from imlp.data import Dataset, load_data_set

BATCH, WORKERS, ROUNDS = 128, 2, 5
LEAST_RATIO, LARGEST_SHARE = 5, 0.03


class Pictures(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """As torchvision's CIFAR10 serves them: each item is a PIL image, to which the transforms are applied."""

    def __init__(self, data: Dataset):
        self.x, self.y = data.x.transpose(0, 2, 3, 1).copy(), data.y
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(data.mean.tolist(), data.std.tolist()),
            ]
        )

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.x[i])), int(self.y[i])


class Net(nn.Module):
    """The CNN pair of table 2: six layers, LayerNorm without parameters and GELU after the first five, a head."""

    def __init__(self, layers: list[nn.Module]):
        super().__init__()
        self.layers, self.head = nn.ModuleList(layers), nn.Linear(1024, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i < 5:
                x = F.gelu(F.layer_norm(x, x.shape[1:]))
        return self.head(x.flatten(1))


def networks() -> list[Net]:
    channels = [(3, 1, 1), (1, 4, 2), (4, 16, 2), (16, 64, 2), (64, 256, 2), (256, 256, 1)]
    cnn = [nn.Conv2d(c, o, 3, stride, 1) for c, o, stride in channels]
    return [Net(cnn), Net([nn.Linear(3072 if i == 0 else 1024, 1024) for i in range(6)])]


def times(run: Callable[[], Any], n: int, warm_up: int) -> np.ndarray:
    """Seconds of each of `n` runs, after `warm_up` more that are not counted."""
    for _ in range(warm_up):
        run()
    measured = np.empty(n)
    for i in range(n):
        start = time.perf_counter()
        run()
        measured[i] = time.perf_counter() - start
    return measured


def ours(data: Dataset, kind: str) -> Callable[[], torch.Tensor]:
    x, rng = torch.from_numpy(data.x), np.random.default_rng(0)

    def batch() -> torch.Tensor:
        index = rng.integers(0, len(data.x), BATCH)
        drawn = augment.draw(kind, BATCH, data.image, rng=rng)
        return accel.batch(x, index, drawn, data.mean, data.std)

    return batch


def training(data: Dataset, n: int, warm_up: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each of `n` batches, and of the step of S-CNN and S-MLP that follows it, as in training."""
    pair = networks()
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-4, fused=True) for net in pair]
    batch, y = ours(data, "pad"), torch.from_numpy(data.y[:BATCH])

    def step(flat: torch.Tensor) -> None:
        for net, optimizer, x in zip(pair, optimizers, (flat.reshape(BATCH, 3, 32, 32), flat), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    seconds = np.empty((2, warm_up + n))
    for i in range(warm_up + n):
        start = time.perf_counter()
        flat = batch()
        between = time.perf_counter()
        step(flat)
        seconds[:, i] = between - start, time.perf_counter() - between
    return seconds[0, warm_up:], seconds[1, warm_up:]


def loader_seconds(loader: torch.utils.data.DataLoader[Any]) -> float:
    """Mean seconds per batch over an epoch (batches come in bursts), without those that were fetched at its start."""
    batches = iter(loader)
    for _ in range(2 * WORKERS):
        next(batches)
    start, n = time.perf_counter(), sum(1 for _ in batches)
    return (time.perf_counter() - start) / n


def main() -> int:
    with TemporaryDirectory() as root:
        data = load_data_set("shapes", root=root)
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, torchvision {torchvision.__version__}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads; {versions}")
    loader = torch.utils.data.DataLoader(
        Pictures(data), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True, drop_last=True
    )
    rounds = []
    for _ in range(ROUNDS):
        theirs = loader_seconds(loader)
        pad, resized = (np.median(times(ours(data, kind), n=100, warm_up=10)) for kind in ("pad", "resized"))
        batch, step = (np.median(seconds) for seconds in training(data, n=20, warm_up=3))
        rounds.append((theirs, pad, resized, batch, step))
    theirs, pad, resized, _, _ = np.min(rounds, axis=0)  # other work on the machine only ever adds time
    batch, step = min(((batch, step) for *_, batch, step in rounds), key=sum)
    rates = {f"DataLoader, {WORKERS} workers, pad": theirs, "ours, pad": pad, "ours, resized": resized}
    print(f"best of {ROUNDS} rounds, batches of {BATCH}:")
    for name, seconds in rates.items():
        print(f"{name:<28} {BATCH / seconds:>10,.0f} images/s")
    ratio, share = theirs / pad, batch / (batch + step)
    print(f"ours / DataLoader            {ratio:>10.1f} x   (at least {LEAST_RATIO})")
    print(f"in training: batch {1e3 * batch:.2f} ms, step of S-CNN and S-MLP {1e3 * step:.1f} ms")
    print(f"share of the step            {100 * share:>10.2f} %   (under {100 * LARGEST_SHARE:.0f})")
    return 0 if ratio >= LEAST_RATIO and share < LARGEST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
