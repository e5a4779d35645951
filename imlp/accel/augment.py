"""Batches: gather, crop, flip, standardise, as a few operations on the whole batch, on the device of the images.

The offsets come from NumPy (`imlp.augment`) and travel in one copy that the host does not wait for.
A shift (`pad`, `pad-mean`) is one gather from the padded images. A scaled box (`resized`) is `A I B^T`: the matrix of
bilinear interpolation along one axis is a row of tents, `A[i, k] = max(0, 1 - |top + source(i) - k|)`.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from imlp.accel.verbs import check_tensor, place
from imlp.augment import PADDING, Draw


def batch(
    x: torch.Tensor, index: Any, draw: Draw | None, mean: Any, std: Any, *, fill: Any = None, dtype: Any = None
) -> torch.Tensor:
    """Rows `index` of the images `x (N, c, h, w)`, uint8, as a standardised batch `(B, c h w)` of `dtype` (float32).

    `draw` says how each is cut and whether it is mirrored; None leaves them as they are, for evaluation. `fill` is the
    colour `(c,)`, black 0 and white 1, that `pad-mean` puts outside: `mean` unless given.

    >>> batch(torch.zeros((5, 1, 2, 2), dtype=torch.uint8), [3], None, [0.5], [0.5])
    tensor([[-1., -1., -1., -1.]])
    """
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype or torch.float32
    check_tensor(x, "images")
    images = x.index_select(0, place(index, device=x.device))  # (B, c, h, w); many times faster than x[index]
    if draw is not None and draw.kind in ("pad", "resized"):
        images = _cut(images, draw, dtype)
    # (x / 255 - mean) / std = x scale + shift, with the small arrays prepared in float64
    mean, std = (np.asarray(value, dtype=np.float64) for value in (mean, std))
    margin = np.zeros_like(mean) if fill is None else (np.asarray(fill, dtype=np.float64) - mean) / std
    numbers = place(np.stack([-mean / std, 1 / (255 * std), margin]), device=x.device).to(dtype)
    shift, scale, outside = numbers[..., None, None]  # (c, 1, 1) each
    images = images.to(dtype).mul_(scale).add_(shift)  # in place: `images` is a copy of our own
    if draw is not None and draw.kind == "pad-mean":
        images = _cut(images if fill is None else images.sub_(outside), draw, dtype)
        images = images if fill is None else images.add_(outside)
    if draw is not None and draw.partner is not None:
        images = draw.share * images + (1 - draw.share) * images[place(draw.partner, device=x.device)]
    return images.flatten(1)


def _cut(images: torch.Tensor, draw: Draw, dtype: torch.dtype) -> torch.Tensor:
    """Each image `(c, h, w)` of the batch as its box says: scaled, which gives `dtype`, or only shifted."""
    (b, c, h, w), device = images.shape, images.device
    numbers = np.stack([draw.top, draw.left, draw.height, draw.width, draw.flip])
    top, left, height, width, flip = place(numbers, device=device)[..., None]  # (B, 1)
    row, column = (torch.arange(n, device=device) for n in (h, w))
    column = torch.where(flip.bool(), w - 1 - column, column)  # (B, w)
    if draw.kind == "resized":
        rows, columns = _tents(row, top, height), _tents(column, left, width)  # (B, h, h), (B, w, w)
        return rows.to(dtype)[:, None] @ images.to(dtype) @ columns.to(dtype)[:, None].mT
    padded = F.pad(images, (PADDING,) * 4)
    rows, columns = row + top + PADDING, column + left + PADDING  # (B, h), (B, w)
    at = rows[:, :, None] * (w + 2 * PADDING) + columns[:, None, :]  # (B, h, w)
    return padded.flatten(2).gather(2, at.reshape(b, 1, h * w).expand(b, c, h * w)).reshape(b, c, h, w)


def _tents(position: torch.Tensor, start: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Weights `(B, n, n)` of the pixels for each output position `(n,)` or `(B, n)` of boxes along one axis.

    In float64 where the device has it, whatever the batch is in: a place that is off by one bit of float32 shows in the
    colours.
    """
    n = position.shape[-1]
    wide = torch.float32 if position.device.type == "mps" else torch.float64
    source = (position.to(wide) + 0.5) * length / n - 0.5  # (B, n)
    source = torch.minimum(source.clamp(min=0), length - 1) + start
    pixel = torch.arange(n, device=position.device)
    return (1 - (source[..., None] - pixel).abs()).clamp(min=0)
