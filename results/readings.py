"""Which reading of the paper: its networks on CIFAR-10 with each setting that it leaves open, beside its numbers.

Runs of the paper's length are compared with the paper, in its standard deviations.
"""

import dataclasses
from collections.abc import Sequence

from epochs import at_lowest_loss, over_the_last

from imlp.paper import experiments
from imlp.paper.experiments import PaperNumber, shortfall
from imlp.study.scores import arms_of
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

Table = tuple[list[str], list[list[str]]]  # the names of its columns, and its rows


def tables(runs: Sequence[Run]) -> list[Table]:
    """The accuracies of each reading after its last epoch, and their distances from the paper's; none without runs.

    A run that was stopped stands there with its latest epoch, where no other of its reading has been run to the end.
    """
    arms = sorted((arm for arm in arms_of(runs) if _is_reading(arm.config)), key=lambda arm: differences(arm.config))
    accuracies: dict[tuple[str, ...], dict[str, str]] = {}
    distances: dict[tuple[str, ...], dict[str, str]] = {}
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
                    distances.setdefault((name, epoch), {}).setdefault(model, far)
            if scores[0] is not None:
                accuracies.setdefault((name, str(arm.config.epochs)), {}).setdefault(model, f"{scores[0].mean:.1f}")
            elif run := max((run for run in arm.runs if run.rows_of(lane)), key=_latest, default=None):
                accuracy = f"{100 * run.rows_of(lane)[-1]['test_accuracy']:.1f}"
                accuracies.setdefault((name, str(_latest(run))), {}).setdefault(model, accuracy)
    if not accuracies:
        return []
    finished = {name for name, epochs in accuracies if epochs == str(PAPER_CONFIG.epochs)}
    for key in [key for key in accuracies if key[0] in finished and key[1] != str(PAPER_CONFIG.epochs)]:
        del accuracies[key]
    paper = {model: f"{_paper(*of).value:.1f}" for model, of in MODELS.items()}
    accuracies["the paper", str(PAPER_CONFIG.epochs)] = paper
    return [_table(["reading", "epoch"], accuracies), *([_table(["reading", "read"], distances)] if distances else [])]


def _latest(run: Run) -> int:
    return max((row["epoch"] for row in run.rows), default=0)


def _paper(experiment: str, lane: Lane | None) -> PaperNumber:
    """The paper's number of a model on CIFAR-10."""
    numbers = experiments.read_experiment(experiment).paper(PAPER_CONFIG.data)
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
    words = {
        config.augment: config.augment != PAPER_CONFIG.augment,
        f"area {_span(config.crop_area)}, aspect {_span(config.crop_aspect)}": config.augment == "resized",
        "pixels from 0 to 1": config.inputs == "unit",
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


def _span(ends: str) -> str:
    return ends.replace(",", " to ")


def _named(config: Config) -> str:
    return ", ".join(differences(config)) or f"{PAPER_CONFIG.augment}, the default"
