"""`sweep`: one prior and many alphas for each seed, over many seeds."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from imlp.commands.console import err, out, print_json
from imlp.commands.options import (
    ALPHA_HELP,
    EVERY_HELP,
    Address,
    Check,
    Cpus,
    Engine,
    Estimate,
    Gpus,
    Json,
    ListAll,
    Quiet,
    cluster_of,
    config_of,
    exit_if_interrupted,
    lane_settings,
    print_choices,
    settings_as_options,
)
from imlp.commands.sweep_display import Board, print_estimate
from imlp.study import cost, run_sweep
from imlp.study.run_sweep import ALPHAS, SEEDS, sweep_lanes
from imlp.study.scores import Arm
from imlp.study.two_lines import fit_v
from imlp.train.config import check_seeds

SWEEP = "This sweep"


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=SWEEP, **more)


@settings_as_options(alpha=f"{ALPHA_HELP} Default {ALPHAS}.", every=EVERY_HELP)
def sweep(
    seeds: Annotated[int, _option("How many seeds, counted from --seed.", "--seeds", min=1)] = SEEDS,
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
    list_all: ListAll = False,
    estimate: Estimate = False,
    check: Check = True,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train many alphas beside one prior, for several seeds: accuracy against alpha, with error bars.

    Run the same command again at any time: what is finished is skipped, what was interrupted is resumed, and new
    alphas or seeds are added to what is there.

    - `sweep --alpha 0,1e-4..1:13log --seeds 3`: figure 2 on the embedded data set
    - `sweep --alpha 0,0.01,1 --every epoch,step`: both cadences; `step` mixes after every step
    - `sweep --alpha decay:0.5:1 --alpha decay:0.5:4 --data cifar10 --epochs 20`: schedules
    - `sweep --seeds 5 --engine ray --address auto`: the same on all machines of a Ray cluster (docs/scale.md)
    """
    if list_all:
        print_choices(json)
        return
    lane = lane_settings(settings)
    listed, every = lane.pop("alpha", None) or [ALPHAS], lane.pop("every", None)
    base, cluster = config_of(config, settings), cluster_of(engine, address, cpus, gpus)
    with Board(quiet=quiet or json) as board, exit_if_interrupted():
        if estimate:
            lanes = sweep_lanes(listed, every, lane)
            expected = cost.estimate_sweep(base, lanes, check_seeds(seeds), progress=board.progress)
            print_json(expected) if json else print_estimate(expected)
            return
        result = run_sweep.sweep(
            base, listed, every=every, seeds=seeds, lane=lane, out=out_folder, lanes_at_once=at_once, cluster=cluster,
            check=check, watcher=board,
        )  # fmt: skip
    if json:
        print_json(result.as_dict())
    elif result.arm:
        out.print(scores_table(result.arm))
        print_fits(result.arm)
        out.print(f"files: {result.folder}/", soft_wrap=True)
        out.print(f"a page to show: python cli.py report {result.folder}", soft_wrap=True)
    if result.failed:
        raise typer.Exit(1)
    if result.arm and all(score.lane is None for score in result.arm.scores):
        err.print("error: every lane of every run has stopped; try a smaller --lr", soft_wrap=True)
        raise typer.Exit(1)


def scores_table(arm: Arm) -> Table:
    """Each model's accuracy over the seeds."""
    config = arm.config
    title = f"{config.network_name} on {Path(config.data).name}, {config.epochs} epochs: test accuracy, %"
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
            sides = ", ".join(f"{s.slope:+.2f} % per decade (R^2 {s.r2:.2f})" for s in (v.left, v.right))
            out.print(f"every {base.every}: two lines meet at alpha {v.alpha:.2g}; {sides}", soft_wrap=True)
