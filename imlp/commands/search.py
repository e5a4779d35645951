"""`search`: the amount of inductive bias as something to optimise."""

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from imlp.commands.console import in_panel, out, print_json, table
from imlp.commands.options import Study, config_of, exit_if_interrupted, lane_settings, settings_as_options
from imlp.commands.sweep_display import Board, print_estimate
from imlp.errors import ConfigError
from imlp.study import cost, optuna_search
from imlp.study.optuna_search import TRIALS
from imlp.study.outcomes import SearchOutcome
from imlp.study.scores import plus_minus

TRIALS_SHOWN = 10  # trials in the table
_option = in_panel("This search")


@settings_as_options(
    hidden=("alpha",),
    every="How often W is moved: step (default), epoch, a number of steps; both: search the cadence, too.",
)
def search(
    over: Annotated[str, _option("What to search: alpha, or alpha-per-layer.")] = "alpha",
    trials: Annotated[int, _option("How many lanes to try in all.")] = TRIALS,
    validation: Annotated[float, _option("The share of the training images to hold out and to judge by.")] = 0.1,
    seeds: Annotated[int, _option("Seeds for the test at the end, counted from --seed.")] = 1,
    prune: Annotated[
        bool, _option("Stop lanes early that are below the median of earlier ones.", "--prune/--no-prune")
    ] = True,
    config: Annotated[Path | None, _option("Settings from a TOML file; options of the command line win.")] = None,
    *,
    study: Study,
    settings: dict[str, Any],
) -> None:
    """Search for the best amount of inductive bias with Optuna, on images held out from the training set.

    Alpha 0 (the plain MLP) and alpha 1 (all of the prior) are tried first, so that the choice is at least as good as
    both on those images. At the end the choice and these two are trained on all training images, and only then the
    test set is used. Run the same command again at any time: it resumes where it stopped, or shows its result.

    - `search --trials 24`: one alpha for all layers: 0, or 1e-4 to 1
    - `search --over alpha-per-layer --every epoch,step`: one for each layer, after every epoch or after every step
    - `search --engine ray --address auto`: on all machines of a Ray cluster, several batches at a time (docs/scale.md)
    """
    lane = lane_settings(settings)
    if "alpha" in lane:
        raise ConfigError("--alpha is for one lane", "here it is what is searched; use sweep for alphas of your own")
    every = lane.pop("every", None)
    base = config_of(config, settings)
    with closing(Board(quiet=study.silent)) as board, exit_if_interrupted():
        if study.estimate:
            expected = cost.estimate_search(
                base, trials, seeds, validation=validation, at_once=study.at_once, progress=board.progress
            )
            print_json(expected) if study.json else print_estimate(expected)
            return
        result = optuna_search.search(
            base, over, every=every, trials=trials, validation=validation, seeds=seeds, prune=prune, lane=lane,
            watcher=board, **study.common,
        )  # fmt: skip
    if study.json:
        print_json(result.as_dict())
    else:
        print_search(result.outcome)
        out.print(f"files: {result.folder}/ (search.json, search.png, the runs)", soft_wrap=True)


def print_search(outcome: SearchOutcome) -> None:
    """The best trials, the choice, and its test."""
    states = [trial.state for trial in outcome.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    held = outcome.validation
    title = f"the best of {len(states)} trials ({counts}): accuracy on {held.images:,} images held out, %"
    whole = [trial for trial in outcome.trials if trial.state == "complete"]
    best = sorted(whole, key=lambda trial: -(trial.value or 0))[:TRIALS_SHOWN]
    chosen, mark = outcome.chosen, " (chosen)"
    trials = [(t.title + mark * (t.number == chosen.number), t.number, f"{t.value or 0:.2f}") for t in best]
    out.print(table(title, ("lane", "trial", "validation"), trials))
    if by_layer := ", ".join(f"{layer} {alpha}" for layer, alpha in chosen.alpha.items()):
        out.print(f"chosen, by layer: {by_layer}", soft_wrap=True)
    about = f"{outcome.network} on {outcome.data}, {outcome.epochs} epochs on all training images"
    rows = [
        (row.title + mark * (row.lane == chosen.lane), plus_minus(row.validation, None),
         plus_minus(row.test.mean, row.test.std), row.test.n)
        for row in outcome.final or ()
    ]  # fmt: skip
    out.print(table(f"{about}: accuracy, %", ("model", "validation", "test", "seeds"), rows))
