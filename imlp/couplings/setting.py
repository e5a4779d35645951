"""Settings as fields of a dataclass: each with its help text, and checked when it comes from a file or an option."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from math import inf
from typing import Any, TypeVar, get_args

from imlp.couplings.schedule import Alpha
from imlp.errors import ConfigError, known
from imlp.files import DIGITS

T = TypeVar("T")
LANE, TRAINING, DATA, MACHINE = "Lanes", "Training", "Data and network", "Machine"  # under which help shows them


def setting(default: Any, help: str, panel: str = LANE, *, changes_result: bool = True) -> Any:
    """A field with its documentation; `changes_result` says whether it belongs to the run's identity."""
    return field(default=default, metadata={"help": help, "panel": panel, "changes_result": changes_result})


def deciding(settings: Any) -> dict[str, Any]:
    """The settings that determine a result."""
    return {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings) if f.metadata["changes_result"]}


of_data, of_training, of_machine = (partial(setting, panel=panel) for panel in (DATA, TRAINING, MACHINE))


def from_mapping(cls: type[T], values: Any) -> T:
    """A `Config` or `Lane` from a mapping; an unknown key is refused with the nearest known one."""
    if isinstance(values, cls):
        return values
    if not isinstance(values, Mapping):
        raise ConfigError(f"{cls.__name__.lower()} is {values!r}", "give a table of settings")
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in values:
        known(name, fields, "setting", ConfigError)
    return cls(**{name: _typed(fields[name], value) for name, value in values.items()})


def options_of(name: str, options: Any) -> tuple[tuple[str, Any], ...]:
    """Options of a network or a coupling in the order of their names, with tuples for lists; what TOML can say.

    >>> options_of("options", {"width": 8, "strides": [1, 2]})
    (('strides', (1, 2)), ('width', 8))
    """
    try:
        pairs = options.items() if isinstance(options, Mapping) else options
        return tuple(sorted((str(key), _frozen(value)) for key, value in pairs))
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {options!r:.80}", "give a table of numbers, texts, or lists of these") from None


def _frozen(value: Any) -> Any:
    if not isinstance(value, list | tuple | int | float | str | None):
        raise TypeError
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _typed(f: "dataclasses.Field[Any]", value: Any) -> Any:
    """A value of the field's type: whole numbers may stand for floats, and numbers for alphas."""
    if value is None and type(None) in get_args(f.type):
        return None
    expected: Any = get_args(f.type)[0] if type(None) in get_args(f.type) else f.type
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if f.type is str and is_number:
        return str(value)
    if f.name.startswith("alpha") and isinstance(value, Mapping):
        return Alpha(value)
    if expected is float and isinstance(value, int) and is_number:
        return float(value) if abs(value) < 10**DIGITS else inf
    fits = expected not in (int, float, str, bool) or isinstance(value, expected)
    if not fits or (expected is int and not is_number):
        raise ConfigError(f"{f.name} is {value!r}", f"give a value of type {expected.__name__}")
    return value


def with_settings_of(*classes: type) -> Callable[[type[T]], type[T]]:
    """Give a class that is to become a dataclass the settings of others as well, but for those that it has itself."""

    def add(cls: type[T]) -> type[T]:
        for f in (f for other in classes for f in dataclasses.fields(other) if f.metadata):
            if f.name not in cls.__annotations__:
                cls.__annotations__[f.name] = f.type
                setattr(cls, f.name, field(default=f.default, metadata=f.metadata))
        return cls

    return add


def shown(value: Any) -> str:
    """A setting's value as a table writes it.

    >>> shown(None), shown(True), shown((("patch", 4),)), shown((1, 2)), shown(1e-4)
    ('all', 'yes', 'patch=4', '1 2', '0.0001')
    """
    match value:
        case None:
            return "all"
        case bool():
            return "yes" if value else "no"
        case ((str(), _), *_):
            return ", ".join(f"{name}={shown(option)}" for name, option in value)
        case tuple():
            return " ".join(map(shown, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
