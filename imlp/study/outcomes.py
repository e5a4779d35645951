"""What `experiment.json` and `search.json` hold, and verdicts, as typed records that are checked when read."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from imlp.errors import RunError, known
from imlp.files import parse_json, read_bytes, reason, shown

Kind = TypeVar("Kind")
HOLDS, FAILS, UNKNOWN = "holds", "fails", "cannot tell"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, and why."""

    claim: str
    verdict: str
    because: str
    missing: bool = False  # runs that the claim is about were not made


@dataclass(frozen=True)
class PaperPoint:
    """A number of the paper's: the accuracy of a model in per cent."""

    arm: str
    model: str
    alpha: float | None  # None: the prior, or an alpha that is not one number
    value: float | None
    std: float | None


@dataclass(frozen=True)
class FromPaper:
    """What the paper has to say of an arm: its points, and verdicts on its claims."""

    points: tuple[PaperPoint, ...] = ()
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class ArmName:
    """What an experiment calls one of its arms."""

    name: str
    key: str


@dataclass(frozen=True, kw_only=True)
class OutcomeRow:
    """A model of an experiment: our number beside the paper's."""

    arm: str
    model: str
    mean: float | None
    std: float | None
    interval: list[float] | None = None
    n: int
    paper: float | None
    paper_std: float | None
    difference: float | None


@dataclass(frozen=True, kw_only=True)
class ExperimentOutcome:
    """The outcome of an experiment: `experiment.json`."""

    name: str
    title: str
    asks: str
    budget: str
    command: str
    shortfall: str = ""  # of the paper's setting
    arms: list[ArmName]
    table: list[OutcomeRow]
    verdicts: list[Verdict]
    paper: list[PaperPoint]


@dataclass(frozen=True)
class HeldOut:
    """The images that a search judges by, of all training images."""

    share: float
    images: int
    of: int


@dataclass(frozen=True)
class Trial:
    """One lane that a search has tried."""

    number: int
    title: str
    lane: dict[str, Any]  # all its settings
    alphas: dict[str, float]  # by layer, or `{"all layers": 0.5}`
    state: str  # complete; pruned: stopped early as one of the worse; stopped: its loss was not finite
    value: float | None  # the last of its values
    values: list[float]  # validation accuracy after each epoch
    run: list[str | int]  # folder and number of the lane


@dataclass(frozen=True)
class Choice:
    """The best trial."""

    title: str
    lane: dict[str, Any]
    number: int
    value: float
    alpha: dict[str, str]  # its schedule for each layer


@dataclass(frozen=True)
class SeedScores:
    """Test accuracy over seeds."""

    mean: float
    std: float | None
    n: int
    by_seed: dict[str, float]


@dataclass(frozen=True)
class Final:
    """A model on the test images, after the search."""

    title: str
    lane: dict[str, Any] | None  # None: the prior
    validation: float | None  # the accuracy that the search saw
    test: SeedScores


@dataclass(frozen=True)
class SearchOutcome:
    """The outcome of a search: `search.json`, all accuracies in per cent; `final` is None until it has ended."""

    over: str
    every: str
    network: str
    data: str
    epochs: int
    seed: int
    validation: HeldOut
    prior: float | None  # its validation accuracy
    trials: list[Trial]  # in the order in which they ended
    chosen: Choice
    final: list[Final] | None


def read_outcome(path: Path, kind: type[Kind]) -> Kind:
    """What an `experiment.json` or a `search.json` holds."""
    try:
        return typed(kind, parse_json(read_bytes(path)))
    except (OSError, ValueError) as error:
        problem = f"cannot read {shown(path)}: {reason(error)}"
        raise RunError(problem, "run the command again that wrote it") from error


def typed(kind: type[Kind], value: Any, name: str = "") -> Kind:
    """A value of JSON or TOML as this type: a dataclass, list, dict, union or plain type; a ValueError if it is not.

    No boolean is a number, and neither is NaN or infinity.

    >>> typed(ArmName, {"name": "CNN pair", "key": "0"})
    ArmName(name='CNN pair', key='0')
    >>> typed(dict[str, list[float]], {"a": [1, None]})
    Traceback (most recent call last):
    ValueError: 'a[1]' cannot be None
    """
    made: Any
    for one in get_args(kind) if isinstance(kind, UnionType) else (kind,):
        origin, inner = get_origin(one) or one, get_args(one)
        if dataclasses.is_dataclass(one) and isinstance(value, dict):
            types, fields, made = get_type_hints(one), dataclasses.fields(one), {}
            for key in value:
                known(key, types, f"key of {name}" if name else "key")
            for f in fields:
                if f.name in value:
                    made[f.name] = typed(types[f.name], value[f.name], f"{name}.{f.name}".lstrip("."))
                elif f.default is MISSING and f.default_factory is MISSING:
                    raise ValueError(f"{f'{name}.{f.name}'.lstrip('.')!r} is missing")
            made = origin(**made)
        elif origin in (list, Sequence) and isinstance(value, list):
            made = [typed(inner[0], item, f"{name}[{n}]") for n, item in enumerate(value)]
        elif origin in (dict, Mapping) and isinstance(value, dict):
            made = {key: typed(inner[1], item, f"{name}.{key}".lstrip(".")) for key, item in value.items()}
        elif one is Any or (isinstance(value, (int, float) if one is float else origin) and _is_plain(value, one)):
            made = value
        else:
            continue
        return cast(Kind, made)
    raise ValueError(f"{name or 'what it holds'!r} cannot be {value!r:.40}")


def _is_plain(value: Any, kind: Any) -> bool:
    return (not isinstance(value, bool) or kind is bool) and (not isinstance(value, float) or isfinite(value))
