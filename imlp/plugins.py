"""Objects that users name from outside the package: `FILE.py:NAME`, or `package.module:NAME` for an installed package.

Naming one runs its code, as `python FILE.py` would. Nothing else does: a run's folder names its network and says what
the text was, but that code is only run again if the user names it too (`named_before`). A file has to be complete in
itself, for its text alone is what belongs to a run and what travels to other machines (`received`). One text is run
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
from imlp.files import check_path, read_bytes, reason, shown

_texts: dict[str, str] = {}  # of files that are on another machine, by the place that names them
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
        return _digest(self.text)

    @property
    def in_file(self) -> bool:
        """Whether it is from a file, and not from a package that has to be installed."""
        return _is_file(self.place)

    def __reduce__(self) -> Any:
        """Another process finds the object by its text."""
        return received, (self.place, self.name, self.text)

    def call(self, **arguments: Any) -> Any:
        """What a function or class from outside returns; its errors are told with their line."""
        try:
            return self.value(**arguments)
        except (ImlpError, KeyboardInterrupt):
            raise
        except BaseException as error:
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            raise self.failure(f"{self.name}({given:.200})", error) from error

    def failure(self, what: str, error: BaseException) -> OutsideError:
        """An error in `what` it does, with the line of the file that it comes from."""
        file = getattr(sys.modules.get(getattr(self.value, "__module__", "")), "__file__", None)
        where = f"{shown(self.place)}{_line(error, file or self.place)}"
        return OutsideError(f"{where}: {what} raises {_in_a_line(error)}", "correct the file, or give other options")


def is_outside(reference: str) -> bool:
    """Whether a name is one of an object outside: those of the package have no colon."""
    return ":" in reference


def without_place(reference: str) -> str:
    """A name without the file, which may lie anywhere: its text is what counts."""
    return f"outside:{reference.rpartition(':')[2]}" if is_outside(reference) else reference


def imported(reference: str) -> Outside:
    """The object that `FILE.py:NAME` or `package.module:NAME` names."""
    place, _, name = reference.rpartition(":")
    if not place or not name.isidentifier():
        raise OutsideError(f"{shown(reference)!r} names no object", "write FILE.py:NAME or package.module:NAME")
    text = _read(place) if _is_file(place) else None
    try:
        module = import_module(place) if text is None else _run(text, place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file may raise SystemExit, GeneratorExit or its own
        raise _no_module(place, error) from error
    if not hasattr(module, name):
        names = [one for one in dir(module) if not one.startswith("_")]
        defined = [one for one in names if getattr(getattr(module, one), "__module__", None) == module.__name__]
        remedy = f"{did_you_mean(name, names)}it defines {shown(', '.join(defined) or 'nothing')}"
        raise OutsideError(f"{shown(place)} has no {name!r}", remedy)
    value = getattr(module, name)
    outside = Outside(place, name, value, _source(value) if text is None else text)
    _named[outside.digest, name] = outside
    return outside


def named_before(reference: str, digest: str, what: str = "network") -> Outside:
    """The object that `reference` was when its text had this digest, if the user has named it in this process.

    `what` it is says which option names it, and what its copy in a run's folder is called.
    """
    name = reference.rpartition(":")[2]
    if (digest, name) in _named:
        return _named[digest, name]
    for (_, other), outside in _named.items():
        if other == name:
            problem = f"{shown(outside.place)} is not the text that {shown(reference)} was when the run began"
            raise OutsideError(problem, f"name the file as it was then: a run's folder keeps a copy, {what}.py")
    raise OutsideError(
        f"{shown(reference)} is code from outside the package, which is only run if you name it",
        f"add --{what} {shown(reference)}, or the copy in the run's folder: {what}.py:{name}",
    )


def received(place: str, name: str, text: str) -> Outside:
    """The object that another process has named."""
    if (_digest(text), name) in _named:
        return _named[_digest(text), name]
    if _is_file(place):
        _texts[place] = text
    return imported(f"{place}:{name}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place


def _run(text: str, place: str) -> ModuleType:
    """The module that the text of a file makes."""
    name = f"imlp_outside_{_digest(text)[:16]}"
    if name not in sys.modules:
        module = ModuleType(name)
        module.__file__ = place
        sys.modules[name] = module  # dataclasses look for the module of a class there
        try:
            exec(compile(text, place, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _read(place: str) -> str:
    if place in _texts:
        return _texts[place]
    path = check_path(place)
    if not path.exists():
        beside = [str(other) for other in path.parent.glob("*.py")]
        remedy = f"{did_you_mean(str(path), beside)}name a Python file: FILE.py:NAME"
        raise OutsideError(f"there is no file {shown(path)}", remedy)
    try:
        return decode_source(read_bytes(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise OutsideError(f"cannot read {shown(path)}: {reason(error)}", "name a Python file in UTF-8") from error


def _no_module(place: str, error: BaseException) -> OutsideError:
    """Why a file or a package cannot be imported."""
    remedy = "correct the file; it is run when it is named"
    if isinstance(error, ModuleNotFoundError):
        if not _is_file(place) and f"{place}.".startswith(f"{error.name}."):
            remedy = f"install it, or name a file: {place.rpartition('.')[2]}.py:NAME"
            return OutsideError(f"there is no package or module {error.name}", remedy)
        remedy = "install what it imports; a file cannot import its neighbours, for it travels alone"
    return OutsideError(f"{shown(place)}{_line(error, place)}: {_in_a_line(error)}", remedy)


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
