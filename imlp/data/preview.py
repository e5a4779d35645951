"""A picture of a data set: some images of each class, as they are or as they are augmented."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from imlp.augment import draw
from imlp.data.dataset import Dataset
from imlp.look import plot
from imlp.reference.augment import batch

COLUMNS, ROWS = 10, 6
CELL = 0.92  # inches of the picture's width for one image
WHITE = 1.0


def save(data: Dataset, path: Path, *, augment: str = "none", seed: int = 0) -> None:
    plot.save(figure(data, augment=augment, seed=seed), path)


def figure(data: Dataset, *, augment: str = "none", seed: int = 0) -> Figure:
    """Up to ten classes: one per column, six images of each. More classes: one image of each of the first hundred.

    Augmented: the images of the first row, and five draws of each below it.
    """
    if augment != "none":
        first = _of_class(data, range(min(COLUMNS, data.n_classes)), 1)[0]
        rows = np.tile(first, (ROWS, 1))
        labels = ["original", *(f"draw {i}" for i in range(1, ROWS))]
    elif data.n_classes <= COLUMNS:
        rows = _of_class(data, range(data.n_classes), ROWS)
        labels = [""] * len(rows)
    else:
        shown = min(data.n_classes, COLUMNS * COLUMNS)
        flat = _of_class(data, range(shown), 1)[0]
        rows = np.concatenate([flat, np.full(-shown % COLUMNS, -1)]).reshape(-1, COLUMNS)
        labels = [""] * len(rows)
    images = _images(data, rows.ravel(), augment, seed).reshape(*rows.shape, *data.image)
    images[rows < 0] = WHITE
    every = data.n_classes > COLUMNS and augment == "none"
    return _grid(images, rows, data, labels, f"{data.name}, augmentation: {augment}", title_every=every)


def _of_class(data: Dataset, classes: range, n: int) -> np.ndarray:
    """The first `n` training images of each class, `(n, classes)`; -1 where it has fewer."""
    chosen = np.full((n, len(classes)), -1)
    for column, label in enumerate(classes):
        found = np.flatnonzero(data.y == label)[:n]
        chosen[: len(found), column] = found
    return chosen


def _images(data: Dataset, index: np.ndarray, augment: str, seed: int) -> np.ndarray:
    """Images from black 0 to white 1, the first row of an augmented picture left as it is."""
    mean, one = data.mean, np.ones(data.image[0])
    back = np.repeat(mean, data.image[1] * data.image[2])  # so that the mean colour is 0 where the image is cut
    plain = (batch(data.x, index, None, mean, one) + back).clip(0, 1)
    if augment == "none":
        return plain
    drawn = draw(augment, len(index), data.image, rng=np.random.default_rng(seed))
    augmented = (batch(data.x, index, drawn, mean, one) + back).clip(0, 1)
    augmented[: len(index) // ROWS] = plain[: len(index) // ROWS]
    return augmented


def _grid(
    images: np.ndarray, rows: np.ndarray, data: Dataset, labels: list[str], title: str, *, title_every: bool
) -> Figure:
    """All images as one canvas with names above the columns, or above every image."""
    n_rows, n_columns, _, h, w = images.shape
    gap = max(2, h // 16)
    above = round(0.34 * h) if title_every else gap
    canvas = np.full((n_rows * (h + above) + gap, n_columns * (w + gap) + gap, images.shape[2]), WHITE)
    margin = 0.7 if any(labels) else 0.1
    scale = CELL / (w + gap)  # inches per pixel
    inner_height, inner_width = canvas.shape[0] * scale, canvas.shape[1] * scale
    width, height = margin + inner_width + 0.1, inner_height + 0.55
    result = Figure(figsize=(width, height))
    axes = result.add_axes((margin / width, 0.05 / height, inner_width / width, inner_height / height))
    for row in range(n_rows):
        y = row * (h + above) + above
        axes.text(-gap, y + h / 2, labels[row], ha="right", va="center", fontsize=8)
        for column in range(n_columns):
            x = column * (w + gap) + gap
            canvas[y : y + h, x : x + w] = images[row, column].transpose(1, 2, 0)
            if rows[row, column] >= 0 and (title_every or row == 0):
                name = data.classes[data.y[rows[row, column]]].replace("_", " ")
                axes.text(x + w / 2, y - 1.5, name, ha="center", va="bottom", fontsize=6.5 if title_every else 9)
    axes.imshow(canvas.squeeze(), cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    axes.set_axis_off()
    result.suptitle(title, fontsize=11, y=1 - 0.12 / height, va="top")
    return result
