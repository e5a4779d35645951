"""`sweep`: one prior and many alphas for each seed, over many seeds."""

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from imlp.commands.console import err, in_panel, out, print_json, table
from imlp.commands.options import Study, config_of, exit_if_interrupted, lane_settings, settings_as_options
from imlp.commands.sweep_display import Board, print_estimate
from imlp.errors import program
from imlp.study import cost, run_sweep
from imlp.study.cost import counted
from imlp.study.run_sweep import ALPHAS, SEEDS, sweep_lanes
from imlp.study.scores import Arm, ArmPlan
from imlp.study.two_lines import fit_v
from imlp.train import prepare
from imlp.train.config import check_seeds

_option = in_panel("This sweep")


@settings_as_options()
def sweep(
    seeds: Annotated[int, _option("How many seeds, counted from --seed.", min=1)] = SEEDS,
    config: Annotated[Path | None, _option("Settings from a TOML file; options of the command line win.")] = None,
    *,
    study: Study,
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
    lane = lane_settings(settings)
    listed, every = lane.pop("alpha", None) or [ALPHAS], lane.pop("every", None)
    base = config_of(config, settings)
    with closing(Board(quiet=study.silent)) as board, exit_if_interrupted():
        if study.estimate:
            plan = ArmPlan("sweep", base, sweep_lanes(listed, every, lane))
            data = prepare.load_data(base, board.progress)
            expected = cost.estimate([plan], check_seeds(seeds), data=data, progress=board.progress)
            print_json(expected) if study.json else print_estimate(expected)
            return
        result = run_sweep.sweep(base, listed, every=every, seeds=seeds, lane=lane, watcher=board, **study.common)
    if study.json:
        print_json(result.as_dict())
    elif result.arm:
        out.print(scores_table(result.arm))
        print_fits(result.arm)
        out.print(f"files: {result.folder}/", soft_wrap=True)
        out.print(f"a page to show: {program()} report {result.folder}", soft_wrap=True)
    if result.failed:
        raise typer.Exit(1)
    if result.arm and result.arm.has_no_lane_left:
        err.print("error: every lane of every run has stopped; try a smaller --lr", soft_wrap=True)
        raise typer.Exit(1)


def scores_table(arm: Arm) -> Table:
    """Each model's accuracy over the seeds."""
    config = arm.config
    title = f"{config.network_name} on {Path(config.data).name}, {counted(config.epochs, 'epoch')}: test accuracy, %"
    made = table(title, ("model", "mean", "std", "seeds"), ())
    for score in arm.scores:
        name = score.lane.title if score.lane else f"{arm.prior_name} (prior)"
        made.add_row(name, f"{score.mean:.2f}", "" if score.std is None else f"{score.std:.2f}", str(score.n))
    return made


def print_fits(arm: Arm) -> None:
    """Where the two lines of each series meet."""
    for base, lanes in arm.series.items():
        pairs = [(score.alpha, score.mean) for score in arm.scores_of(lanes) if score.alpha is not None]
        v = fit_v(*zip(*pairs, strict=True)) if pairs else None
        if v is not None:
            sides = ", ".join(f"{s.slope:+.2f} % per decade (R^2 {s.r2:.2f})" for s in (v.left, v.right))
            out.print(f"every {base.every}: two lines meet at alpha {v.alpha:.2g}; {sides}", soft_wrap=True)
