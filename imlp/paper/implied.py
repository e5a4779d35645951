"""Runs that no experiment asked for, judged by the experiments that ask about the same pair of networks."""

from collections.abc import Iterable, Mapping
from typing import Any

from imlp.paper import experiments
from imlp.study.outcomes import Beside, PaperPoint, Verdict
from imlp.study.scores import Arm

JUDGED_BY = {  # whose claims and numbers stand beside those of runs without an experiment
    "cnn": ("table1-cnn", "figure2-cnn", "decay"),
    "mixer": ("table1-mixer", "figure2-mixer"),
    "mlp1": ("first-layer",),
    "mlp2": ("first-layer",),
}


def implied(arm: Arm) -> list[dict[str, Any]]:
    """For runs without an experiment: the outcomes of the experiments that ask about the same pair."""
    found = []
    for name in () if arm.config.held_out else JUDGED_BY.get(arm.config.network, ()):
        experiment = experiments.read_experiment(name)
        own = experiment.arm_of(arm.config.network)
        if own is not None and arm.scores and experiment.paper(arm.config.data):
            found.append(experiment.outcome({own: arm}, budget="", command=""))
    return found


def decided(outcomes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The verdicts that something can be said about, each claim once."""
    verdicts = (verdict for outcome in outcomes for verdict in outcome["verdicts"])
    return list({one["claim"]: one for one in verdicts if not one["missing"]}.values())


def beside(arm: Arm) -> Beside:
    """What the paper says of runs without an experiment: its points if they are at its setting, and the verdicts."""
    outcomes = implied(arm)
    points = (point for outcome in outcomes if not outcome["lacking"] for point in outcome["paper"])
    distinct = {PaperPoint(**{**point, "arm": ""}): None for point in points}
    return Beside(tuple(distinct), tuple(Verdict(**verdict) for verdict in decided(outcomes)))
