"""`train`: one prior and one or more lanes beside it."""

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from imlp.backend import backend as get_backend
from imlp.commands import run_display as display
from imlp.commands.console import err, in_panel, out, print_facts, print_json, watched
from imlp.commands.options import Output, config_of, exit_if_interrupted, settings_as_options
from imlp.errors import ConfigError, install_hint, program
from imlp.files import check_path
from imlp.study.cost import duration
from imlp.study.scores import PRIORS
from imlp.train import prepare
from imlp.train.callbacks import TensorBoard
from imlp.train.loop import Trainer
from imlp.train.run_folder import TENSORBOARD, RunFolder
from imlp.train.signals import stopping_on_signals

_option = in_panel("This run")


@settings_as_options()
def train(
    config: Annotated[Path | None, _option("Settings from a TOML file; options of the command line win.")] = None,
    resume: Annotated[
        bool, _option("Resume the run in the folder, with its settings, or start it.", "--resume")
    ] = False,
    again: Annotated[bool, _option("Delete the run in the folder and start again.", "--again")] = False,
    tensorboard: Annotated[bool, _option("Also write TensorBoard's files.", "--tensorboard")] = False,
    *,
    shown: Output,
    settings: dict[str, Any],
) -> None:
    """Train a prior and one or more I-MLPs beside it: W <- (1 - alpha) W + alpha W_P after every step.

    The first things to try:

    - `train`: the CNN pair on the embedded data set, alpha 0.5
    - `train --alpha 0,0.01,1`: three lanes beside one prior; alpha 0 is the plain MLP
    - `train --alpha 1@epoch --alpha decay:0.5:2`: once per epoch, as algorithm 1 says; decaying over the epochs
    - `train --data cifar10 --epochs 100`: the paper's setting, after `data fetch cifar10`
    """
    if resume and config is None and shown.out_folder and RunFolder(shown.out_folder).config.exists():
        config = RunFolder(shown.out_folder).config
    chosen = config_of(config, settings)
    get_backend(chosen.backend)  # before anything slow: it names what is missing
    folder = check_path(shown.out_folder or prepare.default_folder(chosen))
    with watched(quiet=shown.silent) as progress:
        data = prepare.load_data(chosen, progress)
    trainer = Trainer(chosen, data, folder)
    if shown.estimate:
        expected = prepare.estimate(trainer)
        print_json(expected) if shown.json else print_estimate(expected)
        return
    result = None if again else trainer.finished()
    if result is None:
        if shown.check:
            with watched(quiet=shown.silent) as progress:
                checked = prepare.check_network(trainer, progress)
            if checked and not shown.silent:
                err.print(checked)
        watch = display.Silent() if shown.silent else display.Lines()
        trainer.callbacks.append(watch)
        if tensorboard:
            if find_spec("tensorboard") is None:
                raise ConfigError("TensorBoard is not installed", install_hint("tensorboard"))
            trainer.callbacks.append(TensorBoard(folder / TENSORBOARD))
        with exit_if_interrupted("continue with --resume"), closing(watch), stopping_on_signals(trainer):
            result = trainer.run(resume=resume, again=again)
    elif not shown.json:
        out.print(f"this run is done already (--again would repeat it): {folder}", soft_wrap=True)
    _show(result, folder, data.n_classes, json=shown.json)


def _show(result: dict[str, Any], folder: Path, classes: int, *, json: bool) -> None:
    """Print the result; a run that has no lane to show for it ends with 1, and says where each one stopped."""
    if json:
        print_json(result)
    else:
        prior = f"{PRIORS.get(result['network'], result['network'])} (prior)"
        out.print(display.result_table(result, prior, classes))
        out.print(f"files: {folder}/ (config.toml, metrics.jsonl, result.json, checkpoint/)", soft_wrap=True)
        if result["models"]:
            out.print(f"a page with its matrices: {program()} report {folder}", soft_wrap=True)
    if result["stopped"] and all(row["lane"] == "prior" for row in result["models"]):
        stops = [f"lane {stop['lane']} in epoch {stop['epoch']}, step {stop['step']}" for stop in result["stopped"]]
        err.print(f"error: every lane has stopped: {'; '.join(stops)}; try a smaller --lr", soft_wrap=True)
        raise typer.Exit(1)


def print_estimate(expected: dict[str, Any]) -> None:
    """Parameters, memory and time."""
    lanes, need, free = expected["lanes"], expected["memory_bytes"], expected["free_bytes"]
    steps, step = expected["steps"], expected["seconds_a_step"]
    facts = {
        "prior": f"{expected['prior_parameters']:,} parameters",
        "lanes": f"{lanes} with {expected['parameters_a_lane']:,} parameters each",
        "memory": f"about {need / 2**30:.2f} GiB on {expected['device']}, where {free / 2**30:.1f} GiB are free",
        "time": f"about {duration(expected['seconds'])}: {steps:,} steps of {1e3 * step:.0f} ms, and evaluation",
    }
    print_facts(facts)
