"""The paper's tables and figures as files: what each asks, what it runs at which budget, the paper's numbers, claims.

An experiment has arms, each one configuration with its lanes; `reproduce` runs a sweep for each. Runs of no experiment
are judged by those that ask about the same pair of networks.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from imlp.couplings.schedule import alphas_of
from imlp.couplings.setting import shown as shown_setting
from imlp.data.cifar import LAYOUTS, TRAIN_SIZE
from imlp.errors import ConfigError, ImlpError, known
from imlp.files import shown
from imlp.paper.claims import check_claim, judge
from imlp.study.outcomes import ArmName, ExperimentOutcome, FromPaper, OutcomeRow, PaperPoint, Verdict, typed
from imlp.study.scores import Arm, ArmPlan, Score
from imlp.train.config import Config, Lane, check_seeds, from_mapping, read, recorded, with_recipe
from imlp.train.lane import lanes_of, with_epochs

FOLDER = Path(__file__).parent
BUDGETS = ("smoke", "short", "paper")
ALSO = {"figure3": "decay", "table4": "decay", "table5": "first-layer"}  # the paper's names
OPEN = ("augment", "crop_area", "crop_aspect", "inputs", "validation")  # see docs/experiments.md
OPEN_OPTIONS = ("activated", "residual", "first_channels", "first_stride", "first_kernel", "first_padding")
OF_THE_USER = ("seed", "lanes", "backend", "dtype", "products", "compile", "deterministic")
LENGTH = ("epochs", "batch", "train_size")  # what the steps follow from
JUDGED_BY = {  # whose claims and numbers stand beside those of runs without an experiment
    "cnn": ("table1-cnn", "figure2-cnn", "decay"),
    "mixer": ("table1-mixer", "figure2-mixer"),
    "mlp1": ("first-layer",),
    "mlp2": ("first-layer",),
}
Settings = dict[str, Any]


@dataclass(frozen=True)
class ArmTable:
    """An arm as the file has it; `smoke`, `short` and `paper` are its settings at that budget."""

    name: str
    alphas: str | list[str]
    every: str | None = None
    more: list[Settings] = field(default_factory=list)  # lanes
    settings: Settings = field(default_factory=dict)
    smoke: Settings = field(default_factory=dict)
    short: Settings = field(default_factory=dict)
    paper: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Budget:
    """How long and how often, and with which settings over those of the arms."""

    seeds: int = 3
    alphas: str | list[str] | None = None
    every: str | None = None
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class PaperNumber:
    """An accuracy that the paper reports, in per cent."""

    arm: str
    lane: Lane | None  # None: the prior
    value: float
    std: float | None


@dataclass(frozen=True)
class Experiment:
    """One of the TOML files beside this one, or a file of the user's own."""

    title: str
    asks: str
    arms: list[ArmTable]
    budgets: dict[str, Budget]
    assumed_std: float | None = None
    settings: Settings = field(default_factory=dict)
    paper: list[Settings] = field(default_factory=list)
    claims: list[Settings] = field(default_factory=list)
    name: str = ""  # that of the file

    def seeds(self, budget: str) -> int:
        return self._budget(budget).seeds

    def plans(self, budget: str, *, every: str | None = None, to_train: bool = True, **settings: Any) -> list[ArmPlan]:
        """The arms at a budget; `settings` of the caller, and how often to mix, win over the file's.

        Unless they are `to_train`, a network from outside the package is not run: a record may name any file.
        """
        at_budget, plans = self._budget(budget), []
        for arm in self.arms:
            layers = (self.settings, arm.settings, at_budget.settings, getattr(arm, budget, {}), settings)
            base = from_mapping(Config, _merged(*layers)) if to_train else recorded(_merged(*layers))
            alphas = arm.alphas if at_budget.alphas is None else at_budget.alphas
            lanes = lanes_of(alphas, every or at_budget.every or arm.every)
            more = (lane for table in arm.more for lane in _listed(table, base.epochs))
            plans.append(ArmPlan(arm.name, base, tuple(dict.fromkeys((*lanes, *more)))))
        return plans

    def _budget(self, name: str) -> Budget:
        return self.budgets[known(name, self.budgets, "budget")]

    def arm_of(self, network: str) -> str | None:
        """The arm that asks about a network, by its name."""
        return next((plan.name for plan in self.plans("paper", to_train=False) if plan.base.network == network), None)

    def numbers(self, data: str) -> list[PaperNumber]:
        """The paper's numbers for a data set."""
        numbers = []
        for row in (row for row in self.paper if data in row):
            value, *std = row[data] if isinstance(row[data], list) else [row[data]]
            lane = from_mapping(Lane, row["lane"]) if "lane" in row else None
            numbers.append(PaperNumber(row["arm"], lane, value, std[0] if std else None))
        return numbers

    def outcome(self, arms: Mapping[str, Arm], *, budget: str = "", command: str = "") -> ExperimentOutcome:
        """Our numbers beside the paper's, and the verdicts."""
        numbers, far = self.numbers(_data(arms)), self.shortfall(arms)
        table, points = [], []
        for name, arm in arms.items():
            for score in arm.scores:
                theirs = next((number for number in numbers if number.arm == name and is_about(score, number)), None)
                model = score.lane.title if score.lane else arm.prior_name
                paper, paper_std = (theirs.value, theirs.std) if theirs else (None, None)
                difference = None if paper is None or far else score.mean - paper
                table.append(OutcomeRow(
                    arm=name, model=model, mean=score.mean, std=score.std, interval=score.interval, n=score.n,
                    paper=paper, paper_std=paper_std, difference=difference,
                ))  # fmt: skip
                points += [PaperPoint(name, model, score.alpha, paper, paper_std)] if theirs else []
        deviations = [number.std for number in numbers if number.std is not None]
        assumed = max(deviations, default=self.assumed_std)  # where there are too few seeds for a spread
        verdicts = judge(self.claims, arms, shortfall=partial(self.shortfall, arms), assumed=assumed)
        return ExperimentOutcome(
            name=self.name, title=self.title, asks=self.asks, budget=budget, command=command, shortfall=far,
            arms=[ArmName(name, arm.key) for name, arm in arms.items()],
            table=table, verdicts=verdicts, paper=points,
        )  # fmt: skip

    def shortfall(self, arms: Mapping[str, Arm], budget: str = "paper") -> str:
        """What the runs lack of a budget's setting ("790 of 39,100 steps"); nothing if they have it."""
        if budget not in self.budgets:
            return ""
        data = _data(arms)
        named = {"data": data} if any(data in row for row in self.paper) else {}
        plans = {plan.name: plan.base for plan in self.plans(budget, to_train=False, **named)}
        differences = (shortfall(arm.config, plans[name]) for name, arm in arms.items() if name in plans)
        return next(filter(None, differences), "")


def names() -> list[str]:
    """Every experiment that there is a file for."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_experiment(name: str) -> Experiment:
    """An experiment by its name, or from a file of your own."""
    name = ALSO.get(name, name)
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{known(name, names(), 'experiment')}.toml"
    values = read(path)
    try:
        made = typed(Experiment, values)
        if made.name:
            raise ValueError("its name is that of its file; leave `name` out")
        experiment = dataclasses.replace(made, name=name, asks=" ".join(made.asks.split()))
        _check(experiment)
    except ImlpError as error:
        raise ConfigError(f"{shown(path)}: {error.problem}", error.remedy) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not an experiment: {error}", f"see {FOLDER}") from error
    return experiment


def implied(arm: Arm) -> list[ExperimentOutcome]:
    """The outcomes that runs without an experiment have for those that ask about the same pair."""
    outcomes = []
    for name in () if arm.config.held_out else JUDGED_BY.get(arm.config.network, ()):
        experiment = read_experiment(name)
        asked = experiment.arm_of(arm.config.network)
        if asked is not None and arm.scores and experiment.numbers(arm.config.data):
            outcomes.append(experiment.outcome({asked: arm}))
    return outcomes


def decided(outcomes: Iterable[ExperimentOutcome]) -> list[Verdict]:
    """The verdicts that something can be said about, each claim once."""
    verdicts = (verdict for outcome in outcomes for verdict in outcome.verdicts)
    return list({verdict.claim: verdict for verdict in verdicts if not verdict.missing}.values())


def from_paper(arm: Arm) -> FromPaper:
    """What the paper says of runs without an experiment: its points if they are at its setting, and the verdicts."""
    outcomes = implied(arm)
    points = (point for outcome in outcomes if not outcome.shortfall for point in outcome.paper)
    return FromPaper(tuple({dataclasses.replace(point, arm=""): None for point in points}), tuple(decided(outcomes)))


def _check(experiment: Experiment) -> None:
    arms = [arm.name for arm in experiment.arms]
    if not arms or len(set(arms)) < len(arms):
        raise ConfigError(f"its arms are called {', '.join(arms) or 'nothing'}", "give each arm a different name")
    for name, budget in experiment.budgets.items():
        check_seeds(budget.seeds)
        for plan in experiment.plans(name, to_train=False):
            if not plan.lanes:
                raise ConfigError(f"the arm {plan.name} has no lane", "give at least one alpha")
    if not 0 <= (experiment.assumed_std or 0) <= 100:
        raise ConfigError(f"assumed_std is {experiment.assumed_std!r:.40}", "give per cent, from 0 to 100")
    for row in experiment.paper:
        known(row.get("arm", ""), arms, "arm")
        from_mapping(Lane, typed(dict[str, Any], row.get("lane", {}), "paper.lane"))
        for data in row.keys() - {"arm", "lane"}:
            numbers = typed(float | list[float], row[data], f"paper.{data}")  # type: ignore[arg-type]
            pair = numbers if isinstance(numbers, list) else [numbers]
            if len(pair) not in (1, 2) or not all(0 <= number <= 100 for number in pair):
                raise ConfigError(f"paper.{data} is {row[data]!r:.40}", "give per cent, perhaps with the deviation")
    for claim in experiment.claims:
        check_claim(claim, arms, experiment.budgets)


def _data(arms: Mapping[str, Arm]) -> str:
    return next(iter(arms.values())).config.data if arms else ""


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later settings win; those of the network are joined."""
    merged: dict[str, Any] = {}
    for layer in map(with_recipe, layers):
        options = {**merged.get("options", {}), **dict(layer.get("options", {}))}
        merged |= {**layer, **({"options": options} if options else {})}
    return merged


def _listed(table: Mapping[str, Any], epochs: int) -> list[Lane]:
    """The lanes that a table of `more` describes: one for each alpha that it lists."""
    settings = with_epochs(table, epochs)
    if "alpha" not in settings:
        return [from_mapping(Lane, settings)]
    return [from_mapping(Lane, {**settings, "alpha": alpha}) for alpha in alphas_of(str(settings["alpha"]))]


def is_about(score: Score, number: PaperNumber) -> bool:
    """Whether the paper's number is about this model; it says nothing of cadence, so all are compared with it."""
    ours, theirs = (lane and dataclasses.replace(lane.compared, every="epoch") for lane in (score.lane, number.lane))
    return ours == theirs


def shortfall(config: Config, wanted: Config) -> str:
    """What a run lacks to be one with the wanted settings; nothing if it is one.

    >>> shortfall(Config(data="cifar10", train_size=10000, epochs=10), Config(data="cifar10"))
    '790 of 39,100 steps'
    """
    if config.data != wanted.data:
        return f"run on {config.data}, not on {wanted.data}"
    if any(getattr(config, name) != getattr(wanted, name) for name in LENGTH):
        steps, needed = _steps(config), _steps(dataclasses.replace(wanted, validation=config.validation))
        if steps is not None and needed is not None and steps != needed:
            return f"{steps:,} of {needed:,} steps" if steps < needed else f"{steps:,} steps instead of {needed:,}"
        if config.epochs < wanted.epochs:
            return f"{config.epochs:,} of {wanted.epochs:,} epochs"
    for f in dataclasses.fields(Config):
        value, other = getattr(config, f.name), getattr(wanted, f.name)
        unsaid = f.name == "source" and not other  # a file that only names a network does not say what its text is
        counts = f.metadata["changes_result"] and f.name not in (*OPEN, *OF_THE_USER) and not unsaid
        if counts and _closed(value) != _closed(other):
            return f"{f.name.replace('_', ' ')} {shown_setting(value)} instead of {shown_setting(other)}"
    return ""


def _steps(config: Config) -> int | None:
    images = config.train_size or (TRAIN_SIZE if config.data in LAYOUTS else None)
    return None if images is None else config.epochs * ceil((images - config.validation) / config.batch)


def _closed(value: Any) -> Any:
    """Options of the network without those that the paper leaves open."""
    pairs = isinstance(value, tuple) and value and isinstance(value[0], tuple)
    return tuple(pair for pair in value if pair[0] not in OPEN_OPTIONS) if pairs else value
