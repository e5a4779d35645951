"""Accuracies read off other epochs than the last: the paper does not say after which one it measured."""

from collections.abc import Callable

import numpy as np

from imlp.study.scores import Arm, Score
from imlp.train.callbacks import Row
from imlp.train.config import Lane


def at_lowest_loss(arm: Arm, lane: Lane | None) -> Score | None:
    """Its accuracy after the epoch with the lowest loss, as early stopping would have it.

    The loss is that of the images held out, or, if there are none, that of the test images.
    """
    loss = "validation_loss" if arm.config.validation else "test_loss"

    def read(rows: list[Row]) -> float | None:
        known = all(loss in row for row in rows)
        return min(rows, key=lambda row: float(row[loss]))["test_accuracy"] if known else None

    return _read(arm, lane, read)


def over_the_last(arm: Arm, lane: Lane | None) -> Score | None:
    """The mean of its accuracies after each of the last five epochs, which depends less on the noise of one of them."""
    return _read(arm, lane, lambda rows: float(np.mean([row["test_accuracy"] for row in rows[-5:]])))


def at_best(arm: Arm, lane: Lane | None) -> Score | None:
    """Its highest accuracy after any epoch, which some code logs; it is chosen by the test images."""
    return _read(arm, lane, lambda rows: float(max(row["test_accuracy"] for row in rows)))


def _read(arm: Arm, lane: Lane | None, read: Callable[[list[Row]], float | None]) -> Score | None:
    """What `read` makes of the rows of each finished run: an accuracy from 0 to 1, or None."""
    by_seed = {}
    for run in arm.runs:
        rows = run.rows_of(lane)
        if run.result and len(rows) == run.config.epochs and (accuracy := read(rows)) is not None:
            by_seed[run.config.seed] = 100 * accuracy
    return Score(lane, by_seed) if by_seed else None
