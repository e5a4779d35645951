"""A picture of a data set: some images of each class, as they are or as they are augmented."""

import numpy as np
from matplotlib.figure import Figure

from imlp.augment import draw
from imlp.data.dataset import Dataset
from imlp.reference.augment import batch

COLUMNS, ROWS = 10, 6
CELL = 0.92  # inches per image
NONE = -1  # where there is no image


def figure(data: Dataset, *, augment: str = "none", seed: int = 0) -> Figure:
    """Up to ten classes: one per column, six images of each. More classes: one image of each of the first hundred.

    Augmented: the images of the first row, and five draws of each below it.
    """
    few = data.n_classes <= COLUMNS
    if augment != "none":
        index = np.tile(_first(data, COLUMNS, 1), (ROWS, 1))
    else:
        index = _first(data, COLUMNS, ROWS) if few else _first(data, COLUMNS * COLUMNS, 1).reshape(-1, COLUMNS)
    title = f"{data.name}, augmentation: {augment}" + ("" if augment == "none" else " (first row: as they are)")
    result = Figure(figsize=(CELL * index.shape[1], 1.15 * CELL * len(index) + 0.5))
    result.suptitle(title, fontsize=11)
    grid = result.subplots(*index.shape, squeeze=False, gridspec_kw={"wspace": 0.06, "left": 0.01, "right": 0.99})
    for axes, image, i in zip(grid.flat, _images(data, index, augment, seed), index.flat, strict=True):
        axes.set_axis_off()
        if i == NONE:
            continue
        axes.imshow(image.transpose(1, 2, 0).squeeze(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        if axes in grid[0] or (augment == "none" and not few):
            axes.set_title(data.classes[data.y[i]].replace("_", " "), fontsize=9 if few else 6.5, pad=2)
    return result


def _first(data: Dataset, n_classes: int, n: int) -> np.ndarray:
    """The first `n` training images of up to `n_classes` classes, `(n, classes)`; a full row of them if there are more
    classes than one row holds."""
    used = min(n_classes, data.n_classes)
    index = np.full((n, used + (-used % COLUMNS if used > COLUMNS else 0)), NONE)
    for label in range(used):
        rows = np.flatnonzero(data.y == label)[:n]
        index[: len(rows), label] = rows
    return index


def _images(data: Dataset, index: np.ndarray, augment: str, seed: int) -> np.ndarray:
    """Images from black 0 to white 1, the first row of an augmented picture left as it is."""
    mean, one = data.mean, np.ones(data.image[0])
    back = np.repeat(mean, data.image[1] * data.image[2])  # so that the mean colour is 0 where the image is cut
    flat = index.ravel()
    images = (batch(data.x, flat, None, mean, one) + back).clip(0, 1)
    if augment != "none":
        drawn = draw(augment, len(flat), data.image, rng=np.random.default_rng(seed))
        below = slice(index.shape[1], None)
        images[below] = (batch(data.x, flat, drawn, mean, one) + back).clip(0, 1)[below]
    return images.reshape(-1, *data.image)
