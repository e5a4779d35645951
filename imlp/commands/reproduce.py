"""`reproduce`: a table or figure of the paper by name, with the paper's numbers beside ours."""

import dataclasses
import json as json_format
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from imlp.backend import backend as get_backend
from imlp.commands.console import err, out, print_json
from imlp.commands.options import Address, Check, Cpus, Engine, Gpus, Json, Quiet, started
from imlp.commands.progress import watched
from imlp.commands.sweep import arm_of, failures, run_sweep
from imlp.commands.sweep_display import Board
from imlp.commands.train import config_of, duration, load_data, settings_as_options
from imlp.errors import ConfigError
from imlp.files import check_path, write_whole
from imlp.study import experiments
from imlp.study.experiments import BUDGETS, Experiment, Trial
from imlp.study.scores import Arm
from imlp.train.config import Config, Lane, check_seeds
from imlp.train.data import Dataset
from imlp.train.loop import Trainer

EXPERIMENT = "This experiment"
PIECE = 8 * 128  # images of the made-up data on which steps are timed
SIZES = {"shapes": (10000, 2000)}  # training and test images; CIFAR's for everything else
CIFAR = (50000, 10000)
EVALUATION = 0.3  # an evaluated image in trained ones, of 3 or 19 lanes of the CNN pair; up to twice an epoch


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=EXPERIMENT, **more)


@settings_as_options(hidden=("network", *(f.name for f in dataclasses.fields(Lane))))
def reproduce(
    name: Annotated[str | None, typer.Argument(help="An experiment (see --list), or a TOML file of your own.")] = None,
    budget: Annotated[
        str, _option("smoke (two minutes, on shapes), short (about an hour, on CIFAR-10) or paper.", "--budget")
    ] = "smoke",
    seeds: Annotated[int | None, _option("How many seeds. Default: the budget's.", "--seeds", min=1)] = None,
    list_all: Annotated[bool, _option("List the experiments, with their cost on this machine.", "--list")] = False,
    out_folder: Annotated[
        Path | None, _option("The folder for all runs. Default: runs/NAME-BUDGET-DATA.", "--out")
    ] = None,
    at_once: Annotated[
        int | None, _option("Lanes in one run. Default: as many as memory allows.", "--lanes-at-once", min=1)
    ] = None,
    page: Annotated[bool, _option("Write FOLDER/report.html at the end.", "--report/--no-report")] = True,
    engine: Engine = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    check: Check = True,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Run an experiment of the paper: our numbers beside the paper's, and a verdict on each of its claims.

    Give the same command again at any time: what is finished is skipped, and what was interrupted goes on.

    - `reproduce --list`: all of them, what each asks, and how long it takes here
    - `reproduce figure2-cnn`: the whole way in two minutes, too small to mean anything
    - `reproduce figure2-cnn --budget short`: about an hour, after `data fetch cifar10`
    - `reproduce table1-cnn --budget paper --data cifar100`: the paper's own setting
    """
    if list_all:
        print_list(json)
        return
    if name is None:
        raise ConfigError("no experiment is named", f"name one of {', '.join(experiments.names())}; see --list")
    experiment = experiments.load(name)
    given = _checked(settings)
    trials = experiment.trials(budget, **given)
    folder = check_path(out_folder or _folder(experiment, budget, trials, given))
    board, seeds = Board(quiet=quiet or json), check_seeds(seeds or experiment.seeds(budget))
    arms: dict[str, Arm] = {}
    failed: list[dict[str, str]] = []
    first = given.get("seed", 0)
    with started(engine, address, cpus, gpus, quiet=quiet or json) as cluster:
        for trial in trials:
            get_backend(trial.base.backend)
            data = load_data(trial.base, quiet=quiet or json)
            where = folder / re.sub(r"\W+", "-", trial.name.lower())
            span = range(first, first + seeds)
            if board.lines:
                board = Board(quiet=quiet or json)
            ways: dict[str, Any] = {"at_once": at_once, "check": check, "cluster": cluster}
            outcomes = run_sweep(trial.base, trial.lanes, span, where, data, board, **ways)
            failed += failures(outcomes)
            arm = arm_of(outcomes)
            arms |= {trial.name: arm} if arm else {}
    command = shlex.join(["python", "cli.py", *sys.argv[1:]])
    outcome = experiment.outcome(arms, budget=budget, command=command)
    with write_whole(folder / "experiment.json") as file:
        file.write((json_format.dumps(outcome, indent=2) + "\n").encode())
    if page and arms:
        from imlp.study import report  # matplotlib takes a second to import

        with watched(quiet=quiet or json) as progress:
            report.write([folder], folder / "report.html", progress)
    if json:
        print_json({"folder": str(folder), "failed": failed, **outcome})
    else:
        print_outcome(outcome)
        out.print(f"files: {folder}/" + (", a page to show: report.html" if page else ""), soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of the command line as a file would have them; lanes are the experiment's own."""
    lanes = [f.name for f in dataclasses.fields(Lane) if f.name in settings]
    if lanes:
        raise ConfigError(f"--{lanes[0]} is for train and sweep", "an experiment has its own lanes; copy its TOML file")
    if "network" in settings:
        raise ConfigError("--network is for train and sweep", "an experiment has its own networks")
    names = set(settings)
    options = dict(config_of(None, {"options": settings["options"]}).options) if "options" in settings else {}
    given = {name: settings[name] for name in names if name != "options"}
    return {**given, **({"options": options} if options else {})}


def _folder(experiment: Experiment, budget: str, trials: Sequence[Trial], given: dict[str, Any]) -> Path:
    """Its name says what was changed, so that two variations never share a folder."""
    changing = {f.name for f in dataclasses.fields(Config) if f.metadata["changes_result"]} - {"data", "seed"}
    name = f"{Path(experiment.name).stem}-{budget}-{Path(trials[0].base.data).name}"
    changed = "".join(f"-{key}={given[key]}" for key in sorted(given.keys() & changing))
    return Path("runs") / (name + re.sub(r"[^\w=.,-]+", "_", changed))


def print_outcome(outcome: dict[str, Any]) -> None:
    """The table with the paper's numbers, then the verdicts."""
    several = len(outcome["arms"]) > 1
    title = f"{outcome['title']} ({outcome['budget']}): test accuracy, %"
    table = Table(title=title, title_justify="left")
    for column in (*(["arm"] if several else []), "model", "ours", "seeds", "paper", "difference"):
        table.add_column(column, justify="left" if column in ("arm", "model") else "right", overflow="fold")
    for row in outcome["table"]:
        ours, paper = plus_minus(row["mean"], row["std"]), plus_minus(row["paper"], row["paper_std"])
        difference = f"{row['difference']:+.2f}" if row["difference"] is not None else ""
        cells = [row["model"], ours, str(row["n"]), paper, difference]
        table.add_row(*([row["arm"]] if several else []), *cells)
    out.print(table)
    for verdict in outcome["verdicts"]:
        out.print(f"{verdict['verdict'].upper()}: {verdict['claim']}", soft_wrap=True)
        out.print(f"    {verdict['because']}", soft_wrap=True)
    if outcome["budget"] == "smoke" and outcome["verdicts"]:
        out.print("(a smoke run shows that everything works; it is too small for its verdicts to mean anything)")


def plus_minus(mean: float | None, std: float | None) -> str:
    return "" if mean is None else f"{mean:.2f}" + (f" +- {std:.2f}" if std is not None else "")


def print_list(json: bool) -> None:
    """Every experiment with what it asks, and each budget's time from real steps of its networks."""
    loaded = [experiments.load(name) for name in experiments.names()]
    speed: dict[str, tuple[float, float]] = {}
    with watched(quiet=json) as progress:
        trials = [trial for e in loaded for budget in BUDGETS for trial in e.trials(budget)]
        kinds = {_kind(trial.base): trial.base for trial in trials}
        for k, (kind, base) in enumerate(kinds.items()):
            progress("timing a few steps of each network", k, len(kinds))
            speed[kind] = _seconds(base)
    rows: list[dict[str, Any]] = []
    for e in loaded:
        cost = {budget: _cost(e, budget, speed) for budget in BUDGETS}
        rows.append({"name": e.name, "title": e.title, "asks": e.asks, "seconds": cost})
    if json:
        print_json(rows)
        return
    table = Table(title="experiments, and how long each budget takes on this machine", title_justify="left")
    for column in ("name", "what it asks", *BUDGETS):
        table.add_column(column, overflow="fold")
    for row in rows:
        times = [duration(row["seconds"][budget]) for budget in BUDGETS]
        table.add_row(row["name"], f"{row['title']}. {row['asks']}", *times, end_section=True)
    out.print(table)
    err.print("estimated from a few steps, evaluation included; checkpoints and other programs come on top")


def _kind(base: Config) -> str:
    return f"{base.network} {base.options}"


def _seconds(base: Config) -> tuple[float, float]:
    """Seconds a step of the prior, and of each lane beside it, from a few real steps on noise."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (PIECE, 3, 32, 32), np.uint8), rng.integers(0, 10, PIECE)
    noise = Dataset("noise", x, y, x[:10], y[:10], tuple(map(str, range(10))))
    one, three = (
        Trainer(dataclasses.replace(base, lanes=(Lane(),) * lanes), noise, Path()).seconds_a_step() for lanes in (1, 3)
    )
    lane = max((three - one) / 2, one / 10)
    return max(one - lane, 0.0), lane


def _cost(experiment: Experiment, budget: str, speed: dict[str, tuple[float, float]]) -> float:
    """Expected seconds of all arms and seeds."""
    total = 0.0
    for trial in experiment.trials(budget):
        base, (prior, lane) = trial.base, speed[_kind(trial.base)]
        n, n_test = SIZES.get(base.data, CIFAR)
        n, n_test = min(base.train_size or n, n), min(base.test_size or n_test, n_test)
        images = n + 2 * EVALUATION * n_test
        total += base.epochs * images / base.batch * (prior + lane * len(trial.lanes))
    return total * experiment.seeds(budget)
