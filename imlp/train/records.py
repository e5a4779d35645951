"""Runs read back from their folders, and their accuracies gathered over the seeds."""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from imlp.errors import RunError
from imlp.train.callbacks import Row
from imlp.train.config import Config, Lane, from_mapping, read
from imlp.train.schedule import Alpha

PRIORS = {"cnn": "S-CNN", "mixer": "MLP-Mixer", "mlp1": "S-CNN", "mlp2": "S-CNN"}


@dataclass(frozen=True)
class Run:
    """A run's folder; `result` is None while it is not finished."""

    folder: Path
    config: Config
    rows: list[Row]  # metrics.jsonl: a line an epoch and model
    times: list[dict[str, Any]]  # times.jsonl: where each epoch's seconds went
    env: dict[str, Any]
    result: dict[str, Any] | None

    @property
    def seconds(self) -> float:
        """Wall time of all its epochs."""
        return sum(value for row in self.times for name, value in row.items() if name != "epoch")

    def of(self, lane: int | str) -> list[Row]:
        """The rows of a lane by its number, or of `"prior"`, by epoch."""
        return [row for row in self.rows if row["lane"] == lane]


def read_run(folder: Path) -> Run:
    """The run in a folder, finished or not."""
    config = from_mapping(Config, read(folder / "config.toml"))
    try:
        env = json.loads((folder / "env.json").read_text())
        rows, times = (_lines(folder / name) for name in ("metrics.jsonl", "times.jsonl"))
        result = folder / "result.json"
        return Run(folder, config, rows, times, env, json.loads(result.read_text()) if result.exists() else None)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read the run in {folder}: {error}", "name the folder of a run of imlp") from error


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """Every run in the folders and below them, each once."""
    found: dict[Path, None] = {}
    for folder in folders:
        here = sorted(path.parent for path in folder.rglob("config.toml")) if folder.is_dir() else []
        if not here:
            raise RunError(f"there is no run in {folder}", "name folders that train, sweep or reproduce have written")
        found |= dict.fromkeys(path.resolve() for path in here)
    return [read_run(folder) for folder in found]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


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
        """Every lane that any of its runs has, in their order."""
        return list(dict.fromkeys(lane for run in self.runs for lane in run.config.lanes))

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
