"""Objects that users name from outside the package: `FILE.py:NAME`, or `package.module:NAME` for an installed package.

Naming one runs its code, as `python FILE.py` would. Nothing else does: a run's folder names its network and says what
the text was, but that code is only run again if the user names it too (`recalled`). A file has to be complete in
itself, for its text alone is what belongs to a run and what travels to other machines (`remember`). One text is run
once per process, wherever it lies, so that its classes stay the same ones.

>>> imported("fractions:Fraction").value(1, 2)
Fraction(1, 2)
"""

import hashlib
import inspect
import sys
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

from imlp.errors import ImlpError, OutsideError, did_you_mean
from imlp.files import check_path, reason, shown

_sent: dict[str, str] = {}  # texts of files that are on another machine, by the place that names them
_named: "dict[tuple[str, str], Outside]" = {}  # what has been named in this process, by digest and name


@dataclass(frozen=True)
class Outside:
    """The object, with the text of the file that defines it ("" where there is none: a compiled module)."""

    place: str  # FILE.py or package.module
    name: str
    value: Any = field(compare=False)
    text: str = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the text, 64 hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def in_file(self) -> bool:
        """Whether it is from a file, and not from a package that has to be installed."""
        return _is_file(self.place)

    @property
    def sent(self) -> tuple[str, str, str]:
        """What `revived` needs in another process."""
        return self.place, self.name, self.text


def revived(place: str, name: str, text: str) -> Outside:
    """The object that a process names which has sent what `Outside.sent` says."""
    there = _named.get((hashlib.sha256(text.encode()).hexdigest(), name))
    if there is not None:
        return there
    if _is_file(place):
        remember(place, text)
    return imported(f"{place}:{name}")


def is_outside(reference: str) -> bool:
    """Whether a name is one of an object outside: those of the package have no colon.

    >>> is_outside("mine.py:ring"), is_outside("cnn")
    (True, False)
    """
    return ":" in reference


def without_place(reference: str) -> str:
    """A name without the file, which may lie anywhere: its text is what counts.

    >>> without_place("mine.py:ring"), without_place("cnn")
    ('outside:ring', 'cnn')
    """
    return f"outside:{reference.rpartition(':')[2]}" if is_outside(reference) else reference


def imported(reference: str) -> Outside:
    """The object that `FILE.py:NAME` or `package.module:NAME` names."""
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise OutsideError(f"{shown(reference)!r} names no object", "write FILE.py:NAME or package.module:NAME")
    module, text = _from_file(place) if _is_file(place) else _from_package(place)
    names = [one for one in dir(module) if not one.startswith("_")]
    if not hasattr(module, name):
        own = [one for one in names if getattr(getattr(module, one), "__module__", None) == module.__name__]
        remedy = f"{did_you_mean(name, names)}it defines {shown(', '.join(own) or 'nothing')}"
        raise OutsideError(f"{shown(place)} has no {name!r}", remedy)
    value = getattr(module, name)
    found = Outside(place, name, value, text if _is_file(place) else _source(value))
    _named[found.digest, name] = found
    return found


def recalled(reference: str, digest: str, what: str = "network") -> Outside:
    """The object that `reference` was when its text had this digest, if the user has named it in this process.

    `what` it is says which option names it, and what its copy in a run's folder is called.
    """
    name = reference.rpartition(":")[2]
    if (digest, name) in _named:
        return _named[digest, name]
    other = next((found for (_, own), found in _named.items() if own == name), None)
    if other is not None:
        problem = f"{shown(other.place)} is not the text that {shown(reference)} was when the run began"
        raise OutsideError(problem, f"name the text of that time: a run's folder keeps a copy, {what}.py")
    raise OutsideError(
        f"{shown(reference)} is code from outside the package, which is only run if you name it",
        f"add --{what} {shown(reference)}, or the copy in the run's folder: {what}.py:{name}",
    )


def called(found: Outside, **arguments: Any) -> Any:
    """What a function or class from outside returns; an error of its own is told with its line."""
    try:
        return found.value(**arguments)
    except (ImlpError, KeyboardInterrupt):
        raise
    except BaseException as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise explained(found, f"{found.name}({given:.200})", error) from error


def explained(found: Outside, what: str, error: BaseException) -> OutsideError:
    """An error of code from outside the package, with the line of the file that it comes from."""
    file = getattr(sys.modules.get(getattr(found.value, "__module__", "")), "__file__", None)
    where = f"{shown(found.place)}{_line(error, file or found.place)}"
    return OutsideError(f"{where}: {what} raises {_in_a_line(error)}", "correct the file, or give other options")


def remember(place: str, text: str) -> None:
    """From now on `place` (FILE.py) stands for this text, not for a file of this machine."""
    _sent[place] = text


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place


def _from_file(place: str) -> tuple[ModuleType, str]:
    text = _sent[place] if place in _sent else _read(place)
    name = f"imlp_outside_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        module = ModuleType(name)
        module.__file__ = place
        sys.modules[name] = module  # dataclasses look for the module of a class there
        try:
            exec(compile(text, place, "exec"), module.__dict__)
        except BaseException as error:  # a file may raise SystemExit, GeneratorExit or its own
            del sys.modules[name]
            if isinstance(error, KeyboardInterrupt):
                raise
            raise OutsideError(f"{shown(place)}{_line(error, place)}: {_in_a_line(error)}", _remedy(error)) from error
    return sys.modules[name], text


def _read(place: str) -> str:
    path = check_path(place)
    if not path.is_file():
        beside = [str(path.with_name(other.name)) for other in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise OutsideError(
            f"there is no file {shown(path)}", f"{did_you_mean(str(path), beside)}name a Python file: FILE.py:NAME"
        )
    try:
        return decode_source(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise OutsideError(f"cannot read {shown(path)}: {reason(error)}", "name a Python file in UTF-8") from error


def _from_package(place: str) -> tuple[ModuleType, str]:
    try:
        return import_module(place), ""
    except ModuleNotFoundError as error:
        if error.name is not None and f"{place}.".startswith(f"{error.name}."):
            remedy = f"install it, or name a file: {Path(place.replace('.', '/')).name}.py:NAME"
            raise OutsideError(f"there is no package or module {error.name}", remedy) from error
        raise OutsideError(f"{place} cannot be imported: {_in_a_line(error)}", _remedy(error)) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise OutsideError(f"{place} cannot be imported: {_in_a_line(error)}", "name another module") from error


def _source(value: Any) -> str:
    """The text of the file that defines an object of a package, which need not be the module that was named."""
    try:
        file = inspect.getsourcefile(value)
        return "" if file is None else decode_source(Path(file).read_bytes())
    except (TypeError, OSError, SyntaxError, ValueError):
        return ""


def _line(error: BaseException, place: str) -> str:
    """Where in the file an error came from."""
    if isinstance(error, SyntaxError) and error.filename == place:
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
    return f", line {lines[-1]}" if lines else ""


def _in_a_line(error: BaseException) -> str:
    text = (error.msg if isinstance(error, SyntaxError) else str(error)).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _remedy(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "install what it imports; a file cannot import its neighbours, for it travels alone"
    return "correct the file; it is run when it is named"
