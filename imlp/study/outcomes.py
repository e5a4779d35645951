"""What `experiment.json` and `search.json` hold, and verdicts, as typed records that are checked when read."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from imlp.errors import RunError
from imlp.files import parse_json, reason, shown

Kind = TypeVar("Kind")
HOLDS, FAILS, UNKNOWN = "holds", "fails", "cannot tell"


@dataclass(frozen=True)
class Verdict:
    """What came of a claim, and why."""

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
class Beside:
    """What the paper has to say of an arm: its points, and verdicts on its claims."""

    points: tuple[PaperPoint, ...] = ()
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class ArmName:
    """What an experiment calls one of its arms."""

    name: str
    key: str


@dataclass(frozen=True)
class OutcomeRow:
    """A model of an experiment: our number beside the paper's."""

    arm: str
    model: str
    mean: float | None
    std: float | None
    n: int
    paper: float | None
    paper_std: float | None
    difference: float | None
    interval: list[float] | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of an experiment: `experiment.json`."""

    name: str
    title: str
    asks: str
    budget: str
    command: str
    arms: list[ArmName]
    table: list[OutcomeRow]
    verdicts: list[Verdict]
    paper: list[PaperPoint]
    lacking: str = ""  # of the paper's setting


@dataclass(frozen=True)
class HeldOut:
    """The images that a search judges by, of all training images."""

    share: float
    images: int
    of: int


@dataclass(frozen=True)
class TrialLane:
    """What a search needs to know of a trial's lane."""

    every: str


@dataclass(frozen=True)
class Trial:
    """One lane that a search has tried."""

    number: int
    title: str
    lane: TrialLane
    kind: str  # of its schedule
    alphas: dict[str, float]  # by layer
    state: str
    values: list[float]  # validation accuracy by epoch
    value: float | None
    run: list[str | int]  # folder and number of the lane


@dataclass(frozen=True)
class Choice:
    """The best trial."""

    number: int
    title: str
    lane: dict[str, object]
    value: float
    alpha: dict[str, str]


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
    lane: dict[str, object] | None
    validation: float | None
    test: SeedScores


@dataclass(frozen=True)
class SearchOutcome:
    """What came of a search: `search.json`; `final` is None until it has ended."""

    over: str
    every: str
    network: str
    data: str
    epochs: int
    seed: int
    validation: HeldOut
    prior: float | None
    trials: list[Trial]
    importances: dict[str, float]
    chosen: Choice
    final: list[Final] | None


def read_outcome(path: Path) -> Outcome:
    """What an `experiment.json` holds."""
    return _read(path, Outcome, "let reproduce write it again")


def read_search(path: Path) -> SearchOutcome:
    """What a `search.json` holds."""
    return _read(path, SearchOutcome, "run the command of that search again")


def _read(path: Path, kind: type[Kind], remedy: str) -> Kind:
    try:
        return typed(kind, parse_json(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {shown(path)}: {reason(error)}", remedy) from error


def typed(kind: type[Kind], value: Any, name: str = "") -> Kind:
    """A value of JSON as this type: a dataclass, list, dict, union or plain type; a ValueError says what is wrong.

    >>> typed(ArmName, {"name": "CNN pair", "key": "0", "more": 1})
    ArmName(name='CNN pair', key='0')
    >>> typed(dict[str, list[float]], {"a": [1, None]})
    Traceback (most recent call last):
    ValueError: 'a[1]' cannot be None
    """
    return cast(Kind, _typed(kind, value, name))


def _typed(kind: Any, value: Any, name: str) -> Any:
    for one in get_args(kind) if isinstance(kind, UnionType) else (kind,):
        origin, inner = get_origin(one) or one, get_args(one)
        if dataclasses.is_dataclass(one) and isinstance(value, dict):
            types, made = get_type_hints(one), {}
            for f in dataclasses.fields(one):
                path = f"{name}.{f.name}".lstrip(".")
                if f.name in value:
                    made[f.name] = _typed(types[f.name], value[f.name], path)
                elif f.default is dataclasses.MISSING:
                    raise ValueError(f"{path!r} is missing")
            return origin(**made)
        if origin is list and isinstance(value, list):
            return [_typed(inner[0], item, f"{name}[{n}]") for n, item in enumerate(value)]
        if origin is dict and isinstance(value, dict):
            return {key: _typed(inner[1], item, f"{name}.{key}".lstrip(".")) for key, item in value.items()}
        if isinstance(value, (int, float) if one is float else origin):
            return value
    raise ValueError(f"{name or 'what it holds'!r} cannot be {value!r:.40}")
