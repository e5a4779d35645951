"""The accuracies of runs, gathered over their seeds."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from imlp.couplings import COUPLINGS
from imlp.couplings.schedule import Alpha
from imlp.train.config import Config, Lane
from imlp.train.run_reader import Run

PRIORS = {"cnn": "S-CNN", "mixer": "MLP-Mixer", "mlp1": "S-CNN", "mlp2": "S-CNN", "resnet": "ResNet"}


def sample_deviation(values: Sequence[float]) -> float | None:
    """The sample's standard deviation; None for one value, which has none.

    >>> sample_deviation([1.0, 3.0]), sample_deviation([1.0])
    (1.4142135623730951, None)
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def plus_minus(mean: float | None, std: float | None) -> str:
    """
    >>> plus_minus(50, 1.5), plus_minus(50, None), plus_minus(None, None)
    ('50.00 +- 1.50', '50.00', '')
    """
    return "" if mean is None else f"{mean:.2f}" + (f" +- {std:.2f}" if std is not None else "")


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
        return sample_deviation(list(self.by_seed.values()))

    @property
    def interval(self) -> list[float] | None:
        """The mean's 95 % confidence interval by Student's t; None for fewer than three seeds.

        >>> [round(end, 2) for end in Score(None, {0: 1.0, 1: 2.0, 2: 3.0}).interval]
        [-0.48, 4.48]
        """
        if self.n < 3 or self.std is None:
            return None
        from scipy.special import stdtrit  # a tenth of a second that few need

        half = float(stdtrit(self.n - 1, 0.975)) * self.std / self.n**0.5
        return [self.mean - half, self.mean + half]

    @property
    def alpha(self) -> float | None:
        """The lane's alpha where it is one number for all layers and epochs."""
        return constant_alpha(self.lane) if self.lane else None

    def __str__(self) -> str:
        return plus_minus(self.mean, self.std)


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but their seeds and lanes, and in how their products are rounded."""

    runs: tuple[Run, ...]

    @property
    def config(self) -> Config:
        return self.runs[0].config

    @property
    def key(self) -> str:
        return base_identity(self.config)

    @property
    def lanes(self) -> list[Lane]:
        """Every lane that any of its runs has: by cadence, plain alphas first, smallest first.

        No two lanes are equal in this order: it must not depend on which run was begun first.
        """

        def order(lane: Lane) -> tuple[Any, ...]:
            alpha, plain = constant_alpha(lane), Lane(alpha=lane.alpha, every=lane.every) == lane
            first = lane.steps is not None, lane.steps or 0, not plain, alpha is None, alpha or 0.0
            known = [*COUPLINGS].index(lane.rule.name) if lane.rule.outside is None else len(COUPLINGS)
            settings = [value or 0 for value in dataclasses.astuple(lane.rule) if not isinstance(value, str)]
            rates = [schedule.numbers for _, schedule in lane.knobs[0].schedules if schedule.kind == "rate"]
            return *first, known, settings, rates, lane.title

        return sorted(dict.fromkeys(lane for run in self.runs for lane in run.lanes), key=order)

    @property
    def series(self) -> dict[Lane, list[Lane]]:
        """The lanes with a constant alpha above 0 that differ in it alone, smallest first; by that lane at alpha 0."""
        series: dict[Lane, list[Lane]] = {}
        for lane in self.lanes:
            if constant_alpha(lane):
                series.setdefault(dataclasses.replace(lane, alpha="0"), []).append(lane)
        return series

    @cached_property
    def scores(self) -> list[Score]:
        """The prior's first, then one per lane; of finished runs, and without lanes that have stopped."""
        by_lane: dict[Lane | None, dict[int, float]] = {None: {}} | {lane: {} for lane in self.lanes}
        for run in self.runs:
            for row in run.result["models"] if run.result else ():
                lane = None if row["lane"] == "prior" else run.lanes[row["lane"]]
                by_lane[lane][run.config.seed] = 100 * row["test_accuracy"]
        return [Score(lane, by_seed) for lane, by_seed in by_lane.items() if by_seed]

    def score(self, lane: Lane | None) -> Score | None:
        """The score of a lane, or of the prior (None), if it is there."""
        wanted = None if lane is None else lane.compared
        return next((score for score in self.scores if score.lane == wanted), None)

    def scores_of(self, lanes: Iterable[Lane]) -> list[Score]:
        return [score for lane in lanes if (score := self.score(lane))]

    @property
    def has_no_lane_left(self) -> bool:
        """Whether every lane of every run has stopped."""
        return all(score.lane is None for score in self.scores)

    @property
    def prior_name(self) -> str:
        return PRIORS.get(self.config.network, self.config.network_name)


@dataclass(frozen=True)
class ArmPlan:
    """An arm before it is run: a configuration and its lanes."""

    name: str
    base: Config
    lanes: tuple[Lane, ...]


def arms_of(runs: Iterable[Run]) -> list[Arm]:
    """The runs gathered into arms, in the order of their first runs."""
    by_arm: dict[str, list[Run]] = {}
    for run in runs:
        by_arm.setdefault(base_identity(run.config), []).append(run)
    return [Arm(tuple(sorted(of_arm, key=_order))) for of_arm in by_arm.values()]


def _order(run: Run) -> tuple[Any, ...]:
    """Where a seed has the same model twice, the last one counts: that with products in full precision."""
    return run.config.seed, run.config.products == "full", run.config.identity


def base_identity(config: Config) -> str:
    """The identity of everything but the seed, the lanes and the precision of products.

    >>> base_identity(Config(seed=1)) == base_identity(Config(seed=2)) != base_identity(Config(epochs=3))
    True
    """
    return dataclasses.replace(config, seed=0, lanes=(), products="full").identity


def constant_alpha(lane: Lane) -> float | None:
    """
    >>> constant_alpha(Lane(alpha="0.01")), constant_alpha(Lane(alpha="decay:0.5:1"))
    (0.01, None)
    """
    if len(set(lane.knobs)) > 1 or not lane.mixes:
        return None
    match Alpha(lane.alpha).schedules:
        case (("", schedule),) if schedule.kind == "constant":
            return schedule.numbers[0]
    return None
