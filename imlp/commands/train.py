"""`train`: one prior and one or more lanes beside it."""

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from imlp.backend import backend as get_backend
from imlp.commands import run_display as display
from imlp.commands.console import err, out, print_json
from imlp.commands.options import (
    ALPHA_HELP,
    EVERY_HELP,
    ListAll,
    config_of,
    exit_code,
    print_choices,
    settings_as_options,
)
from imlp.commands.progress import watched
from imlp.errors import ConfigError, install_hint
from imlp.files import check_path
from imlp.study.cost import duration
from imlp.study.scores import PRIORS
from imlp.train import prepare
from imlp.train.callbacks import Callback, TensorBoard
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_folder import TENSORBOARD
from imlp.train.signals import stopping_on_signals

RUN = "This run"


def _run_option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=RUN, **more)


@settings_as_options(
    alpha=ALPHA_HELP,
    every=EVERY_HELP,
)
def train(
    config: Annotated[Path | None, _run_option("Settings from a TOML file; options of the command line win.")] = None,
    out_folder: Annotated[
        Path | None, _run_option("The run's folder. Default: runs/NETWORK-DATA-HASH of the settings.", "--out")
    ] = None,
    resume: Annotated[bool, _run_option("Resume the run in the folder, or start it.", "--resume")] = False,
    again: Annotated[bool, _run_option("Delete the run in the folder and start again.", "--again")] = False,
    list_all: ListAll = False,
    estimate: Annotated[bool, _run_option("Only print parameters, memory and expected time.", "--estimate")] = False,
    check: Annotated[bool, _run_option("Check the network against the reference.", "--verify/--no-verify")] = True,
    quiet: Annotated[bool, _run_option("Print only warnings and the result.", "--quiet")] = False,
    json: Annotated[bool, _run_option("Print only the result, as JSON.", "--json")] = False,
    tensorboard: Annotated[bool, _run_option("Also write TensorBoard's files.", "--tensorboard")] = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a prior and one or more I-MLPs beside it: W <- (1 - alpha) W + alpha W_P after every step.

    The first things to try:

    - `train`: the CNN pair on the embedded data set, alpha 0.5
    - `train --alpha 0,0.01,1`: three lanes beside one prior; alpha 0 is the plain MLP
    - `train --alpha 1@epoch --alpha decay:0.5:2`: once per epoch, as algorithm 1 says; decaying over the epochs
    - `train --data cifar10 --epochs 100`: the paper's setting, after `data fetch cifar10`
    """
    if list_all:
        print_choices(json)
        return
    chosen = config_of(config, settings)
    get_backend(chosen.backend)  # before anything slow: it names what is missing
    folder = check_path(out_folder or prepare.default_folder(chosen))
    with watched(quiet=quiet or json) as progress:
        data = prepare.load_data(chosen, progress)
    trainer = Trainer(chosen, data, folder)
    if estimate:
        expected = prepare.estimate(trainer)
        print_json(expected) if json else print_estimate(expected)
        return
    result = None if again else trainer.finished()
    if result is not None and not json:
        out.print(f"this run is done already (--again would repeat it): {folder}", soft_wrap=True)
    if result is not None:
        _show(result, folder, json=json)
        return
    if check and prepare.needs_check(trainer):
        with nullcontext() if quiet or json else err.status("checking the network against the reference"):
            checked = prepare.check_network(trainer)
        if not (quiet or json):
            err.print(str(checked))
    watch: Callback = display.Silent() if quiet or json else display.Watch() if err.is_terminal else display.Lines()
    trainer.callbacks.append(watch)
    if tensorboard:
        trainer.callbacks.append(_tensorboard(folder))
    try:
        with stopping_on_signals(trainer):
            result = trainer.run(resume=resume, again=again)
    except Interrupted as stop:
        watch.close()
        err.print(f"{stop}", soft_wrap=True, markup=False)
        raise typer.Exit(exit_code(stop)) from None
    finally:
        watch.close()
    _show(result, folder, json=json)


def _show(result: dict[str, Any], folder: Path, *, json: bool) -> None:
    """Print the result; a run that has no lane to show for it ends with 1, and says where each one stopped."""
    print_json(result) if json else print_result(result, folder)
    if result["stopped"] and all(row["lane"] == "prior" for row in result["models"]):
        stops = [f"lane {stop['lane']} in epoch {stop['epoch']}, step {stop['step']}" for stop in result["stopped"]]
        err.print(f"error: every lane has stopped: {'; '.join(stops)}; try a smaller --lr", soft_wrap=True)
        raise typer.Exit(1)


def print_result(result: dict[str, Any], folder: Path) -> None:
    if (meter := display.meter_table(result)) is not None:
        out.print(meter)
    out.print(display.result_table(result, f"{PRIORS.get(result['network'], result['network'])} (prior)"))
    out.print(f"files: {folder}/ (config.toml, metrics.jsonl, result.json, checkpoint/)", soft_wrap=True)
    if result["models"]:
        out.print(f"draw them: python cli.py plot {folder}", soft_wrap=True)


def _tensorboard(folder: Path) -> TensorBoard:
    if find_spec("tensorboard") is None:
        raise ConfigError("TensorBoard is not installed", install_hint("tensorboard"))
    return TensorBoard(folder / TENSORBOARD)


def print_estimate(expected: dict[str, Any]) -> None:
    """Parameters, memory and time."""
    lanes, need, free = expected["lanes"], expected["memory_bytes"], expected["free_bytes"]
    steps, step = expected["steps"], expected["seconds_a_step"]
    table = Table(show_header=False)
    table.add_row("prior", f"{expected['prior_parameters']:,} parameters")
    table.add_row("lanes", f"{lanes} with {expected['parameters_a_lane']:,} parameters each")
    about = f"about {need / 2**30:.2f} GiB on {expected['device']}, where {free / 2**30:.1f} GiB are free"
    table.add_row("memory", about)
    time = f"about {duration(expected['seconds'])}: {steps:,} steps of {1e3 * step:.0f} ms, and evaluation"
    table.add_row("time", time)
    out.print(table)
