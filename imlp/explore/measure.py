"""The accuracies that the teaching page shows: `python -m imlp.explore.measure` writes `accuracy.json` again.

They are figure 2 as the runs on record have it, so they change when better runs are collected.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from imlp.errors import RunError
from imlp.files import write_whole
from imlp.study import figure2
from imlp.train.run_reader import find_runs

ASSET = Path(__file__).with_name("accuracy.json")


def main(
    results: Annotated[Path, typer.Argument(help="The folder of the results on record.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Where to write the JSON.")] = ASSET,
) -> None:
    """Write what the page shows."""
    with write_whole(out) as file:
        file.write(json.dumps(summary(results), indent=1).encode() + b"\n")


def summary(results: Path) -> dict[str, Any]:
    """Both cadences with their spread, the prior, and what the runs are."""
    arm = figure2.best_arm(find_runs([results]))
    if arm is None:
        raise RunError(f"{results} has no curve over alpha yet", "collect runs first: results --collect DIR")
    parameters = next(run.result["parameters"] for run in arm.runs if run.result)
    return {**figure2.points(arm), "parameters": parameters}


if __name__ == "__main__":
    typer.run(main)
