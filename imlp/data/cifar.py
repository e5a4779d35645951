"""CIFAR-10 and CIFAR-100 as their authors publish them for Python: a folder of pickles, or its tar.gz.

`cifar_pickle` reads them without running what is in them. Archives are read in memory: nothing in them is ever written
to a path of their choosing.
"""

import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from imlp.data.cifar_pickle import AGAIN, unpickle
from imlp.data.dataset import Dataset, ProgressCallback, silent
from imlp.errors import DataError
from imlp.files import open_regular, read_bytes, reason

PIXELS = 3 * 32 * 32
LARGEST_MEMBER = 2**28  # bytes; the largest file of either set takes 154 MB


@dataclass(frozen=True)
class Layout:
    """How one of the two sets is laid out, and what proves that it is the real one."""

    name: str
    archive: str  # at the official host
    size: int  # of the archive, in bytes
    md5: str  # of the archive
    sha256: str | None  # of the decoded arrays (`Dataset.digest`)
    folder: str  # inside the archive
    train: tuple[str, ...]  # its files
    test: tuple[str, ...]
    train_rows: int  # images in each training file
    test_rows: int
    meta: str  # the file with the names of the classes
    labels: Mapping[str, tuple[str, str, int]]  # by kind: entry of the labels, entry of their names, number of classes

    @property
    def files(self) -> tuple[str, ...]:
        return *self.train, *self.test, self.meta


CIFAR10 = Layout(
    name="cifar10",
    archive="cifar-10-python.tar.gz",
    size=170_498_071,
    md5="c58f30108f718f92721af3b95e74349a",
    sha256="e5b1e901390db1d53b76bd69ca47762af6253f4998c8e0639562108dee798648",
    folder="cifar-10-batches-py",
    train=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
    test=("test_batch",),
    train_rows=10_000,
    test_rows=10_000,
    meta="batches.meta",
    labels={"fine": ("labels", "label_names", 10)},
)
CIFAR100 = Layout(
    name="cifar100",
    archive="cifar-100-python.tar.gz",
    size=169_001_437,
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    sha256=None,
    folder="cifar-100-python",
    train=("train",),
    test=("test",),
    train_rows=50_000,
    test_rows=10_000,
    meta="meta",
    labels={
        "coarse": ("coarse_labels", "coarse_label_names", 20),
        "fine": ("fine_labels", "fine_label_names", 100),
    },
)
LAYOUTS = {layout.name: layout for layout in (CIFAR10, CIFAR100)}

Arrays = dict[str, np.ndarray]  # x, x_test; y_KIND, y_KIND_test, classes_KIND for each kind of label


def dataset(layout: Layout, arrays: Mapping[str, np.ndarray], labels: str = "fine") -> Dataset:
    """The set with one kind of its labels."""
    if labels not in layout.labels:
        raise DataError(f"{layout.name} has no {labels!r} labels", f"use {' or '.join(layout.labels)}")
    needed = ("x", f"y_{labels}", "x_test", f"y_{labels}_test", f"classes_{labels}")
    if missing := [name for name in needed if name not in arrays]:
        raise DataError(f"the cache of {layout.name} has no {', '.join(missing)}", AGAIN)
    x, y, x_test, y_test, classes = (arrays[name] for name in needed)
    name = layout.name if labels == "fine" else f"{layout.name} ({labels})"
    return Dataset(name, x, y, x_test, y_test, tuple(classes.tolist()))


def find(layout: Layout, root: Path) -> Path | None:
    """The first place under `root` that holds the set as it is published: a folder, or the archive."""
    places = [folder for folder in (root, root / layout.folder) if (folder / layout.train[0]).is_file()]
    archive = root / layout.archive
    return places[0] if places else archive if archive.is_file() else None


def read(path: Path, layout: Layout | None = None, *, progress: ProgressCallback = silent) -> tuple[Layout, Arrays]:
    """The set in a folder or an archive (`layout` None: whichever of the two it holds)."""
    layouts = [layout] if layout is not None else list(LAYOUTS.values())
    wanted = {file for known in layouts for file in known.files}
    if path.is_dir():
        files = {file.name: _read_file(file) for file in sorted(path.iterdir()) if file.name in wanted}
    else:
        files = read_tar(path, wanted, progress=progress)
    for known in layouts:
        if known.train[0] in files:
            return known, decode(known, files, path)
    expected = ", ".join(known.train[0] for known in layouts)
    raise DataError(f"{path} holds no CIFAR", f"it must contain one of {expected}")


def read_tar(path: Path, wanted: Iterable[str], *, progress: ProgressCallback = silent) -> dict[str, bytes]:
    """Those files of an archive whose names, without their folders, are wanted."""
    wanted, found = set(wanted), {}
    try:
        with open_regular(path) as raw, tarfile.open(fileobj=raw, mode="r:*") as tar:
            total = path.stat().st_size
            for member in tar:
                _check_member(path, member)
                name = PurePosixPath(member.name).name
                if member.isfile() and name in wanted:
                    if name in found:
                        raise DataError(f"{path} holds two files called {name}", AGAIN)
                    file = tar.extractfile(member)
                    found[name] = b"" if file is None else file.read()
                progress(f"reading {path.name}", raw.tell(), total)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path} is not a whole tar archive: {reason(error)}", AGAIN) from error
    return found


def _check_member(path: Path, member: tarfile.TarInfo) -> None:
    """Refuse what no archive of images contains; names are judged by the rules of every platform."""
    parts = member.name.replace("\\", "/").split("/")
    remedy = "do not unpack this archive; get it from a source that you trust"
    if member.name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise DataError(f"{path} has a member that leaves its folder: {member.name!r}", remedy)
    if not (member.isfile() or member.isdir()):
        raise DataError(f"{path} has a member that is a link or a device: {member.name!r}", remedy)
    if member.size > LARGEST_MEMBER:
        raise DataError(f"{path} has a member of {member.size:,} bytes: {member.name!r}", remedy)


def _read_file(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason(error)}", "make it readable") from error


def decode(layout: Layout, files: Mapping[str, bytes], source: Path) -> Arrays:
    """The arrays from the contents of the files; `source` is only for messages."""
    if missing := [name for name in layout.files if name not in files]:
        raise DataError(f"{source} has no {', '.join(missing)}: it is not a whole {layout.name}", AGAIN)
    arrays: Arrays = {}
    for part, names, rows in (("", layout.train, layout.train_rows), ("_test", layout.test, layout.test_rows)):
        batches = [_batch(layout, unpickle(files[name], source / name), name, rows, source / name) for name in names]
        arrays[f"x{part}"] = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
        for kind, (key, _, n_classes) in layout.labels.items():
            y = arrays[f"y_{kind}{part}"] = np.array([label for batch in batches for label in batch[key]], np.int64)
            counts = np.bincount(y, minlength=n_classes)
            if counts.min() != counts.max():  # a file given twice, or under another's name
                few, many = int(counts.argmin()), int(counts.argmax())
                problem = f"{source}: {counts[few]} images of class {few} but {counts[many]} of class {many}"
                raise DataError(f"{problem} in {', '.join(names)}: a file is not the one that its name says", AGAIN)
    where = source / layout.meta
    meta = unpickle(files[layout.meta], where)
    for kind, (_, key, n_classes) in layout.labels.items():
        classes = meta.get(key)
        if not isinstance(classes, list) or len(classes) != n_classes or not all(type(one) is str for one in classes):
            raise DataError(f"{where} does not name the {n_classes} classes", AGAIN)
        arrays[f"classes_{kind}"] = np.array(classes)
    return arrays


def _batch(layout: Layout, batch: dict[str, Any], name: str, rows: int, where: Path) -> dict[str, Any]:
    """A file's contents, if they are what its name says."""
    title = str(batch.get("batch_label", ""))
    expected = f"training batch {layout.train.index(name) + 1} of" if name in layout.train else "testing batch"
    if title and not title.startswith(expected):
        raise DataError(f"{where} says that it is {title!r}, not {expected!r}: files were swapped", AGAIN)
    x = batch.get("data")
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.shape != (rows, PIXELS):
        given = f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise DataError(f"{where}: the images are {given}, not uint8 ({rows}, {PIXELS})", AGAIN)
    for kind, (key, _, n_classes) in layout.labels.items():
        y = batch.get(key)
        if not isinstance(y, list) or len(y) != rows or not all(type(label) is int for label in y):
            raise DataError(f"{where}: {key!r} is not a list of {rows} whole numbers", AGAIN)
        if wrong := [i for i, label in enumerate(y) if not 0 <= label < n_classes]:
            problem = f"{where}: image {wrong[0]} has the {kind} label {y[wrong[0]]}"
            raise DataError(f"{problem}, beyond 0 to {n_classes - 1}", AGAIN)
    return batch
