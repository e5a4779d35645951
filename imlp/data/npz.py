"""A data set of your own as one `.npz`: `x`, `y`, `x_test`, `y_test`, and `classes` if you like."""

from pathlib import Path

import numpy as np

from imlp.data import store
from imlp.data.dataset import Dataset
from imlp.errors import DataError

NEEDED = ("x", "y", "x_test", "y_test")
MOST_CLASSES = 100_000  # beyond this a label is a mistake, and a head of that size would fill the memory


def read(path: Path) -> Dataset:
    """Images as uint8 `(N, c, h, w)`, `(N, h, w, c)` or `(N, h, w)`; labels as whole numbers from 0."""
    arrays = store.read(path)
    if missing := [name for name in NEEDED if name not in arrays]:
        raise DataError(f"{path} has no {', '.join(missing)}", f"save {', '.join(NEEDED)} with numpy.savez")
    x, x_test = (_images(path, name, arrays[name]) for name in ("x", "x_test"))
    y, y_test = (_labels(path, name, arrays[name]) for name in ("y", "y_test"))
    return Dataset(path.stem, x, y, x_test, y_test, _classes(path, arrays, np.union1d(y, y_test)))


def _images(path: Path, name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        problem = f"{path}: {name} is {x.dtype} of shape {x.shape}"
        raise DataError(problem, "save images as uint8, 0 to 255, (N, channels, height, width)")
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x)


def _labels(path: Path, name: str, y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "iu" or y.ndim != 1:
        problem = f"{path}: {name} is {y.dtype} of shape {y.shape}"
        raise DataError(problem, "save labels as whole numbers of shape (N,)")
    return y.astype(np.int64)


def _classes(path: Path, arrays: dict[str, np.ndarray], labels: np.ndarray) -> tuple[str, ...]:
    """Their names as saved, otherwise their numbers."""
    if "classes" not in arrays:
        largest = int(labels.max(initial=0))
        if largest >= MOST_CLASSES:
            raise DataError(f"{path} has a label {largest}", f"number the classes from 0; {MOST_CLASSES:,} is the most")
        if 2 * len(labels) < largest + 1:
            problem = f"{path} has a label {largest:,}, but images of {len(labels):,} classes only"
            raise DataError(problem, "number the classes from 0, or save the names of all of them as classes")
        return tuple(map(str, range(largest + 1)))
    classes = arrays["classes"]
    if classes.dtype.kind != "U" or classes.ndim != 1:
        raise DataError(f"{path}: classes is {classes.dtype} of shape {classes.shape}", "save a list of names")
    return tuple(classes.tolist())
