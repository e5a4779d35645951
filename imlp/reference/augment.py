"""Batches: gather, crop, flip, standardise, one image at a time.

A box of a picture is drawn back to the picture's size by bilinear interpolation, pixel centres at halves:

    source(i) = clip((i + 1/2) n_box / n - 1/2, 0, n_box - 1)        for output row (or column) i of n
    out = (1 - f) I[floor(source)] + f I[floor(source) + 1],  f = source - floor(source)

A box of the picture's own size (`pad`) has f = 0 everywhere: a shift. Outside the picture is 0, which is black before
the standardisation, and the mean colour after it (`pad-mean`).
"""

from typing import Any

import numpy as np

from imlp import checks
from imlp.augment import Draw


def batch(
    x: Any, index: Any, draw: Draw | None, mean: Any, std: Any, *, fill: Any = None, dtype: Any = None
) -> np.ndarray:
    """Rows `index` of the images `x (N, c, h, w)`, uint8, as a standardised batch `(B, c h w)` in float64.

    `draw` says how each is cut and whether it is mirrored; None leaves them as they are, for evaluation. `fill` is the
    colour `(c,)`, black 0 and white 1, that `pad-mean` puts outside: `mean` unless given.

    >>> batch(np.full((5, 1, 2, 2), 255, np.uint8), [3], None, [0.5], [0.5])
    array([[1., 1., 1., 1.]])
    """
    images = checks.numbers(np.asarray(x)[np.asarray(index)], "images")  # (B, c, h, w)
    mean, std = (np.asarray(value, dtype=np.float64)[:, None, None] for value in (mean, std))
    if draw is None:
        images = (images / 255 - mean) / std
    elif draw.kind == "pad-mean":
        outside = 0.0 if fill is None else (np.asarray(fill, dtype=np.float64)[:, None, None] - mean) / std
        images = _cut_all((images / 255 - mean) / std - outside, draw) + outside
    else:
        images = (_cut_all(images, draw) / 255 - mean) / std
    if draw is not None and draw.partner is not None:
        images = draw.share * images + (1 - draw.share) * images[draw.partner]
    return images.reshape(len(images), -1)


def _cut_all(images: np.ndarray, draw: Draw) -> np.ndarray:
    boxes = zip(images, draw.top, draw.left, draw.height, draw.width, draw.flip, strict=True)
    return np.stack([_cut(*box) for box in boxes])


def _cut(image: np.ndarray, top: int, left: int, height: int, width: int, flip: bool) -> np.ndarray:
    """One image `(c, h, w)`: its box, drawn back to its size, mirrored if `flip`."""
    _, h, w = image.shape
    border = (max(0, -top, top + height - h), max(0, -left, left + width - w))
    padded = np.pad(image, ((0, 0), *((side, side) for side in border)))
    box = padded[:, border[0] + top :, border[1] + left :][:, :height, :width]
    out = _resize(_resize(box, h, axis=1), w, axis=2)
    return out[:, :, ::-1] if flip else out


def _resize(box: np.ndarray, n: int, *, axis: int) -> np.ndarray:
    n_box = box.shape[axis]
    source = np.clip((np.arange(n) + 0.5) * n_box / n - 0.5, 0, n_box - 1)
    low = np.floor(source).astype(np.int64)
    high = np.minimum(low + 1, n_box - 1)
    shape = [1, 1, 1]
    shape[axis] = n
    f = (source - low).reshape(shape)
    return (1 - f) * box.take(low, axis) + f * box.take(high, axis)
