"""Runs that no experiment asked for, judged by the experiments that ask about the same pair of networks."""

import dataclasses
from collections.abc import Iterable

from imlp.paper.experiments import read_experiment
from imlp.study.outcomes import ExperimentOutcome, FromPaper, Verdict
from imlp.study.scores import Arm

JUDGED_BY = {  # whose claims and numbers stand beside those of runs without an experiment
    "cnn": ("table1-cnn", "figure2-cnn", "decay"),
    "mixer": ("table1-mixer", "figure2-mixer"),
    "mlp1": ("first-layer",),
    "mlp2": ("first-layer",),
}


def implied(arm: Arm) -> list[ExperimentOutcome]:
    """For runs without an experiment: the outcomes of the experiments that ask about the same pair."""
    outcomes = []
    for name in () if arm.config.held_out else JUDGED_BY.get(arm.config.network, ()):
        experiment = read_experiment(name)
        asked = experiment.arm_of(arm.config.network)
        if asked is not None and arm.scores and experiment.paper(arm.config.data):
            outcomes.append(experiment.outcome({asked: arm}))
    return outcomes


def decided(outcomes: Iterable[ExperimentOutcome]) -> list[Verdict]:
    """The verdicts that something can be said about, each claim once."""
    verdicts = (verdict for outcome in outcomes for verdict in outcome.verdicts)
    return list({verdict.claim: verdict for verdict in verdicts if not verdict.missing}.values())


def from_paper(arm: Arm) -> FromPaper:
    """What the paper says of runs without an experiment: its points if they are at its setting, and the verdicts."""
    outcomes = implied(arm)
    points = (point for outcome in outcomes if not outcome.lacking for point in outcome.paper)
    return FromPaper(tuple({dataclasses.replace(point, arm=""): None for point in points}), tuple(decided(outcomes)))
