"""CIFAR-10 and CIFAR-100 as their authors publish them: the python and the binary version, in a folder or a tar.gz.

The python version consists of pickles, which `cifar_pickle` reads without running what is in them. Archives
are read in memory: nothing in them is ever written to a path of their choosing.
"""

import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from imlp.data.cifar_pickle import AGAIN, cause, unpickle
from imlp.data.dataset import Dataset, ProgressCallback, silent
from imlp.errors import DataError
from imlp.files import open_regular, read_bytes

PIXELS = 3 * 32 * 32
LARGEST_MEMBER = 2**28  # bytes; the largest file of either set takes 154 MB


@dataclass(frozen=True)
class Layout:
    """How one of the two sets is laid out, and what proves that it is the real one."""

    name: str
    archive: str  # the python version's archive at the official host
    size: int  # of the archive, in bytes
    md5: str  # of the archive
    sha256: str | None  # of the decoded arrays (`Dataset.digest`)
    folders: tuple[str, ...]  # inside the archives: python version, binary version
    train: tuple[str, ...]  # files of the python version; those of the binary version end in .bin
    test: tuple[str, ...]
    train_rows: int  # images in each training file
    test_rows: int
    meta: str  # the pickle with the classes' names
    names: Mapping[str, tuple[str, str]]  # by kind of label: the names' entry in that pickle, and the binary's file
    keys: Mapping[str, str]  # the pickles' entries with the labels, by kind, in the order of the binary version
    n_classes: Mapping[str, int]

    @property
    def python_files(self) -> tuple[str, ...]:
        return *self.train, *self.test, self.meta

    @property
    def binary_files(self) -> tuple[str, ...]:
        return *(f"{file}.bin" for file in (*self.train, *self.test)), *(file for _, file in self.names.values())

    @property
    def firsts(self) -> tuple[str, str]:
        """The file by which each version is known."""
        return self.train[0], f"{self.train[0]}.bin"

    @property
    def archives(self) -> tuple[str, str]:
        return self.archive, self.archive.replace("python", "binary")


CIFAR10 = Layout(
    name="cifar10",
    archive="cifar-10-python.tar.gz",
    size=170_498_071,
    md5="c58f30108f718f92721af3b95e74349a",
    sha256="e5b1e901390db1d53b76bd69ca47762af6253f4998c8e0639562108dee798648",
    folders=("cifar-10-batches-py", "cifar-10-batches-bin"),
    train=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
    test=("test_batch",),
    train_rows=10_000,
    test_rows=10_000,
    meta="batches.meta",
    names={"fine": ("label_names", "batches.meta.txt")},
    keys={"fine": "labels"},
    n_classes={"fine": 10},
)
CIFAR100 = Layout(
    name="cifar100",
    archive="cifar-100-python.tar.gz",
    size=169_001_437,
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    sha256=None,
    folders=("cifar-100-python", "cifar-100-binary"),
    train=("train",),
    test=("test",),
    train_rows=50_000,
    test_rows=10_000,
    meta="meta",
    names={
        "coarse": ("coarse_label_names", "coarse_label_names.txt"),
        "fine": ("fine_label_names", "fine_label_names.txt"),
    },
    keys={"coarse": "coarse_labels", "fine": "fine_labels"},
    n_classes={"coarse": 20, "fine": 100},
)
LAYOUTS = {layout.name: layout for layout in (CIFAR10, CIFAR100)}

Arrays = dict[str, np.ndarray]  # x, x_test; y_KIND, y_KIND_test, classes_KIND for each kind of label


def dataset(layout: Layout, arrays: Mapping[str, np.ndarray], labels: str = "fine") -> Dataset:
    """The set with one kind of its labels."""
    if labels not in layout.keys:
        raise DataError(f"{layout.name} has no {labels!r} labels", f"use {' or '.join(sorted(layout.keys))}")
    needed = ("x", f"y_{labels}", "x_test", f"y_{labels}_test", f"classes_{labels}")
    if missing := [name for name in needed if name not in arrays]:
        raise DataError(f"the cache of {layout.name} has no {', '.join(missing)}", AGAIN)
    x, y, x_test, y_test, classes = (arrays[name] for name in needed)
    name = layout.name if labels == "fine" else f"{layout.name} ({labels})"
    return Dataset(name, x, y, x_test, y_test, tuple(classes.tolist()))


def find(layout: Layout, root: Path) -> Path | None:
    """The first place under `root` that holds the set in an official form: a folder, or an archive."""
    for folder in (root, *(root / name for name in layout.folders)):
        if any((folder / file).is_file() for file in layout.firsts):
            return folder
    return next((root / archive for archive in layout.archives if (root / archive).is_file()), None)


def read(path: Path, layout: Layout | None = None, *, progress: ProgressCallback = silent) -> tuple[Layout, Arrays]:
    """The set in a folder or an archive, python or binary version (`layout` None: whichever of the two it holds)."""
    layouts = [layout] if layout is not None else list(LAYOUTS.values())
    wanted = {file for known in layouts for file in (*known.python_files, *known.binary_files)}
    if path.is_dir():
        files = {file.name: _read_file(file) for file in sorted(path.iterdir()) if file.name in wanted}
    else:
        files = read_tar(path, wanted, progress=progress)
    for known in layouts:
        if any(name in files for name in known.firsts):
            return known, decode(known, files, path)
    expected = ", ".join(name for known in layouts for name in known.firsts)
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
        raise DataError(f"{path} is not a whole tar archive: {cause(error)}", AGAIN) from error
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
        raise DataError(f"cannot read {path}: {cause(error)}", "make it readable") from error


def decode(layout: Layout, files: Mapping[str, bytes], source: Path) -> Arrays:
    """The arrays from the contents of the files; `source` is only for messages."""
    binary = layout.train[0] not in files and f"{layout.train[0]}.bin" in files
    needed = layout.binary_files if binary else layout.python_files
    if missing := [name for name in needed if name not in files]:
        raise DataError(f"{source} has no {', '.join(missing)}: it is not a whole {layout.name}", AGAIN)
    read_part = _binary if binary else _python
    arrays: Arrays = {}
    for part, names, rows in (("", layout.train, layout.train_rows), ("_test", layout.test, layout.test_rows)):
        pieces = [read_part(layout, files, name, rows, source) for name in names]
        arrays[f"x{part}"] = np.concatenate([x for x, _ in pieces]).reshape(-1, 3, 32, 32)
        for kind in layout.keys:
            y = np.concatenate([labels[kind] for _, labels in pieces])
            _check_balance(layout, kind, y, names, source)
            arrays[f"y_{kind}{part}"] = y
    for kind in layout.keys:
        arrays[f"classes_{kind}"] = np.array(_class_names(layout, files, kind, binary, source))
    return arrays


Piece = tuple[np.ndarray, dict[str, np.ndarray]]  # pixels (rows, 3072), labels by kind (rows,)


def _python(layout: Layout, files: Mapping[str, bytes], name: str, rows: int, source: Path) -> Piece:
    where = source / name
    batch = unpickle(files[name], where)
    said = str(batch.get("batch_label", ""))
    number = (layout.train.index(name) if name in layout.train else 0) + 1
    expected = f"training batch {number} of" if name in layout.train else "testing batch"
    if said and not said.startswith(expected):
        raise DataError(f"{where} says that it is {said!r}, not {expected!r}: files were swapped", AGAIN)
    x = batch.get("data")
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.shape != (rows, PIXELS):
        given = f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise DataError(f"{where}: the images are {given}, not uint8 ({rows}, {PIXELS})", AGAIN)
    labels = {}
    for kind, key in layout.keys.items():
        y = batch.get(key)
        if not isinstance(y, list) or len(y) != rows or not all(type(label) is int for label in y):
            raise DataError(f"{where}: {key!r} is not a list of {rows} whole numbers", AGAIN)
        labels[kind] = _labels(layout, kind, np.array(y, dtype=np.int64), where)
    return x, labels


def _binary(layout: Layout, files: Mapping[str, bytes], name: str, rows: int, source: Path) -> Piece:
    where, content = source / f"{name}.bin", files[f"{name}.bin"]
    record = len(layout.keys) + PIXELS
    if len(content) != rows * record:
        expected = f"{rows} records of {record} make {rows * record:,}"
        raise DataError(f"{where} has {len(content):,} bytes; {expected}", AGAIN)
    table = np.frombuffer(content, dtype=np.uint8).reshape(rows, record)
    columns = enumerate(layout.keys)
    labels = {kind: _labels(layout, kind, table[:, column].astype(np.int64), where) for column, kind in columns}
    return table[:, len(layout.keys) :], labels


def _labels(layout: Layout, kind: str, y: np.ndarray, where: Path) -> np.ndarray:
    wrong = np.flatnonzero((y < 0) | (y >= layout.n_classes[kind]))
    if wrong.size:
        last = layout.n_classes[kind] - 1
        raise DataError(f"{where}: image {wrong[0]} has the {kind} label {y[wrong[0]]}, beyond 0 to {last}", AGAIN)
    return y


def _check_balance(layout: Layout, kind: str, y: np.ndarray, names: tuple[str, ...], source: Path) -> None:
    """Every class has as many images as any other; a file given twice, or under another's name, breaks that."""
    counts = np.bincount(y, minlength=layout.n_classes[kind])
    if counts.min() != counts.max():
        few, many = int(counts.argmin()), int(counts.argmax())
        problem = f"{source}: {counts[few]} images of class {few} but {counts[many]} of class {many}"
        raise DataError(f"{problem} in {', '.join(names)}: a file is not the one that its name says", AGAIN)


def _class_names(layout: Layout, files: Mapping[str, bytes], kind: str, binary: bool, source: Path) -> list[str]:
    key, file = layout.names[kind]
    where = source / (file if binary else layout.meta)
    names: Any = files[file].decode("latin1").split() if binary else unpickle(files[layout.meta], where).get(key)
    if (
        not isinstance(names, list)
        or len(names) != layout.n_classes[kind]
        or not all(isinstance(name, str) for name in names)
    ):
        raise DataError(f"{where} does not name the {layout.n_classes[kind]} classes", AGAIN)
    return names
