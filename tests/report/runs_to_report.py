"""Runs and names that the tests of the report share."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import tiny_runs

from imlp.study.scores import arms_of
from imlp.train.callbacks import Callback
from imlp.train.loop import Interrupted
from imlp.train.run_reader import find_runs

HOSTILE = "</script><img src=x onerror=alert(1)>&\"' $x_1$ 100%"
ALPHAS = ("0", "1e-4", "1e-3", "1e-2", "0.1", "1")
LANES = tiny_runs.lanes(
    *ALPHAS, ("0.01", {"every": "step"}), ("1", {"every": "step"}), "decay:0.5:2", ("decay:0.5:2", {"every": "step"}),
    "decay:0.5:4",
)  # fmt: skip


class Stop(Callback):
    """Asks the run to stop in its second epoch, as a signal's handler does."""

    def stepped(self, trainer, images):
        if trainer.state.epoch == 1:
            trainer.stop_requested = "SIGINT"


class Poison(Callback):
    """Makes lane 1 infinite in the second epoch, so that the trainer takes it out."""

    def stepped(self, trainer, images):
        if trainer.state.epoch == 1 and len(trainer.state.active) == 2:
            trainer.state.lanes.parameters["conv2.weight"][1, ..., 0] = np.inf


def rows_of(table) -> list[dict[str, str]]:
    """A table as its CSV has it."""
    return list(csv.DictReader(io.StringIO(table.csv())))


def train_runs(root: Path) -> Path:
    """One arm of two seeds, and another with a run that is not finished and one with a lane that has stopped."""
    for seed in (0, 1):
        tiny_runs.run(root / "main" / f"seed{seed}", seed=seed, lanes=LANES)
    other = {"augment": "none", "lanes": tiny_runs.lanes(0, 0.5)}
    tiny_runs.run(root / "other" / "stopped", Poison(), **other)
    with pytest.raises(Interrupted):
        tiny_runs.run(root / "other" / "unfinished", Stop(), seed=1, **other)
    main, others = arms_of(find_runs([root]))
    table = {"arm": "first arm", "model": HOSTILE, "mean": 50.5, "std": 1.5, "n": 2, "paper": 58.36, "paper_std": 0.44}
    experiment = {
        "name": "figure2", "title": "Figure 2 & more", "asks": "Is there a `V`?", "budget": "smoke",
        "command": "python cli.py reproduce figure2 --budget smoke",
        "arms": [
            {"name": "second arm", "key": others.key}, {"name": "first arm", "key": main.key},
            {"name": "absent arm", "key": "0"},
        ],
        "table": [
            table | {"difference": 50.5 - 58.36},
            table | {"model": "S-CNN"} | dict.fromkeys(("mean", "std", "paper", "paper_std", "difference")),
        ],
        "verdicts": [
            {"claim": "alpha 1 is the prior", "verdict": "holds", "because": "it is within 1 point"},
            {"claim": "the dip is near 5e-3", "verdict": "fails", "because": HOSTILE},
            {"claim": "it rises", "verdict": "cannot tell", "because": "two seeds are few"},
        ],
        "paper": [
            {"arm": "first arm", "model": "alpha 0.01", "alpha": 0.01, "value": 51.5, "std": 0.86},
            {"arm": "first arm", "model": "S-CNN", "alpha": None, "value": 62.6, "std": 1.2},
            {"arm": "second arm", "model": "alpha 0", "alpha": 0, "value": 58.36, "std": None},
        ],
    }  # fmt: skip
    (root / "main" / "experiment.json").write_text(json.dumps(experiment))
    return root
