"""The images of a run where it computes: the batches that it trains on, and models evaluated on all test images.

Order, crops and flips of step `s` of epoch `e` are drawn from `(seed, e, s)` alone, so that a run which is resumed at
any step draws what it would have drawn.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from imlp import augment
from imlp.data import Dataset
from imlp.model import Model
from imlp.train.config import Config

STREAM_OF_ORDER, STREAM_OF_CROPS = 1, 2  # of the seed's random numbers; stream 0 draws the initial weights
EVALUATED_AT_ONCE = 1000


class PlacedImages:
    """The images of `data` on the device, which come out in batches of the backend's own arrays."""

    def __init__(self, config: Config, data: Dataset, backend: Any, *, device: str, dtype: str):
        self.config, self.data, self.backend, self.device, self.dtype = config, data, backend, device, dtype
        self.train, self.test = (backend.place(images, device=device) for images in (data.x, data.x_test))
        held_out = data.x_validation
        self.validation = None if held_out is None else backend.place(held_out, device=device)

    def order(self, epoch: int) -> np.ndarray:
        """The training images in the order of the epoch."""
        return np.random.default_rng([self.config.seed, STREAM_OF_ORDER, epoch]).permutation(len(self.data.x))

    def train_batch(self, rows: np.ndarray, epoch: int, step: int) -> tuple[Any, Any]:
        """These training images, cropped and flipped as drawn for the step, `(N, M_in)`, and their labels `(N,)`."""
        config = self.config
        rng = np.random.default_rng([config.seed, STREAM_OF_CROPS, epoch, step])
        draw = augment.draw(config.augment, len(rows), self.data.image, rng=rng, **config.crop)
        return self.batch(self.train, rows, draw), self.backend.place(self.data.y[rows], device=self.device)

    def batch(self, images: Any, rows: np.ndarray, draw: Any = None) -> Any:
        """Some of the images as the network takes them, `(N, M_in)`; as they are if nothing is drawn."""
        mean, std = self.data.statistics(self.config.inputs)
        fill = None if self.config.inputs == "standardised" else self.data.mean
        return self.backend.batch(images, rows, draw, mean, std, fill=fill, dtype=self.dtype)

    def evaluate(
        self, models: Iterable[Model | None], images: Any, labels: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Correct answers and summed losses on the images, `(1,)` or one per lane, for each model that is not None."""
        wanted = [model for model in models if model is not None]
        totals: list[Any] = [None] * len(wanted)
        rows = np.arange(len(labels))
        for chunk in np.split(rows, range(EVALUATED_AT_ONCE, len(rows), EVALUATED_AT_ONCE)):
            x = self.batch(images, chunk)
            y = self.backend.place(labels[chunk], device=self.device)
            for k, model in enumerate(wanted):
                found = self.backend.evaluate(model, x, y)
                totals[k] = found if totals[k] is None else tuple(a + b for a, b in zip(totals[k], found, strict=True))
        return [tuple(np.atleast_1d(self.backend.to_numpy(part)) for part in total) for total in totals]  # type: ignore

    def test_scores(self, models: Iterable[Model | None]) -> list[tuple[np.ndarray, np.ndarray]]:
        """`evaluate` on the test images."""
        return self.evaluate(models, self.test, self.data.y_test)

    def validation_scores(self, models: Iterable[Model | None]) -> list[dict[str, float]]:
        """Accuracy and loss on the images held out, for each prior and each lane; empty ones if none are held out."""
        labels, there = self.data.y_validation, [model for model in models if model is not None]
        if labels is None:
            return [{} for model in there for _ in range(model.lanes or 1)]
        found = self.evaluate(there, self.validation, labels)
        counts, losses = (np.concatenate(parts) / len(labels) for parts in zip(*found, strict=True))
        names = ("validation_accuracy", "validation_loss")
        return [dict(zip(names, map(float, pair), strict=True)) for pair in zip(counts, losses, strict=True)]
