"""Which reading of the paper: its networks on CIFAR-10 with each setting that it leaves open, beside its numbers.

Runs of the paper's length are compared with the paper, in its standard deviations, and read off the last epoch and off
others: the paper does not say after which one it measured.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from imlp.paper import experiments
from imlp.paper.experiments import JUDGED_BY, PaperNumber, shortfall
from imlp.study.scores import Arm, Score, arms_of
from imlp.train.callbacks import Row
from imlp.train.config import Config, Lane
from imlp.train.run_reader import Run

PAPER_CONFIG = Config(data="cifar10")
NETWORKS = {"table1-cnn": "cnn", "decay": "cnn", "table1-mixer": "mixer"}  # of experiments with the paper's numbers
MODELS = {  # by name: the experiment that has its number, and its lane; None: the prior
    "S-CNN": ("table1-cnn", None),
    "S-MLP": ("table1-cnn", Lane(alpha="0")),
    "alpha 0.01": ("table1-cnn", Lane(alpha="0.01", every="step")),
    "alpha 1": ("table1-cnn", Lane(alpha="1", every="step")),
    "linear decay": ("decay", Lane(alpha="decay:0.5:1", every="step")),
    "MLP-Mixer": ("table1-mixer", None),
}
EPOCHS = ("last epoch", "mean of the last five", "lowest loss")
IMAGES, SHARE = 50_000, 0.9  # to train on; and of these at least, for a run to be a reading

COLUMNS = ["pair", "model", "last epoch", "mean of the last five", "at the lowest test loss", "highest", "the paper"]

Table = tuple[list[str], list[list[str]]]  # the names of its columns, and its rows


def tables(runs: Sequence[Run]) -> list[Table]:
    """The accuracies of each reading after its last epoch, and their distances from the paper's; none without runs.

    A run that was stopped stands there with its latest epoch, where no other of its reading has been run to the end.
    """
    arms = sorted((arm for arm in arms_of(runs) if _is_reading(arm.config)), key=lambda arm: differences(arm.config))
    accuracies: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    distances: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for arm in arms:
        name = _named(arm.config)
        for model, (experiment, lane) in MODELS.items():
            if arm.config.network != NETWORKS[experiment]:
                continue
            theirs = _paper(experiment, lane)
            scores = (arm.score(lane), over_the_last(arm, lane), at_lowest_loss(arm, lane))
            for epoch, score in zip(EPOCHS, scores, strict=True):
                if score is not None:
                    far = f"{(score.mean - theirs.value) / (theirs.std or 1):+.1f}"
                    distances[name, epoch].setdefault(model, far)
            if scores[0] is not None:
                accuracies[name, str(arm.config.epochs)].setdefault(model, f"{scores[0].mean:.1f}")
            elif run := max((run for run in arm.runs if run.rows_of(lane)), key=_latest, default=None):
                accuracy = f"{100 * run.rows_of(lane)[-1]['test_accuracy']:.1f}"
                accuracies[name, str(_latest(run))].setdefault(model, accuracy)
    if not accuracies:
        return []
    whole = str(PAPER_CONFIG.epochs)
    accuracies = {(n, end): row for (n, end), row in accuracies.items() if end == whole or (n, whole) not in accuracies}
    accuracies["the paper", whole] = {model: f"{_paper(*of).value:.1f}" for model, of in MODELS.items()}
    return [_table(["reading", "epoch"], accuracies), *([_table(["reading", "read"], distances)] if distances else [])]


def _latest(run: Run) -> int:
    return max((row["epoch"] for row in run.rows), default=0)


def _paper(experiment: str, lane: Lane | None) -> PaperNumber:
    """The paper's number of a model on CIFAR-10."""
    numbers = experiments.read_experiment(experiment).numbers(PAPER_CONFIG.data)
    return next(number for number in numbers if (number.lane and number.lane.alpha) == (lane and lane.alpha))


def _table(first: list[str], rows: dict[tuple[str, ...], dict[str, str]]) -> Table:
    """With the models that any of our runs has."""
    models = [model for model in MODELS if any(model in cells for key, cells in rows.items() if key[0] != "the paper")]
    return [*first, *models], [[*key, *(cells.get(model, "") for model in models)] for key, cells in rows.items()]


def _is_reading(config: Config) -> bool:
    """Whether it is the paper's setting but for what is open, and perhaps for a few images."""
    if config.network not in NETWORKS.values():
        return False
    whole = dataclasses.replace(config, train_size=None)
    enough = config.train_size is None or config.train_size >= SHARE * IMAGES
    paper = dataclasses.replace(PAPER_CONFIG, network=config.network)
    return config.data == PAPER_CONFIG.data and enough and not shortfall(whole, paper)


def differences(config: Config) -> list[str]:
    """What is not the default of what the paper leaves open, in words.

    >>> differences(Config(data="cifar10", augment="resized", crop_area="0.4,1", crop_aspect="1,1", inputs="unit"))
    ['resized', 'area 0.4 to 1, aspect 1 to 1', 'pixels from 0 to 1']
    """
    options = dict(config.options)
    area, aspect = (ends.replace(",", " to ") for ends in (config.crop_area, config.crop_aspect))
    words = {
        config.augment: config.augment != PAPER_CONFIG.augment,
        f"area {area}, aspect {aspect}": config.augment == "resized",
        "pixels from 0 to 1": config.inputs == "unit",
        "pixels from -1 to 1": config.inputs == "signed",
        f"{config.train_size or 0:,} images": config.train_size,
        f"{config.validation:,} held out": config.validation,
        f"norms after layers {' and '.join(map(str, options.get('activated', ())))}": "activated" in options,
        f"first channels {options.get('first_channels')}": "first_channels" in options,
        f"first stride {options.get('first_stride')}": "first_stride" in options,
        f"first kernel {options.get('first_kernel')}": "first_kernel" in options,
        f"first padding {options.get('first_padding')}": "first_padding" in options,
        "the Mixer not residual": options.get("residual") is False,
    }
    return [text for text, is_so in words.items() if is_so]


def _named(config: Config) -> str:
    return ", ".join(differences(config)) or f"{PAPER_CONFIG.augment}, the default"


def at_lowest_loss(arm: Arm, lane: Lane | None) -> Score | None:
    """Its accuracy after the epoch with the lowest loss, as early stopping would have it.

    The loss is that of the images held out, or, if there are none, that of the test images.
    """
    loss = "validation_loss" if arm.config.validation else "test_loss"

    def read(rows: list[Row]) -> float | None:
        known = all(loss in row for row in rows)
        return min(rows, key=lambda row: float(row[loss]))["test_accuracy"] if known else None

    return _read(arm, lane, read)


def over_the_last(arm: Arm, lane: Lane | None) -> Score | None:
    """The mean of its accuracies after each of the last five epochs, which depends less on the noise of one of them."""
    return _read(arm, lane, lambda rows: float(np.mean([row["test_accuracy"] for row in rows[-5:]])))


def at_best(arm: Arm, lane: Lane | None) -> Score | None:
    """Its highest accuracy after any epoch, which some code logs; it is chosen by the test images."""
    return _read(arm, lane, lambda rows: float(max(row["test_accuracy"] for row in rows)))


def after_epoch(arm: Arm, lane: Lane | None, epoch: int) -> Score | None:
    """Its accuracy after that epoch, in all runs that have come so far, also those that were stopped later."""
    rows = [(run.config.seed, row) for run in arm.runs for row in run.rows_of(lane)]
    by_seed = {seed: 100 * row["test_accuracy"] for seed, row in rows if row["epoch"] == epoch}
    return Score(lane, by_seed) if by_seed else None


def _read(arm: Arm, lane: Lane | None, read: Callable[[list[Row]], float | None]) -> Score | None:
    """What `read` makes of the rows of each finished run: an accuracy from 0 to 1, or None."""
    by_seed = {}
    for run in arm.runs:
        rows = run.rows_of(lane)
        if run.result and len(rows) == run.config.epochs and (accuracy := read(rows)) is not None:
            by_seed[run.config.seed] = 100 * accuracy
    return Score(lane, by_seed) if by_seed else None


def beside_paper(arms: Sequence[Arm]) -> Table:
    """A row for each of the paper's numbers that there is a finished run for, mixed after every step.

    It is read off the epochs in four ways: one epoch alone is noisy.
    """
    rows = [row for arm in arms if not differences(arm.config) for row in _rows_beside(arm)]
    return COLUMNS, rows


def _rows_beside(arm: Arm) -> list[list[str]]:
    rows: dict[Lane | None, list[str]] = {}
    for name in JUDGED_BY.get(arm.config.network, ()):
        experiment = experiments.read_experiment(name)
        asked = experiment.arm_of(arm.config.network)
        if asked is None or experiment.shortfall({asked: arm}):
            continue
        for number in (number for number in experiment.numbers(arm.config.data) if number.arm == asked):
            lane = number.lane
            if lane in rows or (score := arm.score(lane)) is None:
                continue
            scores = [score]
            if lane is None or lane.is_plain or lane.is_mixed_repeatedly:  # otherwise only the last epoch is mixed
                ways = over_the_last, at_lowest_loss, at_best
                scores += filter(None, (read(arm, lane) for read in ways))
            spread = "" if score.std is None else f" ± {score.std:.1f}"
            cells = [f"{score.mean:.1f}" for score in scores] + [""] * (4 - len(scores))
            cells[0] += f"{spread} ({score.n})"
            std = "" if number.std is None else f" ± {number.std:.1f}"
            model = arm.prior_name if lane is None else lane.title.removesuffix(", every step")
            rows[lane] = [f"{arm.config.network}, {arm.config.data}", model, *cells, f"{number.value:.1f}{std}"]
    return list(rows.values())
