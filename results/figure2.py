"""Figure 2 as the runs on record have it: accuracy against alpha with the CNN prior on CIFAR-10.

The best evidence there is: runs at the paper's setting as soon as they have enough alphas, until then those with most.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from readings import at_lowest_loss, differences

from imlp.paper import experiments
from imlp.study.scores import Arm, arms_of
from imlp.train.config import Lane
from imlp.train.run_reader import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME, ARM, DATA = "figure2-cnn", "CNN pair", "cifar10"
FEWEST = 4  # alphas above 0 in one series, for it to be a curve


def best_arm(runs: Sequence[Run]) -> Arm | None:
    """The runs that show the curve best, wherever they lie; None if none do."""

    def alphas(arm: Arm) -> int:
        return max((len(arm.scores_of(lanes)) for lanes in series(arm).values()), default=0)

    return best_evidence(runs, alphas, FEWEST)


def best_evidence(runs: Sequence[Run], points: Callable[[Arm], int], fewest: int) -> Arm | None:
    """Of the arms with at least so many points: the paper's setting, then our reading of it, most points, longest."""

    def rank(arm: Arm) -> tuple[Any, ...]:
        length = arm.config.epochs * (arm.config.train_size or 10**9)
        return not shortfall(arm), not differences(arm.config), points(arm), length

    of_pair = [run for run in runs if (run.config.network, run.config.data) == ("cnn", DATA)]
    return max((arm for arm in arms_of(of_pair) if points(arm) >= fewest), key=rank, default=None)


def shortfall(arm: Arm) -> str:
    """What the runs lack of the paper's setting; nothing if they have it."""
    return experiments.read_experiment(NAME).shortfall({ARM: arm})


def described(arm: Arm, lanes: Iterable[Lane]) -> str:
    """Length, reading, and the seeds of these lanes, in words."""
    config, counts = arm.config, sorted({score.n for score in arm.scores_of(lanes)})
    seeds = " to ".join(map(str, counts if len(counts) < 2 else (counts[0], counts[-1])))
    images = f" of {config.train_size:,} images" if config.train_size else ""
    far, rounded = shortfall(arm), any(run.config.products != "full" for run in arm.runs)
    setting = f" ({far})" if far else ", ".join([", the paper's setting", *differences(config)])
    precision = ", in part with products in bfloat16" if rounded else ""
    return f"{config.epochs} epochs{images}{setting}, {seeds} {'seed' if seeds == '1' else 'seeds'}{precision}"


def series(arm: Arm) -> dict[str, list[Lane]]:
    """By cadence the lanes of the paper's interpolation with a constant alpha above 0, smallest first."""
    return {base.every: lanes for base, lanes in arm.series.items() if base == Lane(alpha="0", every=base.every)}


def drawn(arm: Arm) -> list[Lane]:
    """The lanes of the curves; alpha 0 begins each of them."""
    return [Lane(alpha="0"), *(lane for lanes in series(arm).values() for lane in lanes)]


def figure(arm: Arm) -> "Figure":
    """Both cadences with their spread, the prior, and, at the paper's setting, the paper's points.

    A second curve has each accuracy after the epoch of the lowest test loss: the paper's may be of the last or of that.
    """
    from imlp.report import figures, gather

    outcome = experiments.read_experiment(NAME).outcome({ARM: arm})
    (data,) = gather.gather([arm], [dataclasses.replace(outcome, paper=[]) if outcome.shortfall else outcome])
    every, lanes = max(series(arm).items(), key=lambda item: len(arm.scores_of(item[1])))
    early = {lane: at_lowest_loss(arm, lane) for lane in (Lane(alpha="0"), *lanes)}
    curve = [(float(lane.alpha), score.mean) for lane, score in early.items() if score]  # none without losses on record
    loss = f"{'validation' if arm.config.validation else 'test'} loss"
    name = f"mixed every {every}, after the epoch of the lowest {loss}"
    made = figures.against_alpha(data, fits=False, beside={name: curve} if curve else {}, size=(8, 5))
    made.axes[0].set_title(f"CIFAR-10, CNN prior: {described(arm, drawn(arm))}", fontsize=10)
    return made


def points(arm: Arm) -> dict[str, Any]:
    """The curves as numbers: by cadence the alphas with mean, standard deviation and number of seeds."""
    zero = [score for score in arm.scores if score.alpha == 0][:1]
    curves = {
        every: [_point(score) for score in (*zero, *scores)]
        for every, lanes in series(arm).items()
        if len(scores := arm.scores_of(lanes)) >= FEWEST
    }
    prior, parameters = arm.score(None), next(run.result["parameters"] for run in arm.runs if run.result)
    about = {"what": described(arm, drawn(arm)), "prior": _point(prior) if prior else None}
    return {**about, "curves": curves, "parameters": parameters}


def _point(score: Any) -> dict[str, Any]:
    return {"alpha": score.alpha, "accuracy": score.mean / 100, "std": score.std and score.std / 100, "n": score.n}
