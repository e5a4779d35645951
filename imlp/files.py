"""Files are written completely or not at all, and files from elsewhere are read with care.

Writing: a temporary file beside the target, fsync, then rename. Symbolic links are followed; a target that exists and
is not a regular file is refused. Reading: whatever is wrong with a file or its name becomes one of our errors, in one
line.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from imlp.errors import FileError

LONGEST = 120  # characters of a path; messages shorten longer ones
DIGITS = 300  # of a whole number in a file; a longer one does not fit into a float
NOT_REGULAR = "it is not a regular file but a device, a pipe or the like"
DEEPEST = 100  # levels of tables and lists in a TOML file


@contextmanager
def write_whole(path: str | Path) -> Iterator[BinaryIO]:
    """Open `path` for writing so that readers see either the old file or the complete new one, never a part.

    >>> with write_whole("/tmp/example.bin") as file:
    ...     _ = file.write(b"whole")
    """
    with whole_file(path) as partial, open(partial, "wb") as file:
        yield file


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to. At the end it replaces `path`; after an error `path` is unchanged.

    The file gets the mode that the umask allows for new files, whatever writes it.
    """
    partial = None
    try:
        target = _target(Path(path))
        partial = target.with_name(f".{target.name}.{os.getpid()}.part")
        partial.unlink(missing_ok=True)  # an earlier process may have left it
        partial.touch(exist_ok=False)
        mode = stat.S_IMODE(partial.stat().st_mode)
        yield partial
        partial.chmod(mode)  # some writers create the file themselves, readable by this user alone
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
        _sync_folder(target.parent)
    except OSError as error:
        remedy = "choose a folder that exists and that you may write to, on a disk with free space"
        raise FileError(f"cannot write {shown(path)}: {reason(error)}", remedy) from error
    finally:
        if partial is not None:
            with suppress(OSError):  # the first error says more than a second one
                partial.unlink(missing_ok=True)


def write_json(path: str | Path, content: Any) -> None:
    """A JSON file to be read by people too, written whole or not at all."""
    with write_whole(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless they exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        remedy = "choose a folder that you may write to (for data: --root, or the variable IMLP_DATA)"
        raise FileError(f"cannot make the folder {shown(folder)}: {reason(error)}", remedy) from error


def check_path(path: str | Path) -> Path:
    """The path, unless the system refuses to look at it: too long, a loop of links, a folder without access.

    >>> check_path("a" * 5000)
    Traceback (most recent call last):
    imlp.errors.FileError: cannot look at aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...: File name too long; name another path
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        raise FileError(f"cannot look at {shown(path)}: {reason(error)}", "name another path") from error
    return Path(path)


def expanded(path: str | Path) -> Path:
    """The path with `~` replaced by the home folder."""
    try:
        return check_path(Path(path).expanduser())
    except RuntimeError as error:
        raise FileError(f"cannot look at {shown(path)}: {reason(error)}", "write the folder's name in full") from error


def cache_folder() -> Path:
    """This user's cache of files that can be recreated. The folder need not exist."""
    given = os.environ.get("XDG_CACHE_HOME")
    return check_path((Path(given) if given else expanded("~/.cache")) / "imlp")


@contextmanager
def open_regular(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file to read it. A pipe or a device is refused: it could keep us waiting forever, or have no end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(NOT_REGULAR)
        yield file


def read_bytes(path: str | Path) -> bytes:
    """What a regular file holds."""
    with open_regular(path) as file:
        return file.read()


def read_text(path: Path, remedy: str = "name a text file that you may read") -> str:
    """A text file in UTF-8."""
    try:
        return read_bytes(path).decode()
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {shown(path)}: {reason(error)}", remedy) from error


def parse_json(text: str | bytes) -> Any:
    """Parse JSON from anywhere: whatever is wrong with it becomes a `ValueError` with a message of one line.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    return _parsed(json.loads, text)


def parse_toml(text: bytes) -> dict[str, Any]:
    """Parse TOML from anywhere, in the same way.

    >>> parse_toml(b"lr = " + b"9" * 400)
    Traceback (most recent call last):
    ValueError: it has a number of more than 300 digits
    """
    import tomllib  # few commands read TOML, and all of them import this file

    def loads(decoded: str) -> dict[str, Any]:
        joined = re.sub(r"[ \t]+", " ", decoded).replace(" .", ".").replace(". ", ".")
        if any(word.count(".") > DEEPEST for word in re.split(r"[\s=\[\]{},]+", joined)):
            raise RecursionError  # tomllib would need memory that grows with the square of a key's parts
        return tomllib.loads(decoded)

    return _parsed(loads, text)


def _parsed(loads: Callable[[str], Any], text: str | bytes) -> Any:
    try:
        decoded = text if isinstance(text, str) else text.decode()
        value = _checked(loads(decoded))
        if "\\ud" in decoded.lower():  # perhaps half of a surrogate pair
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise ValueError(f"it is not UTF-8: {error.reason}") from None
    except ValueError:
        if re.search(r"\d{4000}", decoded):  # Python itself refuses to read it, and says what a programmer could do
            raise ValueError(f"it has a number of more than {DIGITS} digits") from None
        raise
    return value


def reason(error: Exception) -> str:
    """Why a file cannot be read or written, in one line. Advice to load pickles anyway is not passed on."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    if text.startswith("Header info length"):
        return "its header is far too long"
    if "pickle" in text or "weights_only" in text:
        return "it holds Python objects as well as numbers, and loading those could run any program"
    return "its name has a zero byte" if text.startswith("embedded null") else text


def is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8; names of files need not be."""
    return not re.search("[\ud800-\udfff]", name)


def shown(path: str | Path) -> str:
    """A path as messages show it: shortened if it is very long."""
    text = str(path)
    return text if len(text) <= LONGEST else f"{text[:30]}..."


def _target(path: Path) -> Path:
    """The file to write, after following links. Only a regular file may be replaced."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except ValueError as error:
        raise OSError(reason(error)) from error
    if not stat.S_ISREG(mode):
        raise OSError("it is a folder" if stat.S_ISDIR(mode) else NOT_REGULAR)
    return Path(os.path.realpath(path))


def _checked(value: Any, depth: int = 0) -> Any:
    """The value, unless it is nested too deeply or has a whole number that does not fit into a float."""
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(value, int) and abs(value) >= 10**DIGITS:
        raise ValueError(f"it has a number of more than {DIGITS} digits")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _checked(inner, depth + 1)
    return value


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; not every file system lets a folder be opened for that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_new(
    *paths: Path | None, force: bool = False, remedy: str = "name another file, or replace it with --force"
) -> None:
    """Refuse to replace a file, unless it is `force`d, or a page that was made by imlp."""
    for path in filter(None, () if force else paths):
        if path.is_file() and not (path.suffix == ".html" and b'name="generator" content="imlp"' in path.read_bytes()):
            raise FileError(f"{shown(path)} already exists", remedy)
