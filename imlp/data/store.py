"""Where data sets are kept, and their format, which those of your own may have too: plain `.npz`, never a pickle."""

import os
import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from imlp.data.dataset import Dataset
from imlp.errors import DataError, FileError
from imlp.files import cache_folder, expanded, make_folder, open_regular, reason, shown, write_whole

NEEDED = ("x", "y", "x_test", "y_test")
MOST_CLASSES = 100_000  # beyond this a label is a mistake, and a head of that size would fill the memory


def data_root(root: str | Path | None = None) -> Path:
    """`root` if given, otherwise the environment's IMLP_DATA, otherwise the user's cache folder."""
    given = root if root is not None else os.environ.get("IMLP_DATA") or cache_folder()
    return expanded(given)


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as one uncompressed `.npz`, whole or not at all."""
    make_folder(path.parent)
    with write_whole(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an `.npz`; one that is cut short, changed on disk or pickled is refused."""
    remedy = "delete it and make it again, as numpy.savez writes it"
    try:
        with open_regular(path) as raw:
            if raw.read(6) == np.lib.format.MAGIC_PREFIX:
                raise DataError(f"{path} holds a single array: it is an .npy", remedy)
            with zipfile.ZipFile(raw) as archive:
                arrays: dict[str, np.ndarray] = {}
                for info in (info for info in archive.infolist() if info.filename.endswith(".npy")):
                    with archive.open(info) as member:
                        check_header(member, info.file_size)
                    with archive.open(info) as member:
                        array = np.lib.format.read_array(member, allow_pickle=False)
                    arrays[info.filename.removesuffix(".npy")] = array
                return arrays
    except OSError as error:
        raise FileError(f"cannot read {shown(path)}: {reason(error)}", "name a file that you may read") from error
    except (ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        raise DataError(f"{path} is damaged, or not a plain .npz: {reason(error)}", remedy) from error


def check_header(stream: Any, size: int) -> None:
    """Refuse an array in NumPy's format whose header claims more than the `size` bytes of the file or member."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("a pickle")
    if (claimed := prod(shape) * dtype.itemsize) > (there := size - stream.tell()):
        raise ValueError(f"its header claims {claimed:,} bytes, but {there:,} are there")


def dataset(path: Path) -> Dataset:
    """Images as uint8 `(N, c, h, w)`, `(N, h, w, c)` or `(N, h, w)`; labels as whole numbers from 0."""
    arrays = read(path)
    if missing := [name for name in NEEDED if name not in arrays]:
        raise DataError(f"{path} has no {', '.join(missing)}", f"save {', '.join(NEEDED)} with numpy.savez")
    x, x_test = (_channels_first(arrays[name]) for name in ("x", "x_test"))
    y, y_test = (_labels(path, name, arrays[name]) for name in ("y", "y_test"))
    return Dataset(path.stem, x, y, x_test, y_test, _classes(path, arrays, np.union1d(y, y_test)))


def _channels_first(x: np.ndarray) -> np.ndarray:
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
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
