"""Writes CIFAR files in the official format: pickles opcode for opcode as Python 2 wrote them."""

import hashlib
import io
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from imlp.data import cifar
from imlp.data.cifar import Arrays, Layout

FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}  # inside the archive
ROWS = {"cifar10": 20, "cifar100": 200}  # images per file


def small(layout: Layout) -> Layout:
    """The same layout for the few images of `contents`."""
    made = replace(layout, sha256=None)
    return replace(made, files=checksums(python_files(made, contents(made))))


def checksums(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.md5(content).hexdigest() for name, content in files.items()}


def contents(layout: Layout, *, seed: int = 0) -> Arrays:
    """Random images, equally many of each class."""
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for part, names in (("", layout.train), ("_test", layout.test)):
        rows = len(names) * ROWS[layout.name]
        arrays[f"x{part}"] = rng.integers(0, 256, (rows, 3, 32, 32), dtype=np.uint8)
        for kind, (_, _, n) in layout.labels.items():
            arrays[f"y_{kind}{part}"] = rng.permutation(np.arange(rows) % n)
    for kind, (_, _, n) in layout.labels.items():
        arrays[f"classes_{kind}"] = np.array([f"{kind}_{i}" for i in range(n)])
    return arrays


def write(layout: Layout, arrays: Arrays, folder: Path) -> Path:
    """Write the set's official folder below `folder`."""
    folder = folder / FOLDERS[layout.name]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in python_files(layout, arrays).items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(layout: Layout, arrays: Arrays, folder: Path) -> Path:
    """Write the set's official tar.gz in `folder`."""
    files = python_files(layout, arrays)
    members = {f"{FOLDERS[layout.name]}/{name}": content for name, content in files.items()}
    return write_tar(folder / layout.archive, members)


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def known(layout: Layout, archive: Path, arrays: Arrays) -> Layout:
    """The layout with the checksums of this archive instead of the real one's."""
    content = archive.read_bytes()
    digest = cifar.dataset(layout, arrays).digest
    return replace(layout, size=len(content), md5=hashlib.md5(content).hexdigest(), sha256=digest)


def _batches(layout: Layout, arrays: Arrays) -> dict[str, tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Pixels and labels of each file."""
    batches = {}
    for part, names in (("", layout.train), ("_test", layout.test)):
        rows = len(arrays[f"x{part}"]) // len(names)
        for i, name in enumerate(names):
            at = slice(i * rows, (i + 1) * rows)
            labels = {kind: arrays[f"y_{kind}{part}"][at] for kind in layout.labels}
            batches[name] = arrays[f"x{part}"][at].reshape(rows, -1), labels
    return batches


def python_files(layout: Layout, arrays: Arrays) -> dict[str, bytes]:
    files = {}
    for name, (x, labels) in _batches(layout, arrays).items():
        train = name in layout.train
        number, of = (layout.train.index(name) + 1, len(layout.train)) if train else (1, 1)
        batch = {"batch_label": f"{'training' if train else 'testing'} batch {number} of {of}", "data": x}
        batch |= {layout.labels[kind][0]: y.tolist() for kind, y in labels.items()}
        batch["filenames"] = [f"{i}.png" for i in range(len(x))]
        files[name] = python2_pickle(batch)
    files[layout.meta] = python2_pickle(
        {key: arrays[f"classes_{kind}"].tolist() for kind, (_, key, _) in layout.labels.items()}
    )
    return files


def python2_pickle(value: object) -> bytes:
    """Protocol 2 as Python 2 wrote it, with its 8-bit strings, which Python 3 can read but not write."""
    return b"\x80\x02" + _opcodes(value) + b"."


def _opcodes(value: object) -> bytes:
    match value:
        case dict():
            return b"}(" + b"".join(_opcodes(key) + _opcodes(entry) for key, entry in value.items()) + b"u"
        case list():
            return b"](" + b"".join(map(_opcodes, value)) + b"e"
        case str():
            return b"T" + struct.pack("<i", len(value)) + value.encode("latin1")
        case int():
            return b"J" + struct.pack("<i", value)
        case np.ndarray():
            empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + b"K\x00\x85" + _opcodes("b") + b"\x87R"
            dtype = b"cnumpy\ndtype\n" + _opcodes("u1") + b"K\x00K\x01\x87R"
            dtype += b"(K\x03" + _opcodes("|") + b"NNN" + _opcodes(-1) + _opcodes(-1) + b"K\x00tb"
            shape = _opcodes(value.shape[0]) + _opcodes(value.shape[1]) + b"\x86"
            return empty + b"(K\x01" + shape + dtype + b"\x89" + _opcodes(value.tobytes().decode("latin1")) + b"tb"
    raise TypeError(type(value).__name__)
