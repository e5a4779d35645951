"""`search`: the amount of inductive bias as something to optimise."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from imlp import machine
from imlp.backend import backend as get_backend
from imlp.commands.console import err, out, print_json
from imlp.commands.options import Address, Check, Cpus, Engine, Gpus, Json, Quiet, started
from imlp.commands.sweep_display import Board
from imlp.commands.train import config_of, load_data, settings_as_options, stopping_on_signals, verify_first
from imlp.errors import ConfigError
from imlp.files import check_path
from imlp.study.search import Search
from imlp.study.sweep import Outcome, Task, run_here
from imlp.train.config import Lane, check_seeds
from imlp.train.data import Dataset
from imlp.train.loop import Interrupted, Trainer

if TYPE_CHECKING:
    from imlp.study.cluster import Cluster

SEARCH = "This search"
SHOWN = 10  # trials in the table


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=SEARCH, **more)


@settings_as_options(hidden=("alpha",), every="How often: epoch, step, a number of steps; both: searched as well.")
def search(
    over: Annotated[
        str, _option("What to search: alpha, alpha-per-layer, or schedule (constant, decay, end, once).", "--over")
    ] = "alpha",
    trials: Annotated[int, _option("How many lanes to try in all.", "--trials")] = 32,
    validation: Annotated[
        float, _option("The share of the training images to hold out and to judge by.", "--validation")
    ] = 0.1,
    seeds: Annotated[int, _option("Seeds for the test at the end, counted from --seed.", "--seeds")] = 1,
    prune: Annotated[
        bool, _option("Stop lanes early that are below the median of earlier ones.", "--prune/--no-prune")
    ] = True,
    config: Annotated[Path | None, _option("Settings from a TOML file; options of the command line win.")] = None,
    out_folder: Annotated[
        Path | None, _option("The folder for everything. Default: runs/search-NETWORK-DATA-HASH.", "--out")
    ] = None,
    at_once: Annotated[
        int | None, _option("Lanes in one run. Default: 8, or as many as memory allows.", "--lanes-at-once")
    ] = None,
    storage: Annotated[
        str | None,
        _option(
            "Keep the trials in a database that several machines share: sqlite:///FILE, postgresql://..., mysql://.... "
            "Default: a file in the folder.",
            "--storage",
        ),
    ] = None,
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
    """Search for the best amount of inductive bias with Optuna, on images held out from the training set.

    Alpha 0 (the plain MLP) and alpha 1 (all of the prior) are tried first, so that the choice is at least as good as
    both on those images. At the end the choice and these two are trained on all training images, and only then the
    test set is used. Give the same command again at any time: it goes on where it was, or shows its result.

    - `search --trials 24`: one alpha for all layers, from 1e-4 to 1 and 0
    - `search --over alpha-per-layer --every both`: one for each layer, after every epoch or after every step
    - `search --over schedule --data cifar10 --epochs 20 --seeds 3`: constant, decaying, at the end, or once
    - `search --engine ray --address auto`: on all machines of a Ray cluster, several batches at a time (docs/scale.md)
    """
    every = settings.pop("every", "epoch")
    if "alpha" in settings:
        raise ConfigError("--alpha is for one lane", "here it is what is searched; use sweep for alphas of your own")
    lane = {f.name: settings.pop(f.name) for f in dataclasses.fields(Lane) if f.name in settings}
    lane = {name: tuple(value) if name == "layers" else value for name, value in lane.items()}
    base = config_of(config, settings)
    check_seeds(seeds)
    check_path(out_folder or "")
    get_backend(base.backend)
    data = load_data(base, quiet=quiet or json)
    chosen: dict[str, Any] = {"over": over, "every": every, "common": lane, "trials": trials, "seeds": seeds}
    chosen |= {"validation": validation, "at_once": at_once, "prune": prune, "storage": storage}
    try:
        with started(engine, address, cpus, gpus, quiet=quiet or json) as cluster:
            going = Search(base, data, out_folder, **chosen, runs_at_once=cluster.runs(base) if cluster else 1)
            runner = _Runner(check=check and base.backend == "accel", quiet=quiet or json, cluster=cluster)
            content = going.run(runner)
    except Interrupted as stop:
        err.print(f"{stop.problem}; nothing is lost: give the same command again", soft_wrap=True)
        raise typer.Exit(143 if "SIGTERM" in stop.problem else 130) from None
    _draw(content, going.folder / "search.png", anew=runner.trained)
    if json:
        print_json({"folder": str(going.folder), **content})
    else:
        print_search(content)
        out.print(f"files: {going.folder}/ (search.json, search.png, the runs)", soft_wrap=True)


class _Runner:
    """Runs batches here or on a cluster, each with a display of its own."""

    def __init__(self, *, check: bool, quiet: bool, cluster: "Cluster | None"):
        self.check, self.quiet, self.cluster, self.trained = check, quiet, cluster, False

    def __call__(self, tasks: Sequence[Task], data: Dataset) -> list[Outcome]:
        done = all(task.finished for task in tasks)
        self.trained |= not done
        if self.check and not done:
            self.check = False
            config = tasks[0].config
            with machine.settings(config.backend, threads=config.threads, deterministic=config.deterministic):
                verify_first(Trainer(tasks[0].config, data, tasks[0].folder), quiet=self.quiet)
        final = tasks[0].folder.parent.name == "final"
        if not self.quiet and not done:
            lanes = sum(len(task.config.lanes) for task in tasks)
            text = "on all training images, then the test" if final else "judged on the images held out"
            err.print(f"{'final' if final else tasks[0].folder.name}: {lanes} lanes, {text}", soft_wrap=True)
        board = Board(quiet=self.quiet or done, accuracy="test accuracy" if final else "validation accuracy")
        try:
            if self.cluster is None:
                return run_here(tasks, data, board, stopping_on_signals)
            from imlp.study.cluster import run_on_ray

            return run_on_ray(tasks, data, board, stopping_on_signals, cluster=self.cluster)
        finally:
            board.close()


def _draw(content: dict[str, Any], path: Path, *, anew: bool) -> None:
    if anew or not path.exists():
        from imlp import plot  # matplotlib takes a second to import

        plot.save(plot.search_figure(content), path)


def print_search(content: dict[str, Any]) -> None:
    """The best trials, the choice, and its test."""
    states = [trial["state"] for trial in content["trials"]]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    held = content["validation"]
    title = f"the best of {len(states)} trials ({counts}): accuracy on {held['images']:,} images held out, %"
    table = _table(title, "trial", "lane", "validation")
    whole = [trial for trial in content["trials"] if trial["state"] == "complete"]
    for trial in sorted(whole, key=lambda trial: -trial["value"])[:SHOWN]:
        mark = " (chosen)" if trial["number"] == content["chosen"]["number"] else ""
        table.add_row(str(trial["number"]), trial["title"] + mark, f"{trial['value']:.2f}")
    out.print(table)
    if content["importances"]:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in content["importances"].items())
        out.print(f"what matters: {shares}", soft_wrap=True)
    by_layer = ", ".join(f"{layer} {alpha}" for layer, alpha in content["chosen"]["alpha"].items())
    out.print(f"chosen, by layer: {by_layer}", soft_wrap=True)
    about = f"{content['network']} on {content['data']}, {content['epochs']} epochs on all training images"
    table = _table(f"{about}: accuracy, %", "model", "validation", "test", "seeds")
    for row in content["final"]:
        mark = " (chosen)" if row["lane"] == content["chosen"]["lane"] else ""
        std = f" +- {row['test']['std']:.2f}" if row["test"]["std"] is not None else ""
        validation = "" if row["validation"] is None else f"{row['validation']:.2f}"
        test = f"{row['test']['mean']:.2f}{std}"
        table.add_row(row["title"] + mark, validation, test, str(row["test"]["n"]))
    out.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in ("lane", "model") else "right", overflow="fold")
    return table
