"""Files are written whole or not at all: a temporary file beside the target, fsync, then rename."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from imlp.errors import FileError


@contextmanager
def write_whole(path: str | Path) -> Iterator[BinaryIO]:
    """Open `path` for writing so that readers see the old file or the whole new one, never a part.

    >>> with write_whole("/tmp/example.bin") as file:
    ...     _ = file.write(b"whole")
    """
    with whole_file(path) as partial, open(partial, "wb") as file:
        yield file


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A name beside `path` to write to; what is there at the end takes the place of `path`, or nothing does."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    except OSError as error:
        remedy = "choose a folder that exists and that you may write to, on a disk with free space"
        raise FileError(f"cannot write {path}: {error.strerror or error}", remedy) from error
    finally:
        _remove(partial)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they are there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "choose a folder that you may write to (for data: --root, or the variable IMLP_DATA)"
        raise FileError(f"cannot make the folder {folder}: {error.strerror or error}", remedy) from error


def _remove(path: Path) -> None:
    """Delete a leftover; where even that is refused, the error under way says more than a second one."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; not every file system lets a folder be opened for that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
