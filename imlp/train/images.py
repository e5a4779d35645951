"""The images of a run where it computes: the batches that it trains on, and models evaluated on all test images.

Order, crops and flips of step `s` of epoch `e` are drawn from `(seed, e, s)` alone, so that a run which is resumed at
any step draws what it would have drawn.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from imlp import augment
from imlp.data import Dataset
from imlp.train.config import Config
from imlp.train.state import MODELS, State

STREAM_OF_ORDER, STREAM_OF_CROPS = 1, 2  # of the seed's random numbers; stream 0 draws the initial weights
EVALUATED_AT_ONCE = 1000


class Score(NamedTuple):
    """Of one network on some images: the share that it classifies correctly, and the mean loss."""

    accuracy: float
    loss: float


class PlacedImages:
    """The images of `data` on the device, which come out in batches of the backend's own arrays."""

    def __init__(self, config: Config, data: Dataset, backend: Any, *, classes: int, device: str, dtype: str):
        self.config, self.data, self.backend, self.device, self.dtype = config, data, backend, device, dtype
        self.classes = classes
        self.train, self.test = (backend.place(images, device=device) for images in (data.x, data.x_test))
        held_out = data.x_validation
        self.validation = None if held_out is None else backend.place(held_out, device=device)

    def order(self, epoch: int) -> np.ndarray:
        """The training images in the order of the epoch."""
        return np.random.default_rng([self.config.seed, STREAM_OF_ORDER, epoch]).permutation(len(self.data.x))

    def train_batch(self, rows: np.ndarray, epoch: int, step: int) -> tuple[Any, Any]:
        """These training images, cropped and flipped as drawn for the step, `(N, M_in)`, and their labels `(N,)`.

        With mixup or smoothed labels, these are shares of the classes, `(N, classes)`.
        """
        config = self.config
        rng = np.random.default_rng([config.seed, STREAM_OF_CROPS, epoch, step])
        draw = augment.draw(config.augment, len(rows), self.data.image, rng=rng, mixup=config.mixup, **config.crop)
        y = self.data.y[rows]
        if config.mixup or config.label_smoothing:
            y = augment.targets(y, self.classes, draw, smoothing=config.label_smoothing).astype(self.dtype)
        return self.batch(self.train, rows, draw), self.backend.place(y, device=self.device)

    def batch(self, images: Any, rows: np.ndarray, draw: Any = None) -> Any:
        """Some of the images as the network takes them, `(N, M_in)`; as they are if nothing is drawn."""
        mean, std = self.data.statistics(self.config.inputs)
        fill = None if self.config.inputs == "standardised" else self.data.mean
        return self.backend.batch(images, rows, draw, mean, std, fill=fill, dtype=self.dtype)

    def scores(self, state: State, *, on: str = "test", of: Sequence[str] = MODELS) -> dict[int | str, Score]:
        """How well the prior and the lanes do on the test images, or on those held out; nothing if there are none."""
        images, labels = (self.test, self.data.y_test) if on == "test" else (self.validation, self.data.y_validation)
        if labels is None:
            return {}
        models = {name: model for name, model in state.models if name in of}
        totals: dict[str, Any] = dict.fromkeys(models, (0, 0))
        for rows in in_parts(len(labels)):
            x = self.batch(images, rows)
            y = self.backend.place(labels[rows], device=self.device)
            for name, model in models.items():
                sums = zip(totals[name], self.backend.evaluate(model, x, y), strict=True)
                totals[name] = tuple(before + added for before, added in sums)
        scores: dict[int | str, Score] = {}
        for name, total in totals.items():
            correct, loss = (np.atleast_1d(self.backend.to_numpy(part)) / len(labels) for part in total)
            lanes: list[Any] = ["prior"] if name == "prior" else state.active
            scores |= {lane: Score(*map(float, numbers)) for lane, *numbers in zip(lanes, correct, loss, strict=True)}
        return scores


def in_parts(n: int) -> list[np.ndarray]:
    """The rows of `n` images, as many at a time as are evaluated at once."""
    return np.split(np.arange(n), range(EVALUATED_AT_ONCE, n, EVALUATED_AT_ONCE))
