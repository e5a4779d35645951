"""What the page, the figures and the tables all show, gathered once from the runs."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from imlp.couplings import Replacing
from imlp.couplings.setting import shown
from imlp.report.matrices import Matrices, matrices
from imlp.spec.base import PARTS
from imlp.study.outcomes import ExperimentOutcome, FromPaper, PaperPoint, Verdict
from imlp.study.scores import Arm, Score, constant_alpha, sample_deviation
from imlp.study.two_lines import TwoLines, fit_v
from imlp.train.callbacks import Row
from imlp.train.config import Config, Lane
from imlp.train.run_reader import Run

METER = (*PARTS, "distance", *(f"random_{part}" for part in PARTS))
OFTEN = {"epoch": "once per epoch", "step": "every step"}
NOT_METRICS = ("epoch", "lane", "test_accuracy")
NOT_TOLD = ("network", "data", "seed", "lanes", "products", "source", "held_out")  # said anyway, or an arm has several
PAIRS = {"cnn": "CNN", "mixer": "MLP-Mixer", "mlp1": "MLP1", "mlp2": "MLP2", "resnet": "ResNet"}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
WORDS = {  # a setting, or one of its values; others are called by their names
    "augment pad": "crops with a black margin",
    "augment pad-mean": "crops with a margin in the mean colour",
    "augment resized": "resized crops",
    "augment none": "no crops or flips",
    "crop_area": "crops of {} of the area",
    "crop_aspect": "crops with width over height {}",
    "inputs standardised": "standardised pixels",
    "inputs unit": "pixels from 0 to 1",
    "inputs signed": "pixels from -1 to 1",
    "validation": "{} images held out",
    "train_size": "{} training images",
    "test_size": "{} test images",
    "epochs": "{} epochs",
    "batch": "batches of {}",
    "lr": "learning rate {}",
    "activated": "norms and GELU after layers {}",
}

Compare = Callable[[Arm], FromPaper]


@dataclass(frozen=True)
class Epoch:
    """A model after an epoch, over the seeds that have come so far."""

    epoch: int
    accuracy: float  # per cent
    spread: float | None  # its standard deviation
    n: int  # seeds
    metrics: dict[str, float]  # the means of all other numbers of metrics.jsonl; accuracies in per cent


@dataclass(frozen=True)
class ModelData:
    """The prior or a lane of an arm."""

    title: str
    lane: Lane | None  # None: the prior
    score: Score | None  # after the last epoch of finished runs
    parameters: int | None
    seconds: float | None  # of a run that holds it, on average
    remark: str  # what is missing of it, and why
    epochs: list[Epoch]
    meter: dict[str, dict[str, float | None]]  # the bias meter after the last epoch, by layer


@dataclass(frozen=True)
class Series:
    """Lanes that differ in alpha alone, smallest first, and the two lines of figure 2's V."""

    name: str
    scores: list[Score]
    fit: TwoLines | None

    @property
    def alphas(self) -> list[float]:
        return [score.alpha or 0.0 for score in self.scores]

    @property
    def is_curve(self) -> bool:
        """Whether a line through its points says anything: one alpha beside 0 is a point."""
        return sum(alpha > 0 for alpha in self.alphas) > 1


@dataclass(frozen=True)
class ArmData:
    """All that is shown of an arm."""

    id: str  # names its files and its part of the page
    name: str
    arm: Arm
    models: list[ModelData]  # the prior first
    series: list[Series]
    points: Sequence[PaperPoint]  # all with an alpha and a value
    verdicts: Sequence[Verdict]  # on the paper's claims, for runs without an experiment
    warnings: list[str]

    @cached_property
    def matrices(self) -> Matrices | str:
        """What its networks have learned, read when it is asked for; or why there is nothing to show."""
        return matrices(self.arm)

    @property
    def is_finished(self) -> bool:
        return any(run.result for run in self.arm.runs)

    @property
    def seeds(self) -> int:
        return max((model.score.n for model in self.models if model.score), default=0)

    @property
    def has_curve(self) -> bool:
        """Whether accuracy against alpha is the figure to show first."""
        return any(len(series.scores) > 3 for series in self.series)

    @property
    def alphas(self) -> list[float]:
        """All that the alpha figure shows, the paper's too."""
        return sorted({a for s in self.series for a in s.alphas} | {point.alpha or 0.0 for point in self.points})


def gather(
    arms: Sequence[Arm], outcomes: Sequence[ExperimentOutcome] = (), compare: Compare = lambda arm: FromPaper()
) -> list[ArmData]:
    """The arms in order, each under the name that an experiment gives it, or one made of its settings.

    `compare` is asked what the paper says of arms that no experiment names.
    """
    names: dict[str, dict[str, None]] = {}  # by the arm's key, in the order of the experiments
    for named in (named for outcome in outcomes for named in outcome.arms):
        names.setdefault(named.key, {})[named.name] = None
    others = [arm for arm in arms if arm.key not in names]
    titles = dict(zip((arm.key for arm in others), arm_titles([arm.config for arm in others]), strict=True))
    by_key = {arm.key: arm for arm in arms}
    gathered: list[ArmData] = []
    for arm in [*(by_key[key] for key in names if key in by_key), *others]:
        if arm.key in names:
            title = short = " / ".join(names[arm.key])
            paper = FromPaper(_points(arm.key, outcomes))
        else:
            title, paper = titles[arm.key], compare(arm)
            short = f"{arm.config.network_name} {Path(arm.config.data).name}"
            short += f" validation {arm.config.held_out:g}" if arm.config.held_out else ""
        points = [point for point in paper.points if point.alpha is not None and point.value is not None]
        gathered.append(
            ArmData(
                id=_identifier(short, {other.id for other in gathered}),
                name=title,
                arm=arm,
                models=[_model(arm, lane) for lane in (None, *arm.lanes)],
                series=_series(arm),
                points=sorted(points, key=lambda point: point.alpha or 0.0),
                verdicts=paper.verdicts,
                warnings=_warnings(arm),
            )
        )
    return gathered


def arm_titles(configs: Sequence[Config]) -> list[str]:
    """Network and data, and the settings that tell the arms apart; of several, only those that are not the default.

    >>> arm_titles([Config(data="cifar10"), Config(data="cifar10", augment="none")])
    ['CNN pair on CIFAR-10: crops with a black margin', 'CNN pair on CIFAR-10: no crops or flips']
    """
    fields = [f for f in dataclasses.fields(Config) if f.metadata["changes_result"] and f.name not in NOT_TOLD]
    apart = [f for f in fields if len({getattr(c, f.name) for c in configs}) > 1]

    def title(config: Config) -> str:
        told = [f.name for f in apart if len(apart) == 1 or getattr(config, f.name) != f.default]
        words = ", ".join(filter(None, (_in_words(name, getattr(config, name)) for name in told)))
        pair = f"{PAIRS[config.network]} pair" if config.network in PAIRS else config.network_name
        data = DATA.get(config.data, Path(config.data).name)
        data += f" (validation {config.held_out:g})" if config.held_out else ""
        return f"{pair} on {data}" + (f": {words}" if words else "")

    return list(map(title, configs))


def _in_words(name: str, value: Any) -> str:
    if name == "options":
        return ", ".join(_in_words(*option) for option in value)
    word = name.replace("_", " ")
    if isinstance(value, bool):
        return word if value else f"not {word}"
    text = f"{value:,}" if isinstance(value, int) else shown(value).replace(" ", " and ").replace(",", " to ")
    return WORDS.get(f"{name} {value}", WORDS.get(name, f"{word} {{}}")).replace("{}", text)


def _identifier(name: str, taken: set[str]) -> str:
    """A name for files: letters and digits of ASCII with dashes between, none of them taken."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in name.lower()).split()
    base = "-".join(words)[:48].strip("-") or "arm"
    return next(c for n in count(1) if (c := base if n == 1 else f"{base}-{n}") not in taken)


def _points(key: str, outcomes: Sequence[ExperimentOutcome]) -> tuple[PaperPoint, ...]:
    names = {(outcome.name, arm.name) for outcome in outcomes for arm in outcome.arms if arm.key == key}
    points = (point for outcome in outcomes for point in outcome.paper if (outcome.name, point.arm) in names)
    return tuple({dataclasses.replace(point, arm=""): None for point in points})


def _series(arm: Arm) -> list[Series]:
    """The series of the alpha figure; alpha 0 is the S-MLP however often nothing is mixed, so each begins with it."""
    groups = arm.series
    zeros = [lane for lane in arm.lanes if constant_alpha(lane) == 0]
    if zeros and not groups:
        groups[zeros[0]] = []
    series = []
    for base, lanes in groups.items():
        scores = arm.scores_of([*([base] if base in zeros else zeros[:1]), *lanes])
        fit = fit_v([score.alpha or 0.0 for score in scores], [score.mean for score in scores])
        series.append(Series(series_name(base), scores, fit))
    return series


def series_name(base: Lane) -> str:
    """How lanes that differ in alpha alone are mixed."""
    return ", ".join([cadence(base), *base.extras])


def cadence(lane: Lane) -> str:
    """How often a lane is mixed, in words."""
    if not lane.mixes:
        return "once" if isinstance(lane.rule, Replacing) else "in every pass"
    return OFTEN.get(lane.every, f"every {lane.every} steps")


def _model(arm: Arm, lane: Lane | None) -> ModelData:
    holding = [(run, key) for run in arm.runs if (key := run.key_of(lane)) is not None]
    finished = [(run, key) for run, key in holding if run.result] or holding
    rows = {run.config.seed: run.of(key) for run, key in finished}  # as the scores: the last run of a seed counts
    by_epoch: dict[int, list[Row]] = {}
    for row in (row for of_seed in rows.values() for row in of_seed):
        by_epoch.setdefault(row["epoch"], []).append(row)
    last = by_epoch[max(by_epoch)] if by_epoch else []
    counts = [run.result["parameters"]["dense" if lane else "prior"] for run in arm.runs if run.result]
    times = [run.seconds for run, _ in finished if run.times]
    remarks = [_why_missing(run, key) for run, key in holding] or ["not trained: no lane needs it"]
    return ModelData(
        title=f"{arm.prior_name} (the prior)" if lane is None else lane.title,
        lane=lane,
        score=arm.score(lane),
        parameters=counts[0] if counts else None,
        seconds=float(np.mean(times)) if times else None,
        remark="; ".join(filter(None, remarks)),
        epochs=[_epoch(epoch, of_epoch) for epoch, of_epoch in sorted(by_epoch.items())],
        meter={
            layer: {part: _mean([row.get("bias", {}).get(layer, {}).get(part) for row in last]) for part in METER}
            for layer in dict.fromkeys(layer for row in last for layer in row.get("bias", {}))
        },
    )


def _epoch(epoch: int, rows: list[Row]) -> Epoch:
    values = [100 * row["test_accuracy"] for row in rows]
    names = [name for name in rows[0] if name not in NOT_METRICS and isinstance(rows[0][name], float | int)]
    means = {name: _mean([row.get(name) for row in rows]) for name in names}
    known = {name: 100 * mean if "accuracy" in name else mean for name, mean in means.items() if mean is not None}
    return Epoch(epoch, float(np.mean(values)), sample_deviation(values), len(rows), known)


def _mean(values: list[float | None]) -> float | None:
    """The mean, unless one of the values is not known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _why_missing(run: Run, key: int | str) -> str:
    """Why a run has no last accuracy of a model; nothing if it has one."""
    if run.result is None:
        return f"seed {run.config.seed} is unfinished"
    stop = next((stop for stop in run.result["stopped"] if stop["lane"] == key), None)
    return f"seed {run.config.seed} {stop.get('reason', 'stopped')} in epoch {stop['epoch']}" if stop else ""


def state(run: Run) -> str:
    """How far a run has come."""
    if run.result is None:
        return f"unfinished: {max((row['epoch'] for row in run.rows), default=0)} of {run.config.epochs} epochs"
    stopped = [str(stop["lane"]) for stop in run.result["stopped"]]
    return f"finished; stopped: lane {', '.join(stopped)}" if stopped else "finished"


def place(folder: Path) -> str:
    """A run's folder as seen from here, if it is below: a page that is passed on need not name a home."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def _warnings(arm: Arm) -> list[str]:
    notes = [f"{place(run.folder)} is {state(run)}, and not part of any mean." for run in arm.runs if not run.result]
    for run in arm.runs:
        for stop in (stop for stop in (run.result or {}).get("stopped", ()) if "reason" not in stop):
            where = f"epoch {stop['epoch']}, step {stop['step']}, from {stop['layer']} on"
            title = run.config.lanes[stop["lane"]].title
            notes.append(f"{title} stopped in {place(run.folder)}: its loss was not finite in {where}.")
    for lane in arm.lanes:
        curves: dict[int, set[tuple[float, ...]]] = {}  # by seed; an equal run changes no mean
        for run in (run for run in arm.runs if run.result and run.key_of(lane) is not None):
            curves.setdefault(run.config.seed, set()).add(tuple(row["test_accuracy"] for row in run.rows_of(lane)))
        if differing := [str(seed) for seed, of_seed in sorted(curves.items()) if len(of_seed) > 1]:
            seeds = f"seed{'s' * (len(differing) > 1)} {', '.join(differing)}"
            notes.append(f"{lane.title} was run more than once with {seeds}, and differently; the last folder counts.")
    return notes
