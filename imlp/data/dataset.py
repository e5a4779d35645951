"""A data set in memory: images as uint8 `(N, c, h, w)`, labels as int64, checked when made."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Any, TypeAlias

import numpy as np

from imlp.errors import DataError
from imlp.files import is_text

Image: TypeAlias = tuple[int, int, int]  # channels, height, width
# What is being done, how much is done, of how much.
ProgressCallback: TypeAlias = Callable[[str, int, int | None], None]

STATISTICS_BLOCK = 1000  # images squared at a time: whole sets would need four times their memory


def silent(what: str, done: int, total: int | None) -> None:
    """A progress callback that shows nothing."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images with their labels, and the statistics that standardise them.

    >>> x, y = np.zeros((4, 3, 32, 32), np.uint8), np.arange(4)
    >>> two = Dataset("tiny", x, y % 2, x, y % 2, ("cat", "dog"))
    >>> two.image, two.n_classes, two.mean
    ((3, 32, 32), 2, array([0., 0., 0.]))
    """

    name: str
    x: np.ndarray  # (N, c, h, w)
    y: np.ndarray  # (N,)
    x_test: np.ndarray  # (N_test, c, h, w)
    y_test: np.ndarray  # (N_test,)
    classes: tuple[str, ...]
    x_validation: np.ndarray | None = None  # images held out of training, if any
    y_validation: np.ndarray | None = None

    def __post_init__(self) -> None:
        for part in ("", "_test", "_validation"):
            x, y = getattr(self, f"x{part}"), getattr(self, f"y{part}")
            if x is not None and y is not None:
                self._check(x, y, f"x{part}, y{part}")
        for name in (self.name, *self.classes):
            if not isinstance(name, str) or not is_text(name):
                problem = f"{self.name!a} has a class or a name that is not UTF-8: {name!a}"
                raise DataError(problem, "rename it")
        if self.x.shape[1:] != self.x_test.shape[1:]:
            train, test = ("x".join(map(str, x.shape[1:])) for x in (self.x, self.x_test))
            raise DataError(f"{self.name}: training images are {train}, test images {test}", "give both the same size")

    def _check(self, x: np.ndarray, y: np.ndarray, part: str) -> None:
        if x.ndim != 4 or x.dtype != np.uint8 or not x.flags.c_contiguous or 0 in x.shape:
            problem = f"{self.name}: the images of {part} are {x.dtype} of shape {x.shape}"
            raise DataError(problem, "give at least one, as C-contiguous uint8 (N, channels, height, width)")
        if y.shape != x.shape[:1] or y.dtype != np.int64:
            problem = f"{self.name}: {len(x)} images but labels that are {y.dtype} of shape {y.shape} in {part}"
            raise DataError(problem, f"give int64 labels of shape ({len(x)},)")
        if y.min() < 0 or y.max() >= len(self.classes):
            wrong = int(np.flatnonzero((y < 0) | (y >= len(self.classes)))[0])
            problem = f"{self.name}: label {y[wrong]} of image {wrong} in {part} names no class"
            raise DataError(problem, f"labels go from 0 to {len(self.classes) - 1}")

    @property
    def image(self) -> Image:
        _, c, h, w = self.x.shape
        return c, h, w

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def mean(self) -> np.ndarray:
        """Mean of each channel of the training images, black 0 and white 1; `(c,)` in float64."""
        return self._statistics[0]

    @property
    def std(self) -> np.ndarray:
        """Standard deviation likewise; 1 for a channel that never changes, so that it can be divided by."""
        return self._statistics[1]

    def statistics(self, inputs: str) -> tuple[np.ndarray, np.ndarray]:
        """What is subtracted from the pixels and what they are divided by, `(c,)` each.

        `inputs` is "standardised", "unit" for pixels from 0 to 1, or "signed" for pixels from -1 to 1.
        """
        if inputs == "standardised":
            return self._statistics
        half = 0.5 * np.ones(self.image[0])
        return (half, half) if inputs == "signed" else (0 * half, 2 * half)

    @cached_property
    def _statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """From exact integer sums, so that no order of addition can change a digit."""
        sums, squares = np.zeros((2, self.x.shape[1]), dtype=np.int64)
        for start in range(0, len(self.x), STATISTICS_BLOCK):
            block = self.x[start : start + STATISTICS_BLOCK].astype(np.int32)
            sums += block.sum(axis=(0, 2, 3), dtype=np.int64)
            squares += np.square(block, out=block).sum(axis=(0, 2, 3), dtype=np.int64)
        n = self.x[:, 0].size
        pairs = zip(sums.tolist(), squares.tolist(), strict=True)
        std = [sqrt(n * square - total * total) / (255 * n) or 1.0 for total, square in pairs]
        return sums / (255 * n), np.array(std)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the arrays: the same contents from any source and on any platform give the same."""
        sha = hashlib.sha256()
        for name in ("x", "y", "x_test", "y_test", "x_validation", "y_validation"):
            array = getattr(self, name)
            if array is None:
                continue
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()

    def take(self, train_size: int | None, test_size: int | None, *, seed: int) -> "Dataset":
        """This many training and test images (None: all), chosen by `seed`, in their original order."""
        kept: dict[str, Any] = {}
        for part, size, stream in (("", train_size, 0), ("_test", test_size, 1)):
            x, y = getattr(self, f"x{part}"), getattr(self, f"y{part}")
            if size is None or size == len(x):
                continue
            if not 1 <= size <= len(x):
                which = "--test-size" if part else "--train-size"
                raise DataError(f"{which} is {size}", f"{self.name} has {len(x)} such images; give 1 to {len(x)}")
            rows = np.sort(np.random.default_rng([seed, stream]).permutation(len(x))[:size])
            kept |= {f"x{part}": x[rows], f"y{part}": y[rows]}
        return replace(self, **kept) if kept else self

    def validate(self, size: int, *, seed: int) -> "Dataset":
        """The same with `size` training images, drawn by `seed`, held out for validation; the test images stay.

        >>> x, y = np.zeros((40, 3, 32, 32), np.uint8), np.arange(40) % 2
        >>> held = Dataset("tiny", x, y, x[:1], y[:1], ("cat", "dog")).validate(5, seed=0)
        >>> len(held.x), len(held.x_validation), len(held.x_test)
        (35, 5, 1)
        """
        if not 1 <= size < len(self.x):
            n = len(self.x)
            raise DataError(f"--validation is {size}", f"{self.name} has {n} training images; give 1 to {n - 1}")
        held = np.zeros(len(self.x), dtype=bool)
        held[np.random.default_rng([seed, 3]).permutation(len(self.x))[:size]] = True
        x, y = self.x[~held], self.y[~held]
        return replace(self, x=x, y=y, x_validation=self.x[held], y_validation=self.y[held])

    def hold_out(self, share: float, *, seed: int) -> "Dataset":
        """The training images alone: `share` of each class, drawn by `seed`, takes the place of the test images.

        >>> x, y = np.zeros((40, 3, 32, 32), np.uint8), np.arange(40) // 20
        >>> held = Dataset("tiny", x, y, x[:1], y[:1], ("cat", "dog")).hold_out(0.1, seed=0)
        >>> len(held.x), held.y_test.tolist()
        (36, [0, 0, 1, 1])
        """
        if not 0 < share < 1:
            raise DataError(f"--validation is {share:g}", "give a share of the training images above 0 and below 1")
        rng, held = np.random.default_rng([seed, 2]), np.zeros(len(self.y), dtype=bool)
        for label in range(self.n_classes):
            rows = rng.permutation(np.flatnonzero(self.y == label))
            held[rows[: round(share * len(rows))]] = True
        if held.all() or not held.any():
            problem = f"--validation {share:g} of {len(held)} training images of {self.n_classes} classes"
            raise DataError(f"{problem} is {'all' if held.any() else 'none'} of them", "give another share")
        return Dataset(self.name, self.x[~held], self.y[~held], self.x[held], self.y[held], self.classes)
