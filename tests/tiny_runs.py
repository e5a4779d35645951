"""A data set and a network small enough to train in a moment, and how the tests run them."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from imlp.data import Dataset
from imlp.train.callbacks import Callback
from imlp.train.config import Config, from_mapping
from imlp.train.loop import Trainer
from imlp.train.run_folder import RunFolder

OPTIONS = {"width": 64, "strides": (1, 2, 2)}
SMALL = ["--options", "width=64", "--options", "strides=[1,2,2]", "--batch", "20", "--epochs", "2", "--lr", "0.003"]
SMALL += ["--backend", "reference"]  # the same on the command line
OWN_EXPERIMENT = """
title = "Mine"
asks = "What?"
[[arms]]
name = "mine"
alphas = "0,1"
[budgets.smoke]
seeds = 2
settings = {{ data = "{data}", epochs = 2, batch = 20, lr = 0.003, backend = "reference", options = {options} }}
[[paper]]
arm = "mine"
lane = {{ alpha = "1" }}
"{data}" = [50.0, 1.5]
[[claims]]
kind = "one-is-prior"
claim = "alpha 1 is the prior"
arm = "mine"
"""


def data(n: int = 72, n_test: int = 30) -> Dataset:
    """Three classes: a bright bar in the upper, middle or lower part of a dim image."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n + n_test)
    x = rng.integers(0, 64, (n + n_test, 1, 8, 8), dtype=np.uint8)
    for image, label in zip(x, y, strict=True):
        image[0, 2 * label : 2 * label + 2, 1:6] = 255
    return Dataset("bars", x[:n], y[:n], x[n:], y[n:], ("upper", "middle", "lower"))


def save_npz(path: Path, **sizes: int) -> Path:
    made = data(**sizes)
    np.savez(path, x=made.x, y=made.y, x_test=made.x_test, y_test=made.y_test)
    return path


def config(**settings: Any) -> Config:
    base = {"options": OPTIONS, "data": "bars", "batch": 20, "epochs": 3, "lr": 3e-3, "dtype": "float64"}
    return from_mapping(Config, {**base, "backend": "reference", **settings})


def lanes(*alphas: Any, **common: Any) -> list[dict[str, Any]]:
    """`0.5` or `("1", {"every": "step"})` for each lane; once per epoch unless it says something else."""
    pairs = [alpha if isinstance(alpha, tuple) else (alpha, {}) for alpha in alphas]
    return [{"alpha": str(alpha), "every": "epoch", **common, **own} for alpha, own in pairs]


MANY_LANES = lanes(0, ("0.3", {"every": "3"}), "decay:0.5:2", (1, {"coupling": "add", "head": True}))


def run(folder: Path, *callbacks: Any, resume: bool = False, **settings: Any) -> Trainer:
    trainer = Trainer(config(**settings), data(), folder, callbacks)
    trainer.run(resume=resume)
    return trainer


def weights(trainer: Trainer, lane: int) -> dict[str, np.ndarray]:
    """The parameters of one lane as arrays."""
    index = trainer.state.active.index(lane)
    return {name: trainer.backend.to_numpy(p)[index] for name, p in trainer.state.lanes.parameters.items()}


class StopAt(Callback):
    """Asks the run to stop after so many steps, as a signal's handler does."""

    def __init__(self, steps: int):
        self.left = steps

    def stepped(self, trainer: Trainer, images: int) -> None:
        self.left -= 1
        if self.left == 0:
            trainer.stop_requested = "SIGINT"


class Warnings(Callback):
    """Keeps what the run warns of."""

    def __init__(self):
        self.texts = []

    def warned(self, text: str) -> None:
        self.texts.append(text)


def outcome(folder: Path) -> tuple[bytes, dict[str, np.ndarray]]:
    """The metrics to the byte, and every array of the last checkpoint."""
    return RunFolder(folder).metrics.read_bytes(), load_file(RunFolder(folder).checkpoints()[0])


def assert_same_outcome(one: Path, other: Path) -> None:
    """The same bits, as if nothing had happened to one of them."""
    (metrics, arrays), (other_metrics, other_arrays) = outcome(one), outcome(other)
    assert metrics == other_metrics
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        assert array.tobytes() == other_arrays[name].tobytes(), name
