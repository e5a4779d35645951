"""The paper's tables and figures as files: what each asks, what it runs at which budget, the paper's numbers, claims.

An experiment has arms, each one configuration with its lanes; `reproduce` runs a sweep for each.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imlp.couplings.schedule import alphas_of
from imlp.errors import ConfigError, ImlpError, known
from imlp.paper.check_experiment import check_content
from imlp.paper.claims import judge
from imlp.paper.distance import lacking
from imlp.study.outcomes import Verdict
from imlp.study.scores import Arm, ArmPlan, Score
from imlp.train.config import Config, Lane, from_mapping, read, recorded
from imlp.train.lane import lanes_of, with_epochs

FOLDER = Path(__file__).parent
BUDGETS = ("smoke", "short", "paper")
KEYS = ("title", "asks", "assumed_std", "settings", "arms", "budgets", "paper", "claims")
OF_ARM = ("name", "alphas", "every", "more", "settings", *BUDGETS)  # a budget's: settings of the arm there
OF_BUDGET = ("seeds", "alphas", "every", "settings")


@dataclass(frozen=True)
class Experiment:
    """One of the TOML files beside this one, or a file of the user's own."""

    name: str
    content: Mapping[str, Any]

    @property
    def title(self) -> str:
        return str(self.content["title"])

    @property
    def asks(self) -> str:
        return " ".join(str(self.content["asks"]).split())

    def seeds(self, budget: str) -> int:
        return int(self._budget(budget).get("seeds", 3))

    def plans(self, budget: str, *, every: str | None = None, to_train: bool = True, **settings: Any) -> list[ArmPlan]:
        """The arms at a budget; `settings` of the caller, and how often to mix, win over the file's.

        Unless they are `to_train`, a network from outside the package is not run: a record may name any file.
        """
        own, found = self._budget(budget), []
        for arm in self.content["arms"]:
            theirs = (arm.get("settings", {}), own.get("settings", {}), arm.get(budget, {}))
            merged = _merged(self.content.get("settings", {}), *theirs, settings)
            cadence = every or own.get("every", arm.get("every"))
            lanes = lanes_of(own.get("alphas", arm["alphas"]), cadence)
            base = from_mapping(Config, merged) if to_train else recorded(merged)
            more = (lane for table in arm.get("more", ()) for lane in _listed(table, base.epochs))
            found.append(ArmPlan(arm["name"], base, tuple(dict.fromkeys((*lanes, *more)))))
        return found

    def _budget(self, name: str) -> Mapping[str, Any]:
        budgets: Mapping[str, Mapping[str, Any]] = self.content["budgets"]
        return budgets[known(name, budgets, "budget")]

    def arm_of(self, network: str) -> str | None:
        """The arm that asks about a network, by its name."""
        return next((plan.name for plan in self.plans("paper", to_train=False) if plan.base.network == network), None)

    def paper(self, data: str) -> list[dict[str, Any]]:
        """The paper's numbers for a data set: arm, the lane's settings (none: the prior), value and std."""
        found = []
        for row in self.content.get("paper", ()):
            if data in row:
                value, *std = row[data] if isinstance(row[data], list) else [row[data]]
                found.append(
                    {"arm": row["arm"], "lane": row.get("lane"), "value": value, "std": std[0] if std else None}
                )
        return found

    def outcome(self, arms: Mapping[str, Arm], *, budget: str, command: str) -> dict[str, Any]:
        """What `experiment.json` holds: our numbers beside the paper's, and the verdicts."""
        paper, far = self.paper(_data(arms)), self.lacking(arms)
        table, points = [], []
        for name, arm in arms.items():
            for score in arm.scores:
                theirs = next((row for row in paper if row["arm"] == name and is_about(score, row["lane"])), None)
                model = score.lane.title if score.lane else arm.prior_name
                value, std = (theirs["value"], theirs["std"]) if theirs else (None, None)
                difference = None if value is None or far else score.mean - value
                own = {"mean": score.mean, "std": score.std, "interval": score.interval, "n": score.n}
                table.append({
                    "arm": name, "model": model, **own, "paper": value, "paper_std": std, "difference": difference,
                })  # fmt: skip
                if theirs:
                    points.append({"arm": name, "model": model, "alpha": score.alpha, "value": value, "std": std})
        verdicts = [dataclasses.asdict(verdict) for verdict in self.judge(arms)]
        keys = [{"name": name, "key": arm.key} for name, arm in arms.items()]
        about = {"name": self.name, "title": self.title, "asks": self.asks, "budget": budget, "command": command}
        about["lacking"] = far  # of the paper's setting
        return {**about, "arms": keys, "table": table, "verdicts": verdicts, "paper": points}

    def judge(self, arms: Mapping[str, Arm]) -> list[Verdict]:
        """A verdict on each claim, by runs that are what it needs."""
        claims = self.content.get("claims", ())
        return judge(claims, arms, lacking=lambda needed: self.lacking(arms, needed), assumed=self.assumed_std(arms))

    def assumed_std(self, arms: Mapping[str, Arm]) -> float | None:
        """The largest standard deviation that the paper reports for these models, or the one that the file names."""
        deviations = [row["std"] for row in self.paper(_data(arms)) if row["std"] is not None]
        return max(deviations, default=self.content.get("assumed_std"))

    def lacking(self, arms: Mapping[str, Arm], budget: str = "paper") -> str:
        """What the runs lack of a budget's setting ("790 of 39,100 steps"); nothing if they have it."""
        if budget not in self.content["budgets"]:
            return ""
        data = _data(arms)
        known = any(data in row for row in self.content.get("paper", ()))
        named = {"data": data} if known else {}
        plans = {plan.name: plan.base for plan in self.plans(budget, to_train=False, **named)}
        found = (lacking(arm.config, plans[name]) for name, arm in arms.items() if name in plans)
        return next(filter(None, found), "")


def names() -> list[str]:
    """Every experiment that there is a file for."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_experiment(name: str) -> Experiment:
    """An experiment by its name, or from a file of your own."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{known(name, names(), 'experiment')}.toml"
    content = read(path)
    try:
        for key in content:
            known(key, KEYS, "key")
        check_content(content)
        for arm in content["arms"]:
            for key in arm:
                known(key, OF_ARM, "key of an arm")
        for budget in content["budgets"].values():
            for key in budget:
                known(key, OF_BUDGET, "key of a budget")
        experiment = Experiment(name, content)
        for budget in content["budgets"]:
            for plan in experiment.plans(budget, to_train=False):
                if not plan.lanes:
                    raise ConfigError(f"the arm {plan.name} has no lane", "give at least one alpha")
    except ImlpError as error:
        raise ConfigError(f"{path}: {error.problem}", error.remedy) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not an experiment: {error}", f"see {FOLDER}") from error
    return experiment


def _data(arms: Mapping[str, Arm]) -> str:
    return next(iter(arms.values())).config.data if arms else ""


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later settings win; those of the network are joined."""
    found: dict[str, Any] = {}
    for layer in layers:
        options = {**found.get("options", {}), **dict(layer.get("options", {}))}
        found |= {**layer, **({"options": options} if options else {})}
    return found


def _listed(table: Mapping[str, Any], epochs: int) -> list[Lane]:
    """The lanes that a table of `more` describes: one for each alpha that it lists."""
    own = with_epochs(table, epochs)
    alphas = alphas_of(str(own["alpha"])) if "alpha" in own else [None]
    return [from_mapping(Lane, own if alpha is None else {**own, "alpha": alpha}) for alpha in alphas]


def is_about(score: Score, lane: Mapping[str, Any] | None) -> bool:
    """Whether the paper's row is about this model; it says nothing of cadence, so all are compared with it."""
    if lane is None or score.lane is None:
        return lane is None and score.lane is None
    theirs = from_mapping(Lane, lane).compared
    return dataclasses.replace(score.lane, every="epoch") == dataclasses.replace(theirs, every="epoch")
