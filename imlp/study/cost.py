"""What runs cost on this machine, from a few real steps of their networks."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from imlp.data import Dataset, ProgressCallback, silent
from imlp.study.optuna_search import AT_ONCE, check_trials
from imlp.study.scores import ArmPlan
from imlp.train import prepare
from imlp.train.config import Config, Lane
from imlp.train.loop import Trainer

PIECE = 8 * 128  # images of the made-up data on which steps are timed
SIZES = {"shapes": (10000, 2000)}  # training and test images; CIFAR's for everything else
CIFAR = (50000, 10000)
EVALUATION = 0.3  # an evaluated image in trained ones, of 3 or 19 lanes of the CNN pair; up to twice an epoch
UNSURE = 1.5  # a range reaches from the estimate divided by this to the estimate times this: a few steps say no more
FINAL = 3  # lanes at the end of a search: the choice, alpha 0 and alpha 1

Speeds = dict[tuple[Any, ...], tuple[float, float]]  # by network and its options


def duration(seconds: float, *, measured: bool = False) -> str:
    """A time as a person would estimate it, or, if it was `measured`, to the second.

    >>> duration(12.34), duration(184), duration(7500)
    ('12 s', '3 min', '2 h 05 min')
    >>> duration(12.34, measured=True), duration(184, measured=True), duration(7500, measured=True)
    ('12.3 s', '3 min 04 s', '2 h 05 min')
    """
    minutes, most = (int(seconds) // 60, 60) if measured else (round(seconds / 60), 90)  # most of a unit
    if seconds < most:
        return f"{seconds:.1f} s" if measured else f"{seconds:.0f} s"
    if minutes < most:
        return f"{minutes} min {int(seconds) % 60:02d} s" if measured else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def span(seconds: float) -> str:
    """An estimate as the range that it is.

    >>> span(3600)
    '40 min to 1 h 30 min'
    """
    return f"{duration(seconds / UNSURE)} to {duration(seconds * UNSURE)}"


def counted(n: int, what: str) -> str:
    """
    >>> counted(1, "epoch"), counted(2000, "epoch")
    ('1 epoch', '2,000 epochs')
    """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def estimate(
    plans: Sequence[ArmPlan], seeds: int, *, data: Dataset | None = None, progress: ProgressCallback = silent
) -> dict[str, Any]:
    """`lanes`, `seeds` and expected `seconds` of all arms in this process, one run after the other.

    Without `data`, images are those of CIFAR, or of `shapes` where that is the data set.
    """
    seconds = seconds_of(plans, seeds, speeds_of((plan.base for plan in plans), progress, data), data)
    return {"lanes": sum(len(plan.lanes) for plan in plans), "seeds": seeds, "seconds": seconds}


def estimate_search(
    base: Config,
    trials: int,
    seeds: int,
    *,
    validation: float = 0.1,
    at_once: int | None = None,
    progress: ProgressCallback = silent,
) -> dict[str, Any]:
    """Of a search in which no lane is stopped early: `trials`, `seeds` and expected `seconds`."""
    check_trials(trials)
    data = prepare.load_data(base, progress)
    most = at_once or AT_ONCE
    plans = [ArmPlan("batch", base, (Lane(),) * min(most, trials - start)) for start in range(0, trials, most)]
    speeds = speeds_of([base], progress, data)
    seconds = (1 - validation) * seconds_of(plans, 1, speeds, data)
    seconds += seconds_of([ArmPlan("final", base, (Lane(),) * FINAL)], seeds, speeds, data)
    return {"trials": trials, "seeds": seeds, "seconds": seconds}


def speeds_of(bases: Iterable[Config], progress: ProgressCallback, data: Dataset | None = None) -> Speeds:
    """Of each network: seconds that a step of the prior takes, and of each lane beside it."""
    kinds, speeds = {(base.network, base.options): base for base in bases}, {}
    for k, (kind, base) in enumerate(kinds.items()):
        progress("timing a few steps of each network", k, len(kinds))
        speeds[kind] = _speed(base, data)
    return speeds


def _speed(base: Config, data: Dataset | None) -> tuple[float, float]:
    if data is None:
        rng, options = np.random.default_rng(0), dict(base.options)
        image, classes = options.get("image", (3, 32, 32)), options.get("classes", 10)
        x, y = rng.integers(0, 256, (PIECE, *image), np.uint8), rng.integers(0, classes, PIECE)
        data = Dataset("noise", x, y, x[:10], y[:10], tuple(map(str, range(classes))))
    one, three = (
        Trainer(dataclasses.replace(base, lanes=(Lane(),) * lanes), data, Path()).seconds_a_step() for lanes in (1, 3)
    )
    lane = max((three - one) / 2, one / 10)
    return max(one - lane, 0.0), lane


def seconds_of(plans: Iterable[ArmPlan], seeds: int, speeds: Speeds, data: Dataset | None = None) -> float:
    """Expected seconds of all arms and seeds, evaluation included."""
    total = 0.0
    for plan in plans:
        base = plan.base
        prior, lane = speeds[base.network, base.options]
        n, n_test = (len(data.x), len(data.x_test)) if data else SIZES.get(base.data, CIFAR)
        n, n_test = min(base.train_size or n, n), min(base.test_size or n_test, n_test)
        images = n + 2 * EVALUATION * n_test
        total += base.epochs * images / base.batch * (prior + lane * len(plan.lanes))
    return total * seeds
