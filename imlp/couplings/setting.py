"""Settings as fields of a dataclass: each with its help text, and checked when it comes from a file or an option."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field
from math import inf
from typing import Any, TypeVar, get_args, get_origin

from imlp.couplings.schedule import Alpha
from imlp.errors import ConfigError, ImlpError, known
from imlp.files import DIGITS

T = TypeVar("T")
LANE, TRAINING, DATA, MACHINE = "Lanes", "Training", "Data and network", "Machine"  # under which help shows them


def setting(default: Any, help: str, panel: str = LANE, *, changes_result: bool = True) -> Any:
    """A field with its documentation; `changes_result` says whether it belongs to the run's identity."""
    return field(default=default, metadata={"help": help, "panel": panel, "changes_result": changes_result})


def from_mapping(cls: type, values: Any) -> Any:
    """A `Config` or `Lane` from a mapping; an unknown key is refused with the nearest known one."""
    if isinstance(values, cls):
        return values
    if not isinstance(values, Mapping):
        raise ConfigError(f"{cls.__name__.lower()} is {values!r}", "give a table of settings")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for name in values:
        try:
            known(name, fields, "setting")
        except ImlpError as error:
            raise ConfigError(error.problem, error.remedy) from None
    return cls(**{name: _typed(fields[name], value) for name, value in values.items()})


def _typed(f: "dataclasses.Field[Any]", value: Any) -> Any:
    """A value of the field's type: whole numbers may stand for floats, and numbers for alphas."""
    expected = f.type
    if expected is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if f.name.startswith("alpha") and isinstance(value, Mapping):
        return Alpha(value)
    if get_origin(expected) is not None and type(None) in get_args(expected):
        if value is None:
            return None
        expected = get_args(expected)[0]
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 10**DIGITS else inf
    simple = expected if expected in (int, float, str, bool) else None
    if simple is not None and (not isinstance(value, simple) or (simple is int and isinstance(value, bool))):
        raise ConfigError(f"{f.name} is {value!r}", f"give a value of type {simple.__name__}")
    return value


def with_settings_of(*classes: type) -> Callable[[type[T]], type[T]]:
    """Give a class that is to become a dataclass the settings of others as well, but for those that it has itself."""

    def add(cls: type[T]) -> type[T]:
        for f in (f for other in classes for f in dataclasses.fields(other)):
            if f.name not in cls.__annotations__:
                cls.__annotations__[f.name] = f.type
                setattr(cls, f.name, field(default=f.default, metadata=f.metadata))
        return cls

    return add


def shown_default(f: "dataclasses.Field[Any]") -> str:
    """The default of a setting as a help text shows it; nothing for one that is empty."""
    if f.default is None or f.default == ():
        return ""
    return ("yes" if f.default else "no") if isinstance(f.default, bool) else f"{f.default}"
