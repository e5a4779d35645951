"""Figure 3 and table 4 as the runs on record have them: what an alpha that decays over the epochs leaves behind.

`alpha[t] = 0.5 (1 - t / t_max)^k`, after every step, with the CNN prior on CIFAR-10.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from figure2 import DATA, best_evidence, described, shortfall

from imlp.paper import experiments
from imlp.study.scores import Arm
from imlp.train.config import Lane
from imlp.train.run_reader import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALPHAS = {0: "0.5", **{k: f"decay:0.5:{k}" for k in (1, 2, 4, 8)}}  # by the power k
LANES = {k: Lane(alpha=alpha, every="step") for k, alpha in ALPHAS.items()}
FEWEST = 3  # schedules, for them to be compared


def best_arm(runs: Sequence[Run]) -> Arm | None:
    """The runs that show the schedules best, wherever they lie; None if none do."""
    return best_evidence(runs, lambda arm: len(arm.scores_of(LANES.values())), FEWEST)


def figure(arm: Arm) -> "Figure":
    """Left: accuracy by epoch under each schedule. Right: where it ends, by k, and the paper's if the setting is."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    made = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = made.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    known = {k: score for k, lane in LANES.items() if (score := arm.score(lane))}
    shades = dict(zip(known, colormaps["plasma"](np.linspace(0.8, 0.05, len(known))), strict=True))
    plain = {arm.prior_name: (None, ":"), "S-MLP": (Lane(alpha="0"), "--")}
    for name, (lane, dashes) in plain.items():
        if (score := arm.score(lane)) is not None:
            left.plot(*_by_epoch(arm, lane), color="grey", linestyle=dashes, linewidth=1.2, label=name)
            right.axhline(score.mean, color="grey", linestyle=dashes, linewidth=1.2)
    for place, (k, score) in enumerate(known.items()):
        label = "constant 0.5 (k = 0)" if k == 0 else f"k = {k}"
        left.plot(*_by_epoch(arm, LANES[k]), color=shades[k], label=label)
        right.errorbar(place, score.mean, score.std or 0, color=shades[k], marker="s", markersize=7, capsize=4)
    theirs = [] if shortfall(arm) else experiments.read_experiment("decay").numbers(DATA)
    paper = {number.lane.alpha: number for number in theirs if number.lane}
    shown = {place + 0.18: paper[ALPHAS[k]] for place, k in enumerate(known) if ALPHAS[k] in paper}
    if shown:
        values, deviations = [number.value for number in shown.values()], [number.std for number in shown.values()]
        diamonds: dict[str, Any] = {"marker": "D", "markerfacecolor": "none", "color": "black", "linestyle": "none"}
        right.errorbar([*shown], values, deviations, capsize=4, label="the paper", **diamonds)
        right.legend(fontsize=8)
    right.set_xticks(range(len(known)), [str(k) for k in known])
    right.set(xlabel="k: the larger, the sooner alpha is 0", title="after the last epoch")
    left.set(
        xlabel="epoch", ylabel=f"{arm.config.measure}, %", title="alpha = 0.5 (1 - t / T)^k, mixed after every step"
    )
    left.legend(fontsize=8, loc="lower right")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    made.suptitle(f"CIFAR-10, CNN prior: {described(arm, LANES.values())}", fontsize=11)
    return made


def _by_epoch(arm: Arm, lane: Lane | None) -> tuple[np.ndarray, np.ndarray]:
    """Epochs, and the mean accuracy over the seeds in per cent after each."""
    curves = {}
    for run in arm.runs:  # where a seed has a model twice, the last one counts, as in its score
        ended = run.result["models"] if run.result else ()  # without lanes that have stopped
        if run.key_of(lane) in {row["lane"] for row in ended}:
            curves[run.config.seed] = [100 * row["test_accuracy"] for row in run.rows_of(lane)]
    mean = np.mean(list(curves.values()), axis=0)
    return np.arange(1, len(mean) + 1), mean
