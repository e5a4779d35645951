"""Runs read back from their folders, and their accuracies gathered over the seeds."""

import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from imlp.errors import ImlpError, RunError
from imlp.files import check_path, parse_json, reason, shown
from imlp.train.callbacks import Row
from imlp.train.config import Config, Lane, from_mapping, read
from imlp.train.schedule import Alpha

NUMBER = int | float
MEND = "run it again, or leave its folder out"
HELD_OUT = re.compile(r" \(validation [^()]+\)$")  # how the name of data ends that a search judges by
PRIORS = {"cnn": "S-CNN", "mixer": "MLP-Mixer", "mlp1": "S-CNN", "mlp2": "S-CNN"}


@dataclass(frozen=True)
class Run:
    """A run's folder; `result` is None while it is not finished."""

    folder: Path
    config: Config
    rows: list[Row]  # metrics.jsonl: a line an epoch and model
    times: list[dict[str, Any]]  # times.jsonl: where each epoch's seconds went
    env: dict[str, Any]  # nothing yet for a run that was killed in its first moments
    result: dict[str, Any] | None

    @property
    def measure(self) -> str:
        """What its accuracies are; trials of a search are judged by images held out, as the name of their data says."""
        return "validation accuracy" if HELD_OUT.search(self.config.data) else "test accuracy"

    @property
    def seconds(self) -> float:
        """Wall time of all its epochs."""
        return sum(value for row in self.times for name, value in row.items() if name != "epoch")

    def of(self, lane: int | str) -> list[Row]:
        """The rows of a lane by its number, or of `"prior"`, by epoch."""
        return [row for row in self.rows if row["lane"] == lane]


def read_run(folder: Path) -> Run:
    """The run in a folder, finished or not."""
    path = folder / "config.toml"
    try:
        config = from_mapping(Config, read(path))
    except ImlpError as error:
        problem = error.problem if str(path) in error.problem else f"{path} is not that of a run: {error.problem}"
        raise ForeignError(problem, error.remedy) from error
    numbers = range(len(config.lanes))
    model = {"lane": ("prior", *numbers), "test_accuracy": NUMBER}
    lane = {**model, "epoch": int, "bias": {...: {"share": NUMBER, "random": NUMBER, "distance": NUMBER}}}
    pruned = {"lane": tuple(numbers), "epoch": int}
    env, finished = folder / "env.json", (folder / "result.json").exists()
    result = {
        "models": [model],
        "stopped": [lambda stop: pruned if "reason" in stop else {**pruned, "step": int, "layer": str}],
        "parameters": {"prior": int, "dense": int},
    }
    return Run(
        folder=folder,
        config=config,
        rows=_lines(
            folder / "metrics.jsonl", lambda row: {**model, "epoch": int} if row.get("lane") == "prior" else lane
        ),
        times=_lines(folder / "times.jsonl", {...: NUMBER}),
        env=read_json(env, {"command": str, "started": str}) if finished or env.exists() else {},
        result=read_json(folder / "result.json", result) if finished else None,
    )


class ForeignError(RunError):
    """A `config.toml` that is not that of a run."""


def find_runs(folders: Iterable[Path], warn: Callable[[str], None] | None = None) -> list[Run]:
    """Every run in the folders and below them, each once; given `warn`, files of others are named to it and skipped."""
    found: dict[Path, None] = {}
    for folder in map(check_path, folders):
        here = sorted(path.parent for path in folder.rglob("config.toml")) if folder.is_dir() else []
        if not here:
            raise RunError(f"there is no run in {folder}", "name folders that train, sweep or reproduce have written")
        found |= dict.fromkeys(path.resolve() for path in here)
    runs = []
    for folder in found:
        try:
            runs.append(read_run(folder))
        except ForeignError as error:
            if warn is None:
                raise
            warn(f"skipped: {error.problem}")
    return runs


def read_json(path: Path, wanted: Any, remedy: str = MEND) -> Any:
    """What a file holds, if that has the wanted shape; an error that names the file if not."""
    try:
        found = parse_json(path.read_bytes())
        conform(found, wanted)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {shown(path)}: {reason(error)}", remedy) from error
    return found


def _lines(path: Path, wanted: Any) -> list[dict[str, Any]]:
    """The same of a file with a value a line; none where there is no file."""
    found, where = [], ""
    try:
        for n, line in enumerate(path.read_text().splitlines() if path.exists() else (), start=1):
            where = f", line {n}"
            found.append(parse_json(line))
            conform(found[-1], wanted)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {shown(path)}{where}: {reason(error)}", MEND) from error
    return found


def conform(value: Any, wanted: Any, name: str = "") -> None:
    """Refuse a value of JSON that lacks something, with a ValueError that names it.

    A dict wants its keys, `...` standing for any; a list wants a list of what it holds; a tuple wants one of its
    values; a function is given an object and says what to want of it; a type wants an instance.

    >>> conform({"rows": [{"epoch": 1}, {}]}, {"rows": [{"epoch": int}]})
    Traceback (most recent call last):
    ValueError: 'rows[1].epoch' is missing
    """
    if isinstance(wanted, FunctionType):
        wanted = wanted(value) if isinstance(value, dict) else {}
    kind = type(wanted) if isinstance(wanted, dict | list) else wanted
    if value not in wanted if isinstance(wanted, tuple) else not isinstance(value, kind):
        raise ValueError(f"{name or 'what it holds'!r} cannot be {value!r:.40}")
    if isinstance(wanted, dict):
        for key, inner in wanted.items():
            for own in value if key is ... else [key]:
                path = f"{name}.{own}".lstrip(".")
                if own not in value:
                    raise ValueError(f"{path!r} is missing")
                conform(value[own], inner, path)
    if isinstance(wanted, list):
        for n, item in enumerate(value):
            conform(item, wanted[0], f"{name}[{n}]")


@dataclass(frozen=True)
class Score:
    """One model of an arm over its seeds: top-1 test accuracy in per cent after the last epoch."""

    lane: Lane | None  # None: the prior
    by_seed: dict[int, float]

    @property
    def n(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.by_seed.values())))

    @property
    def std(self) -> float | None:
        """The sample's standard deviation; None for one seed, which has none."""
        return float(np.std(list(self.by_seed.values()), ddof=1)) if self.n > 1 else None

    @property
    def alpha(self) -> float | None:
        """The lane's alpha where it is one number for all layers and epochs."""
        return constant_alpha(self.lane) if self.lane else None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (f" +- {self.std:.2f}" if self.std is not None else "")


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but their seeds and lanes."""

    runs: tuple[Run, ...]

    @property
    def config(self) -> Config:
        return self.runs[0].config

    @property
    def key(self) -> str:
        return base_identity(self.config)

    @property
    def lanes(self) -> list[Lane]:
        """Every lane that any of its runs has: by cadence, plain alphas first, smallest first."""

        def order(lane: Lane) -> tuple[Any, ...]:
            alpha, plain = constant_alpha(lane), Lane(alpha=lane.alpha, every=lane.every) == lane
            return lane.steps is not None, lane.steps or 0, not plain, alpha is None, alpha or 0.0

        return sorted(dict.fromkeys(lane for run in self.runs for lane in run.config.lanes), key=order)

    @property
    def series(self) -> dict[Lane, list[Lane]]:
        """The lanes with a constant alpha above 0 that differ in it alone, smallest first; by that lane at alpha 0."""
        found: dict[Lane, list[Lane]] = {}
        for lane in self.lanes:
            if constant_alpha(lane):
                found.setdefault(dataclasses.replace(lane, alpha="0"), []).append(lane)
        return found

    @cached_property
    def scores(self) -> list[Score]:
        """The prior's first, then one a lane; of finished runs, and without lanes that have stopped."""
        found: dict[Lane | None, dict[int, float]] = {None: {}} | {lane: {} for lane in self.lanes}
        for run in self.runs:
            for row in run.result["models"] if run.result else ():
                lane = None if row["lane"] == "prior" else run.config.lanes[row["lane"]]
                found[lane][run.config.seed] = 100 * row["test_accuracy"]
        return [Score(lane, by_seed) for lane, by_seed in found.items() if by_seed]

    def score(self, lane: Lane | None) -> Score | None:
        """The score of a lane, or of the prior (None), if it is there."""
        return next((score for score in self.scores if score.lane == lane), None)

    def scores_of(self, lanes: Iterable[Lane]) -> list[Score]:
        """The scores of the lanes that have one."""
        return [score for lane in lanes if (score := self.score(lane))]

    @property
    def measure(self) -> str:
        """What its accuracies are."""
        return self.runs[0].measure

    @property
    def prior_name(self) -> str:
        return PRIORS.get(self.config.network, self.config.network)


def arms_of(runs: Iterable[Run]) -> list[Arm]:
    """The runs gathered into arms, in the order of their first runs."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(base_identity(run.config), []).append(run)
    return [Arm(tuple(sorted(own, key=lambda run: run.config.seed))) for own in found.values()]


def base_identity(config: Config) -> str:
    """The identity of everything but the seed and the lanes.

    >>> base_identity(Config(seed=1)) == base_identity(Config(seed=2)) != base_identity(Config(epochs=3))
    True
    """
    return dataclasses.replace(config, seed=0, lanes=(Lane(),)).identity


def constant_alpha(lane: Lane) -> float | None:
    """
    >>> constant_alpha(Lane(alpha="0.01")), constant_alpha(Lane(alpha="decay:0.5:1"))
    (0.01, None)
    """
    match Alpha.parse(lane.alpha).schedules:
        case (("", schedule),) if schedule.kind == "constant":
            return schedule.numbers[0]
    return None
