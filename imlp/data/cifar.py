"""CIFAR-10 and CIFAR-100 as their authors publish them for Python: a tar.gz of pickles.

A file is read if it has the published MD5, and then by an unpickler that knows arrays, text, numbers, lists and dicts
only: no program in a pickle is ever run. Archives are read in memory: nothing in them is ever written to a path of
their choosing.
"""

import hashlib
import io
import pickle
import tarfile
import warnings
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from imlp.data.dataset import Dataset, ProgressCallback, silent
from imlp.errors import DataError, in_a_line
from imlp.files import open_regular, reason

TRAIN_SIZE, TEST_SIZE = 50_000, 10_000  # images of either set
LARGEST_MEMBER = 2**28  # bytes; the largest file of either set takes 154 MB
AGAIN = "fetch it again: data fetch"


@dataclass(frozen=True)
class Layout:
    """How one of the two sets is laid out, and what proves that it is the real one."""

    name: str
    archive: str  # at the official host
    size: int  # of the archive, in bytes
    md5: str  # of the archive
    sha256: str | None  # of the decoded arrays (`Dataset.digest`)
    train: tuple[str, ...]  # its files
    test: tuple[str, ...]
    meta: str  # the file with the names of the classes
    files: Mapping[str, str]  # all of these with their MD5
    labels: Mapping[str, tuple[str, str, int]]  # by kind: entry of the labels, entry of their names, number of classes


CIFAR10 = Layout(
    name="cifar10",
    archive="cifar-10-python.tar.gz",
    size=170_498_071,
    md5="c58f30108f718f92721af3b95e74349a",
    sha256="e5b1e901390db1d53b76bd69ca47762af6253f4998c8e0639562108dee798648",
    train=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
    test=("test_batch",),
    meta="batches.meta",
    files={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    labels={"fine": ("labels", "label_names", 10)},
)
CIFAR100 = Layout(
    name="cifar100",
    archive="cifar-100-python.tar.gz",
    size=169_001_437,
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    sha256=None,
    train=("train",),
    test=("test",),
    meta="meta",
    files={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
    labels={
        "coarse": ("coarse_labels", "coarse_label_names", 20),
        "fine": ("fine_labels", "fine_label_names", 100),
    },
)
LAYOUTS = {layout.name: layout for layout in (CIFAR10, CIFAR100)}

Arrays = dict[str, np.ndarray]  # x, x_test; y_KIND, y_KIND_test, classes_KIND for each kind of label


def dataset(layout: Layout, arrays: Mapping[str, np.ndarray], labels: str = "fine") -> Dataset:
    """The set with one kind of its labels."""
    needed = ("x", f"y_{labels}", "x_test", f"y_{labels}_test", f"classes_{labels}")
    if missing := [name for name in needed if name not in arrays]:
        raise DataError(f"the cache of {layout.name} has no {', '.join(missing)}", AGAIN)
    x, y, x_test, y_test, classes = (arrays[name] for name in needed)
    name = layout.name if labels == "fine" else f"{layout.name} ({labels})"
    return Dataset(name, x, y, x_test, y_test, tuple(classes.tolist()))


def read(path: Path, layout: Layout, *, progress: ProgressCallback = silent) -> Arrays:
    """The set in its archive."""
    return decode(layout, read_tar(path, layout.files, progress=progress), path)


def read_tar(path: Path, wanted: Iterable[str], *, progress: ProgressCallback = silent) -> dict[str, bytes]:
    """Those files of an archive whose names, without their folders, are wanted."""
    wanted, files = set(wanted), {}
    try:
        with open_regular(path) as raw, tarfile.open(fileobj=raw, mode="r:*") as tar:
            total = path.stat().st_size
            for member in tar:
                _check_member(path, member)
                name = PurePosixPath(member.name).name
                if member.isfile() and name in wanted:
                    file = tar.extractfile(member)
                    files[name] = b"" if file is None else file.read()
                progress(f"reading {path.name}", raw.tell(), total)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path} is not a whole tar archive: {reason(error)}", AGAIN) from error
    return files


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


def decode(layout: Layout, files: Mapping[str, bytes], source: Path) -> Arrays:
    """The arrays from the contents of the files; `source` is only for messages."""
    if missing := [name for name in layout.files if name not in files]:
        raise DataError(f"{source} has no {', '.join(missing)}: it is not a whole {layout.name}", AGAIN)
    for name, published in layout.files.items():
        if (md5 := hashlib.md5(files[name], usedforsecurity=False).hexdigest()) != published:
            problem = f"{source / name} is damaged, or not what its name says: it has the MD5 {md5}"
            raise DataError(f"{problem} instead of {published}", AGAIN)
    arrays: Arrays = {}
    for part, names in (("", layout.train), ("_test", layout.test)):
        batches = [unpickle(files[name], source / name) for name in names]
        arrays[f"x{part}"] = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
        for kind, (key, _, _) in layout.labels.items():
            arrays[f"y_{kind}{part}"] = np.array([label for batch in batches for label in batch[key]], np.int64)
    meta = unpickle(files[layout.meta], source / layout.meta)
    for kind, (_, key, _) in layout.labels.items():
        arrays[f"classes_{kind}"] = np.array(meta[key])
    return arrays


def unpickle(content: bytes, where: Path) -> Any:
    """What a CIFAR pickle holds; one that asks for anything but arrays is refused by name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)  # of types as Python 2 wrote them
            return _Unpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can fail in any way; none of them is worth more than its reason
        raise DataError(f"{where} is refused or damaged: {in_a_line(error)}", AGAIN) from error


class _Unpickler(pickle.Unpickler):
    """Admits what a CIFAR batch is made of; any other name in a pickle is a program that somebody wants run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch of images needs")
        return ADMITTED[module, name]


ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
