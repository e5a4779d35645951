"""Where data sets are kept, and the one format in which we keep them: plain `.npz`, never a pickle."""

import os
import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from imlp.errors import DataError, FileError
from imlp.files import cache_folder, expanded, make_folder, open_regular, reason, shown, write_whole


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
