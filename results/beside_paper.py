"""Our accuracies at the paper's setting beside the paper's own, read off the epochs in four ways.

The paper does not say after which epoch it measured, and one epoch alone is noisy.
"""

from collections.abc import Sequence

import readings

from imlp.paper import experiments
from imlp.paper.experiments import JUDGED_BY
from imlp.study.scores import Arm
from imlp.train.config import Lane

COLUMNS = ["pair", "model", "last epoch", "mean of the last five", "at the lowest test loss", "highest", "the paper"]


def table(arms: Sequence[Arm]) -> readings.Table:
    """A row for each of the paper's numbers that there is a finished run for, mixed after every step."""
    rows = [row for arm in arms if not readings.differences(arm.config) for row in _rows(arm)]
    return COLUMNS, rows


def _rows(arm: Arm) -> list[list[str]]:
    rows: dict[Lane | None, list[str]] = {}
    for name in JUDGED_BY.get(arm.config.network, ()):
        experiment = experiments.read_experiment(name)
        asked = experiment.arm_of(arm.config.network)
        if asked is None or experiment.shortfall({asked: arm}):
            continue
        for number in (number for number in experiment.paper(arm.config.data) if number.arm == asked):
            lane = number.lane
            if lane in rows or (score := arm.score(lane)) is None:
                continue
            scores = [score]
            if lane is None or lane.is_plain or lane.is_mixed_repeatedly:  # otherwise only the last epoch is mixed
                ways = readings.over_the_last, readings.at_lowest_loss, readings.at_best
                scores += filter(None, (read(arm, lane) for read in ways))
            spread = "" if score.std is None else f" ± {score.std:.1f}"
            cells = [f"{score.mean:.1f}" for score in scores] + [""] * (4 - len(scores))
            cells[0] += f"{spread} ({score.n})"
            std = "" if number.std is None else f" ± {number.std:.1f}"
            model = arm.prior_name if lane is None else lane.title.removesuffix(", every step")
            rows[lane] = [f"{arm.config.network}, {arm.config.data}", model, *cells, f"{number.value:.1f}{std}"]
    return list(rows.values())
