"""Which reading of the paper: its networks on CIFAR-10 with each setting that it leaves open, beside its numbers.

Runs of the paper's length are compared with the paper, in its standard deviations. Runs that were stopped early are
compared with the default setting after the same epoch.
"""

import dataclasses
from collections.abc import Sequence

from imlp.paper import experiments
from imlp.paper.distance import lacking
from imlp.study.scores import Arm, Score, arms_of
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
IMAGES, SHARE = 50_000, 0.9  # to train on; and of these at least, for a run to be a reading

Table = tuple[list[str], list[list[str]]]  # the names of its columns, and its rows


def tables(runs: Sequence[Run]) -> dict[str, Table]:
    """`finished` and `stopped early`, each if there is anything to put into it."""
    own = sorted((arm for arm in arms_of(runs) if _is_reading(arm.config)), key=lambda arm: differences(arm.config))
    found = {"finished": _finished(own), "stopped early": _stopped(own)}
    return {name: _without_empty_columns(table) for name, table in found.items() if table[1]}


def _is_reading(config: Config) -> bool:
    """Whether it is the paper's setting but for what is open, and perhaps for a few images."""
    if config.network not in NETWORKS.values():
        return False
    whole = dataclasses.replace(config, train_size=None)
    enough = config.train_size is None or config.train_size >= SHARE * IMAGES
    paper = dataclasses.replace(PAPER_CONFIG, network=config.network)
    return config.data == PAPER_CONFIG.data and enough and not lacking(whole, paper)


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


def _finished(arms: Sequence[Arm]) -> Table:
    """Three rows for each reading, with the models of all networks, and one for the paper.

    The paper does not say of which epoch its accuracies are: of the last, or of that with the lowest loss.
    """
    columns, last = ["reading", "after the epoch"], ["the paper", ""]
    rows = {(_named(arm.config), when): [_named(arm.config), when] for arm in arms for when in _epochs(arm.config)}
    for model, (experiment, lane) in MODELS.items():
        numbers = experiments.read_experiment(experiment).paper(PAPER_CONFIG.data)
        theirs = next(n for n in numbers if (n.lane and n.lane.alpha) == (lane and lane.alpha))
        columns += [model, "from the paper, in its std"]
        last += [f"{theirs.value:.1f}", ""]
        scores: dict[tuple[str, str], Score] = {}
        for arm in (arm for arm in arms if arm.config.network == NETWORKS[experiment]):
            found = (arm.score(lane), arm.score_over_the_last(lane), arm.score_at_lowest_loss(lane))
            for when, score in zip(_epochs(arm.config), found, strict=True):
                if score is not None:
                    scores.setdefault((_named(arm.config), when), score)
        for key, cells in rows.items():
            score = scores.get(key)
            cells.append(f"{score.mean:.1f}" if score else "")
            cells.append(f"{(score.mean - theirs.value) / (theirs.std or 1):+.1f}" if score else "")
    found_any = [cells for cells in rows.values() if any(cells[2:])]
    return columns, [*found_any, last] if found_any else []


def _epochs(config: Config) -> tuple[str, str, str]:
    """The epochs whose accuracies are compared with the paper's."""
    return "last", "last five, their mean", f"of the lowest {'validation' if config.validation else 'test'} loss"


def _stopped(arms: Sequence[Arm]) -> Table:
    """A row for each run; beside those of the CNN pair, the default setting."""
    default = [arm for arm in arms if arm.config.network == "cnn" and not differences(arm.config)]
    usual = max(default, key=lambda arm: len(arm.scores), default=None)
    columns, rows = ["reading", "epoch", *MODELS, "S-CNN with the default", "S-MLP with the default"], []
    for arm in arms:
        for run in (run for run in arm.runs if run.result is None and run.rows):
            epoch, network = max(row["epoch"] for row in run.rows), run.config.network
            own = [_accuracy(run, lane, epoch) if network == NETWORKS[of] else "" for of, lane in MODELS.values()]
            beside = [_of_arm(usual, lane, epoch) for lane in (None, Lane(alpha="0")) if network == "cnn"]
            rows.append([_named(run.config), str(epoch), *own, *(beside or ["", ""])])
    return columns, rows


def _without_empty_columns(table: Table) -> Table:
    """Without the models that no run has; the paper's row, the last of the finished ones, does not count."""
    columns, rows = table
    ours = [row for row in rows if row[0] != "the paper"]
    kept = [k for k in range(len(columns)) if any(row[k] for row in ours)]
    return [columns[k] for k in kept], [[row[k] for k in kept] for row in rows]


def _of_arm(arm: Arm | None, lane: Lane | None, epoch: int) -> str:
    """The first accuracy that any of its runs has for the lane after the epoch."""
    return next(filter(None, (_accuracy(run, lane, epoch) for run in (arm.runs if arm else ())[::-1])), "")


def _accuracy(run: Run, lane: Lane | None, epoch: int) -> str:
    rows = (row for row in run.rows_of(lane) if row["epoch"] == epoch)
    return next((f"{100 * row['test_accuracy']:.1f}" for row in rows), "")
