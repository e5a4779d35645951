"""Which reading of the paper: the CNN pair on CIFAR-10 with each setting that it leaves open, beside its numbers.

Runs of the paper's length are compared with the paper, in its standard deviations. Runs that were stopped early are
compared with the default setting after the same epoch.
"""

import dataclasses
from collections.abc import Sequence

from imlp.study import experiments
from imlp.study.distance import lacking
from imlp.study.scores import Arm, arms_of
from imlp.train.config import Config, Lane
from imlp.train.run_reader import Run

EXPERIMENT, PAPER = "table1-cnn", Config(data="cifar10")
MODELS = {"S-CNN": None, "S-MLP": Lane(alpha="0"), "alpha 0.01": Lane(alpha="0.01", every="step")}
IMAGES, SHARE = 50_000, 0.9  # to train on; and of these at least, for a run to be a reading

Table = tuple[list[str], list[list[str]]]  # the names of its columns, and its rows


def tables(runs: Sequence[Run]) -> dict[str, Table]:
    """`finished` and `stopped early`, each if there is anything to put into it."""
    own = sorted((arm for arm in arms_of(runs) if _is_reading(arm.config)), key=lambda arm: differences(arm.config))
    usual = next((arm for arm in own if not differences(arm.config)), None)
    found = {"finished": _finished(own), "stopped early": _stopped(own, usual)}
    return {name: table for name, table in found.items() if table[1]}


def _is_reading(config: Config) -> bool:
    """Whether it is the paper's setting but for what is open, and perhaps for a few images."""
    whole = dataclasses.replace(config, train_size=None)
    enough = config.train_size is None or config.train_size >= SHARE * IMAGES
    return config.network == "cnn" and config.data == PAPER.data and enough and not lacking(whole, PAPER)


def differences(config: Config) -> list[str]:
    """What is not the default of what the paper leaves open, in words.

    >>> differences(Config(data="cifar10", augment="resized", crop_area="0.4,1", crop_aspect="1,1", inputs="unit"))
    ['resized', 'area 0.4 to 1, aspect 1 to 1', 'pixels from 0 to 1']
    """
    found = [config.augment] if config.augment != PAPER.augment else []
    if config.augment == "resized":
        found += [f"area {config.crop_area.replace(',', ' to ')}, aspect {config.crop_aspect.replace(',', ' to ')}"]
    found += ["pixels from 0 to 1"] if config.inputs == "unit" else []
    images = (config.train_size or IMAGES) - config.validation
    found += [f"{images:,} images"] if images != IMAGES else []
    options = dict(config.options)
    found += [f"norms after layers {' and '.join(map(str, options['activated']))}"] if "activated" in options else []
    return found


def _named(config: Config) -> str:
    return ", ".join(differences(config)) or f"{PAPER.augment}, the default"


def _finished(arms: Sequence[Arm]) -> Table:
    stated = experiments.read_experiment(EXPERIMENT).paper(PAPER.data)
    paper = {"prior" if row["lane"] is None else row["lane"]["alpha"]: row for row in stated}
    columns, rows = ["reading"], []
    for name in MODELS:
        columns += [name, "from the paper, in its std"]
    for arm in arms:
        cells = [_named(arm.config)]
        for lane in MODELS.values():
            score, theirs = arm.score(lane), paper["prior" if lane is None else lane.alpha]
            cells.append(f"{score.mean:.1f}" if score else "")
            cells.append(f"{(score.mean - theirs['value']) / theirs['std']:+.1f}" if score else "")
        if any(cells[1:]):
            rows.append(cells)
    last = [cell for key in ("prior", "0", "0.01") for cell in (f"{paper[key]['value']:.1f}", "")]
    return columns, [*rows, ["the paper", *last]] if rows else []


def _stopped(arms: Sequence[Arm], usual: Arm | None) -> Table:
    columns = ["reading", "epoch", *MODELS, "S-CNN with the default", "S-MLP with the default"]
    rows = []
    for arm in arms:
        for run in (run for run in arm.runs if run.result is None and run.rows):
            epoch = max(row["epoch"] for row in run.rows)
            own = [_accuracy(run, lane, epoch) for lane in MODELS.values()]
            beside = [_of_arm(usual, lane, epoch) for lane in (None, Lane(alpha="0"))]
            rows.append([_named(run.config), str(epoch), *own, *beside])
    return columns, rows


def _of_arm(arm: Arm | None, lane: Lane | None, epoch: int) -> str:
    """The first accuracy that any of its runs has for the lane after the epoch."""
    return next(filter(None, (_accuracy(run, lane, epoch) for run in (arm.runs if arm else ())[::-1])), "")


def _accuracy(run: Run, lane: Lane | None, epoch: int) -> str:
    if lane is not None and lane not in run.config.lanes:
        return ""
    rows = run.of("prior" if lane is None else run.config.lanes.index(lane))
    return next((f"{100 * row['test_accuracy']:.1f}" for row in rows if row["epoch"] == epoch), "")
