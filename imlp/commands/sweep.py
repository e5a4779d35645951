"""`sweep`: one prior and many alphas a seed, over many seeds."""

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
from imlp.study.scores import Arm, Score, arms_of, base_identity
from imlp.study.sweep import Outcome, lanes_at_once, lanes_of, plan, run_here
from imlp.study.two_lines import fit_v
from imlp.train.config import Config, Lane, check_seeds
from imlp.train.data import Dataset
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_folder import LOG
from imlp.train.run_reader import find_runs

if TYPE_CHECKING:
    from imlp.study.cluster import Cluster

SWEEP = "This sweep"


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=SWEEP, **more)


@settings_as_options(hidden=("alpha",), every="How often: epoch, step, a number of steps; or a list: epoch,step.")
def sweep(
    alphas: Annotated[
        str, _option("A list of alphas as train takes them, and ranges FIRST..LAST:Nlog (or :Nlin).", "--alphas")
    ] = "0,1e-4..1:9log",
    seeds: Annotated[int, _option("How many seeds, counted from --seed.", "--seeds", min=1)] = 3,
    config: Annotated[Path | None, _option("Settings from a TOML file; options of the command line win.")] = None,
    out_folder: Annotated[
        Path | None, _option("The folder for all runs. Default: runs/sweep-NETWORK-DATA-HASH.", "--out")
    ] = None,
    at_once: Annotated[
        int | None, _option("Lanes in one run. Default: as many as memory allows.", "--lanes-at-once", min=1)
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
    """Train many alphas beside one prior, for several seeds: accuracy against alpha, with error bars.

    Give the same command again at any time: what is finished is skipped, what was interrupted goes on, and new alphas
    or seeds are added to what is there.

    - `sweep --alphas 0,1e-4..1:13log --seeds 3`: figure 2 on the embedded data set
    - `sweep --alphas 0,0.01,1 --every epoch,step`: both cadences; `step` mixes after every step
    - `sweep --alphas decay:0.5:1,decay:0.5:4 --data cifar10 --epochs 20`: schedules
    - `sweep --seeds 5 --engine ray --address auto`: the same on all machines of a Ray cluster (docs/scale.md)
    """
    every = settings.pop("every", "epoch")
    if "alpha" in settings:
        raise ConfigError("--alpha is for one lane", "list all of them: --alphas 0,0.5,1")
    lane = {f.name: settings.pop(f.name) for f in dataclasses.fields(Lane) if f.name in settings}
    base = config_of(config, settings)
    check_seeds(seeds)
    lanes = lanes_of(alphas, every, **{name: tuple(v) if name == "layers" else v for name, v in lane.items()})
    name = f"sweep-{base.network}-{Path(base.data).name}-{base_identity(base)}"
    folder = check_path(out_folder or Path("runs") / name)
    get_backend(base.backend)
    data = load_data(base, quiet=quiet or json)
    board = Board(quiet=quiet or json)
    span = range(base.seed, base.seed + seeds)
    with started(engine, address, cpus, gpus, quiet=quiet or json) as cluster:
        outcomes = run_sweep(base, lanes, span, folder, data, board, at_once=at_once, check=check, cluster=cluster)
    arm = arm_of(outcomes)
    if json:
        models = [as_json(score) for score in arm.scores] if arm else []
        print_json({"folder": str(folder), "failed": failures(outcomes), "models": models})
    elif arm:
        out.print(scores_table(arm))
        print_fits(arm)
        out.print(f"files: {folder}/", soft_wrap=True)
        out.print(f"a page to show: python cli.py report {folder}", soft_wrap=True)
    if failures(outcomes):
        raise typer.Exit(1)


def run_sweep(
    base: Config,
    lanes: Sequence[Lane],
    seeds: Sequence[int],
    folder: Path,
    data: Dataset,
    board: Board,
    *,
    at_once: int | None = None,
    check: bool = True,
    cluster: "Cluster | None" = None,
) -> list[Outcome]:
    """Plan it and run it, here or on a cluster, with a display; a signal ends it with nothing lost."""
    probe = Trainer(dataclasses.replace(base, lanes=tuple(lanes), seed=seeds[0]), data, folder)
    room = cluster.room(base) if cluster is not None else None
    at_once = at_once or lanes_at_once(base, data, len(lanes), room)
    tasks = plan(base, lanes, seeds, folder, at_once=at_once, digest=data.digest)
    if check and base.backend == "accel" and not all(task.finished for task in tasks):
        with machine.settings(base.backend, threads=base.threads, deterministic=base.deterministic):
            verify_first(probe, quiet=board.quiet)
    try:
        if cluster is None:
            return run_here(tasks, data, board, stopping_on_signals)
        from imlp.study.cluster import run_on_ray

        return run_on_ray(tasks, data, board, stopping_on_signals, cluster=cluster)
    except Interrupted as stop:
        board.close()
        err.print(f"{stop.problem}; nothing is lost: give the same command again", soft_wrap=True)
        raise typer.Exit(143 if "SIGTERM" in stop.problem else 130) from None
    finally:
        board.close()


def arm_of(outcomes: Sequence[Outcome]) -> Arm | None:
    """The finished runs as one arm; None: every run has failed."""
    folders = [outcome.task.folder for outcome in outcomes if outcome.result is not None]
    return arms_of(find_runs(folders))[0] if folders else None


def failures(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """The runs that failed, why, and where the traceback is."""
    return [
        {"run": str(o.task.folder), "error": o.error, "log": str(o.task.folder / LOG)}
        for o in outcomes
        if o.error is not None
    ]


def as_json(score: Score) -> dict[str, Any]:
    lane = dataclasses.asdict(score.lane) if score.lane else None
    return {"lane": lane, "mean": score.mean, "std": score.std, "n": score.n, "by_seed": score.by_seed}


def scores_table(arm: Arm) -> Table:
    """Each model's accuracy over the seeds."""
    config = arm.config
    title = f"{config.network} on {Path(config.data).name}, {config.epochs} epochs: test accuracy, %"
    table = Table(title=title, title_justify="left")
    for column in ("model", "mean", "std", "seeds"):
        table.add_column(column, justify="left" if column == "model" else "right", overflow="fold")
    for score in arm.scores:
        name = score.lane.title if score.lane else f"{arm.prior_name} (prior)"
        std = f"{score.std:.2f}" if score.std is not None else ""
        table.add_row(name, f"{score.mean:.2f}", std, str(score.n))
    return table


def print_fits(arm: Arm) -> None:
    """Where the two lines of each series meet."""
    for base, lanes in arm.series.items():
        pairs = [(score.alpha, score.mean) for score in arm.scores_of(lanes) if score.alpha is not None]
        v = fit_v(*zip(*pairs, strict=True)) if pairs else None
        if v is not None:
            sides = ", ".join(f"{s.slope:+.2f} % a decade (R^2 {s.r2:.2f})" for s in (v.left, v.right))
            out.print(f"every {base.every}: two lines meet at alpha {v.alpha:.2g}; {sides}", soft_wrap=True)
