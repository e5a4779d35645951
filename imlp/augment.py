"""Random crops and flips as numbers, drawn by NumPy so that both backends cut the same pictures.

Every augmentation is a box of the picture, drawn back to the picture's size, and perhaps mirrored:

pad       the picture's own size, shifted by up to 4 pixels each way. What lies outside is black: 0 *before* the
          standardisation, as torchvision's `RandomCrop(32, padding=4)` pads uint8 images.
pad-mean  the same, but what lies outside has the mean colour: 0 *after* the standardisation, as the same crop pads
          images that are standardised already.
resized   a random area (8% to 100% unless given) and aspect (3/4 to 4/3), as torchvision's `RandomResizedCrop`. Drawn
          back bilinearly in floating point, without antialiasing, and without rounding to whole levels in between.
none      the whole picture, never mirrored.

With `mixup` each picture is then mixed with another one of the batch, and their labels alike (Zhang et al. 2018):
`x <- s x + (1 - s) x[partner]`, with one share `s` per batch, drawn from `Beta(mixup, mixup)`.
"""

from dataclasses import dataclass
from math import log

import numpy as np

from imlp.errors import DataError, known

Range = tuple[float, float]

AUGMENTATIONS = ("pad", "pad-mean", "resized", "none")
PADDING = 4
AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)  # width over height
TRIES = 10  # at a box that fits, as torchvision's; then the largest central one


@dataclass(frozen=True, eq=False)
class Draw:
    """One box and one flip per image; `top` and `left` may be negative. All `(n,)`, int64 and bool."""

    kind: str
    top: np.ndarray
    left: np.ndarray
    height: np.ndarray
    width: np.ndarray
    flip: np.ndarray
    partner: np.ndarray | None = None  # which picture of the batch each is mixed with,
    share: float = 1.0  # and how much of the result is its own


def draw(
    kind: str,
    n: int,
    image: tuple[int, int, int],
    *,
    rng: np.random.Generator,
    area: Range = AREA,
    aspect: Range = ASPECT,
    mixup: float = 0.0,
) -> Draw:
    """The augmentation of `n` images of size `(c, h, w)`; `area` and `aspect` are the ranges of `resized`.

    What `mixup` needs is drawn last.

    >>> draw("none", 2, (3, 32, 32), rng=np.random.default_rng(0)).height
    array([32, 32])
    """
    known(kind, AUGMENTATIONS, "augmentation", DataError)
    _, h, w = image
    top = left = np.zeros(n, dtype=np.int64)
    height, width, flip = np.full(n, h), np.full(n, w), np.zeros(n, dtype=bool)
    if kind in ("pad", "pad-mean"):
        top, left = rng.integers(-PADDING, PADDING + 1, size=(2, n))
    elif kind == "resized":
        height, width = _boxes(n, h, w, area, aspect, rng)
        top, left = rng.integers(0, h - height + 1), rng.integers(0, w - width + 1)
    if kind != "none":
        flip = rng.random(n) < 0.5
    partner, share = (rng.permutation(n), rng.beta(mixup, mixup)) if mixup else (None, 1.0)
    return Draw(kind, top, left, height, width, flip, partner, share)


def targets(y: np.ndarray, classes: int, draw: Draw, *, smoothing: float = 0.0) -> np.ndarray:
    """How much of each class each image counts as, `(n, classes)`, once it is mixed and its label smoothed.

    >>> whole = draw("none", 2, (3, 32, 32), rng=np.random.default_rng(0))
    >>> targets(np.array([1, 0]), 2, whole, smoothing=0.5)
    array([[0.25, 0.75],
           [0.75, 0.25]])
    """
    q = np.eye(classes)[y]
    q = q if draw.partner is None else draw.share * q + (1 - draw.share) * q[draw.partner]
    return (1 - smoothing) * q + smoothing / classes


def _boxes(
    n: int, h: int, w: int, areas: Range, aspects: Range, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Heights and widths: for each image the first of TRIES that fits into it."""
    area = h * w * rng.uniform(*areas, size=(TRIES, n))
    aspect = np.exp(rng.uniform(log(aspects[0]), log(aspects[1]), size=(TRIES, n)))
    heights, widths = np.rint(np.sqrt(area / aspect)), np.rint(np.sqrt(area * aspect))
    fits = (heights >= 1) & (heights <= h) & (widths >= 1) & (widths <= w)
    first = fits.argmax(axis=0), np.arange(n)
    largest_aspect = min(max(w / h, aspects[0]), aspects[1])
    fallback = min(h, round(w / largest_aspect)), min(w, round(h * largest_aspect))
    drawn = zip((heights[first], widths[first]), fallback, strict=True)
    height, width = (np.where(fits.any(axis=0), size, otherwise).astype(np.int64) for size, otherwise in drawn)
    return height, width
