"""`reproduce`: a table or figure of the paper by name, with the paper's numbers beside ours."""

import dataclasses
import shlex
import sys
from contextlib import closing
from typing import Annotated, Any

import typer

from imlp.commands.console import err, in_panel, out, print_json, table, watched
from imlp.commands.options import Study, exit_if_interrupted, settings_as_options, with_options
from imlp.commands.sweep_display import Board, print_estimate
from imlp.errors import ConfigError, program
from imlp.paper import experiments, run_experiment
from imlp.paper.cost import costs, overnight
from imlp.study import cost
from imlp.study.cost import span
from imlp.study.outcomes import ExperimentOutcome
from imlp.study.scores import plus_minus
from imlp.train.config import Lane, check_seeds

_option = in_panel("This experiment")
DECIDED = ("network", *(f.name for f in dataclasses.fields(Lane) if f.name != "every"))  # by an experiment


@settings_as_options(
    hidden=DECIDED,
    every="How often W is moved: step, epoch (algorithm 1), a number of steps; or a list: epoch,step. "
    "Default: the experiment's.",
)
def reproduce(
    name: Annotated[str | None, typer.Argument(help="An experiment (see --list), or a TOML file of your own.")] = None,
    budget: Annotated[
        str, _option("smoke (two minutes, on shapes), short (an hour, CIFAR-10), overnight (figure 2), paper.")
    ] = "smoke",
    seeds: Annotated[int | None, _option("How many seeds. Default: the budget's.", min=1)] = None,
    list_all: Annotated[bool, _option("List the experiments; with --estimate, their cost here.", "--list")] = False,
    page: Annotated[bool, _option("Write FOLDER/report.html at the end.", "--report/--no-report")] = True,
    *,
    study: Study,
    settings: dict[str, Any],
) -> None:
    """Run an experiment of the paper: our numbers beside the paper's, and a verdict on each of its claims.

    Run the same command again at any time: what is finished is skipped, and what was interrupted is resumed.

    - `reproduce --list`: all of them; with `--estimate`, how long each takes here (it times every network first)
    - `reproduce figure2-cnn`: the whole way in two minutes, too small to mean anything
    - `reproduce figure2-cnn --budget short`: about an hour, after `data fetch cifar10`
    - `reproduce figure2-cnn --budget overnight`: as much of figure 2 as fits into eight hours on this machine
    - `reproduce table1-cnn --budget paper --data cifar100`: the paper's own setting
    - `reproduce table1-cnn --budget paper --every epoch,step`: once per epoch too, as algorithm 1 says
    """
    if list_all:
        print_list(estimate=study.estimate, json=study.json)
        return
    if name is None:
        raise ConfigError("no experiment is named", f"name one of {', '.join(experiments.names())}; see --list")
    every = settings.pop("every", None)
    for option in (option for option in DECIDED if option in settings):
        remedy = "an experiment has its own networks and lanes; copy its TOML file"
        raise ConfigError(f"--{option} is for train and sweep", remedy)
    given = with_options(settings)
    with closing(Board(quiet=study.silent, arms=True)) as board, exit_if_interrupted():
        if study.estimate:
            experiment, chosen = experiments.read_experiment(name), ""
            if budget == "overnight":
                experiment, chosen = overnight(experiment, {**given, "every": every}, seeds, None, board.progress)
                board.noted(chosen)
            n = check_seeds(seeds or experiment.seeds(budget))
            plans = experiment.plans(budget, every=every, **given)
            expected = {"arms": len(plans)} | cost.estimate(plans, n, progress=board.progress)
            expected |= {"chosen": chosen} if chosen else {}
            print_json(expected) if study.json else print_estimate(expected)
            return
        result = run_experiment.reproduce(
            name, budget=budget, every=every, seeds=seeds, settings=given, report=page, watcher=board,
            command=f"{program()} {shlex.join(sys.argv[1:])}", **study.common,
        )  # fmt: skip
    if study.json:
        print_json(result.as_dict())
    else:
        print_outcome(result.outcome)
        out.print(f"files: {result.folder}/" + (", a page to show: report.html" if page else ""), soft_wrap=True)
    for name, arm in result.arms.items():
        if arm.has_no_lane_left:
            err.print(f"error: every lane of {name} has stopped; try a smaller --lr", soft_wrap=True)
    if result.failed or any(arm.has_no_lane_left for arm in result.arms.values()):
        raise typer.Exit(1)


def print_outcome(outcome: ExperimentOutcome) -> None:
    """The table with the paper's numbers, then the verdicts."""
    several, rows = len(outcome.arms) > 1, outcome.table
    intervals = ["{:.2f} .. {:.2f}".format(*row.interval) if row.interval else "" for row in rows]
    columns: dict[str, list[Any]] = {
        "arm": [row.arm for row in rows if several],
        "model": [row.model for row in rows],
        "ours": [plus_minus(row.mean, row.std) for row in rows],
        "95 % interval": intervals,
        "seeds": [row.n for row in rows],
        "paper": [plus_minus(row.paper, row.paper_std) for row in rows],
        "difference": ["" if row.difference is None else f"{row.difference:+.2f}" for row in rows],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells) or name == "paper"}
    title = f"{outcome.title} ({outcome.budget}): test accuracy, %"
    out.print(table(title, shown, zip(*shown.values(), strict=True), text=1 + several))
    spread = "+- is the standard deviation over seeds"
    out.print(f"{spread}; the interval holds the mean with 95 % confidence (Student's t)" if any(intervals) else spread)
    if outcome.shortfall and any(row.paper is not None for row in outcome.table):
        out.print(f"not the paper's setting ({outcome.shortfall}), so nothing is subtracted", soft_wrap=True)
    for verdict in outcome.verdicts:
        out.print(f"{verdict.verdict.upper()}: {verdict.claim}", soft_wrap=not out.is_terminal)
        out.print(f"    {verdict.because}", soft_wrap=not out.is_terminal)


def print_list(*, estimate: bool, json: bool) -> None:
    """Every experiment in one line; with `estimate` how long each budget takes, from real steps of its networks."""
    rows: dict[str, dict[str, Any]] = {name: {} for name in experiments.names()}
    for name, row in rows.items():
        experiment = experiments.read_experiment(name)
        row |= {"name": name, "title": experiment.title, "asks": experiment.asks}
    if estimate:
        with watched(quiet=json) as progress:
            for name, seconds in costs(progress).items():
                rows[name]["seconds"] = seconds
    if json:
        print_json(list(rows.values()))
        return
    for name, row in rows.items():
        times = "; ".join(f"{budget} {span(seconds)}" for budget, seconds in row.get("seconds", {}).items())
        line = f"{name:<{max(map(len, rows)) + 2}}{times or row['title']}"
        out.print(line, no_wrap=True, overflow="ellipsis" if out.is_terminal else "ignore", crop=out.is_terminal)
