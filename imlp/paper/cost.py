"""What the experiments cost on this machine, and the largest that fits into a night."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imlp.data.dataset import ProgressCallback, silent
from imlp.errors import ConfigError
from imlp.files import make_folder, write_json
from imlp.paper.experiments import BUDGETS, Budget, Experiment, names, read_experiment
from imlp.study.cost import UNSURE, counted, seconds_of, span, speeds_of
from imlp.train.run_reader import read_json

NIGHT = 8 * 3600  # seconds
EPOCHS = (100, 50, 25, 12, 6, 3)
ALPHAS = (("0,1e-4..1:9log", 2), ("0,1e-4..1:9log", 1), ("0,1e-3..1:4log", 2), ("0,1e-3..1:4log", 1))  # and seeds
CHOICE = "overnight.json"


def costs(progress: ProgressCallback = silent) -> dict[str, dict[str, float]]:
    """The expected seconds of every experiment at each budget, from a few steps of every network."""
    loaded = [read_experiment(name) for name in names()]
    plans = {e.name: {budget: e.plans(budget) for budget in BUDGETS} for e in loaded}
    speeds = speeds_of(
        (plan.base for budgets in plans.values() for arms in budgets.values() for plan in arms), progress
    )
    return {e.name: {b: seconds_of(plans[e.name][b], e.seeds(b), speeds) for b in BUDGETS} for e in loaded}


def overnight(
    experiment: Experiment,
    given: Mapping[str, Any],
    seeds: int | None,
    folder: Path | None,
    progress: ProgressCallback = silent,
) -> tuple[Experiment, str]:
    """The experiment with a budget `overnight`, the best that is expected to fit into eight hours, and its description.

    All images, one cadence; rather more epochs than more alphas, and more alphas than a second seed. The choice is kept
    in `folder`, so the same command resumes the same runs whatever the machine is doing then.
    """
    paper = experiment.budgets["paper"]
    if paper.alphas is None:
        raise ConfigError(f"overnight is for figure 2, not {experiment.name}", f"use --budget {' or '.join(BUDGETS)}")
    speeds = None
    kept = read_json(folder / CHOICE, {"seeds": int}) if folder and (folder / CHOICE).exists() else None
    choices = [
        Budget(kept["seeds"] if kept else seeds or usual, alphas, settings={**paper.settings, "epochs": epochs})
        for epochs in EPOCHS
        for alphas, usual in ALPHAS
    ]
    if kept and not (choices := [choice for choice in choices if dataclasses.asdict(choice) == kept][:1]):
        remedy = "delete it, or choose another folder with --out"  # it may be somebody else's, and name code
        raise ConfigError(f"{CHOICE} in {folder} is none of the choices for a night", remedy)
    for choice in choices:
        budgets = {**experiment.budgets, "overnight": choice}
        cut = dataclasses.replace(experiment, budgets=budgets)
        plans = cut.plans("overnight", **given)
        speeds = speeds or speeds_of((plan.base for plan in plans), progress)
        n = seeds or choice.seeds
        seconds = seconds_of(plans, n, speeds)
        if len(choices) == 1 or seconds * UNSURE <= NIGHT:
            break
    else:
        raise ConfigError("no figure 2 fits into eight hours on this machine", "use --budget short")
    if folder:
        make_folder(folder)
        write_json(folder / CHOICE, dataclasses.asdict(choice))
    lanes, epochs = sum(len(plan.lanes) for plan in plans), plans[0].base.epochs
    what = f"all images, {counted(lanes, 'alpha')}, {counted(epochs, 'epoch')}, {counted(n, 'seed')}"
    return cut, f"{what}: {span(seconds)} on this machine"
