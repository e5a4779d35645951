"""Where data sets are kept, and the one format in which we keep them: plain `.npz`, never a pickle."""

import os
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from imlp.errors import DataError, FileError
from imlp.files import make_folder, write_whole


def data_root(root: str | Path | None = None) -> Path:
    """`root`, else the environment's IMLP_DATA, else the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if given := os.environ.get("IMLP_DATA"):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "imlp"


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as one uncompressed `.npz`, whole or not at all."""
    make_folder(path.parent)
    with write_whole(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read(path: Path, only: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an `.npz`, or some of them; one that is cut short, changed on disk or pickled is refused."""
    remedy = "delete it and make it again, as numpy.savez writes it"
    try:
        with open(path, "rb") as raw:
            file = np.load(raw, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise DataError(f"{path} holds a single array: it is an .npy", remedy)
            return {name: file[name] for name in file.files if only is None or name in only}
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}", "name a file that you may read") from error
    except (ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged, or not a plain .npz: {error}", remedy) from error
