"""The accuracies that the teaching page shows, measured: `python -m imlp.explore.measure` writes `accuracy.json` again.

One run of the real trainer: a small CNN pair on `shapes`, the prior and a lane for each alpha and cadence. The alphas
are cubes, so that small ones, where mixing after every step has its effect, and large ones both have room on a slider.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from imlp.files import write_whole
from imlp.machine import facts_of_this_machine
from imlp.train.callbacks import Callback, Row
from imlp.train.config import Config, Lane
from imlp.train.loop import Trainer
from imlp.train.prepare import load_data

ASSET = Path(__file__).with_name("accuracy.json")
CADENCES = ("step", "epoch")


class EpochLines(Callback):
    """Prints one line per epoch."""

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        accuracies = ", ".join(f"{100 * row['test_accuracy']:.2f}" for row in rows)
        print(f"epoch {rows[0]['epoch']}/{trainer.config.epochs}: {accuracies} % ({sum(seconds.values()):.1f} s)")


def main(
    out: Annotated[Path, typer.Option(help="Where to write the JSON.")] = ASSET,
    epochs: Annotated[int, typer.Option(help="Passes over the images.")] = 10,
    train_size: Annotated[int | None, typer.Option(help="Take only so many training images.")] = None,
    test_size: Annotated[int | None, typer.Option(help="Take only so many test images.")] = None,
    points: Annotated[int, typer.Option(help="How many alphas from 0 to 1, both included.", min=2)] = 11,
    seed: Annotated[int, typer.Option(help="Draws the weights, the order of the images, crops and flips.")] = 0,
) -> None:
    """Train the pair and write what the page shows."""
    alphas = [round((k / (points - 1)) ** 3, 6) for k in range(points)]
    lanes = [Lane("0"), *(Lane(str(alpha), every) for every in CADENCES for alpha in alphas[1:])]
    config = Config(
        options=(("width", 512), ("strides", (2, 2, 2, 2))),
        epochs=epochs, lr=1e-3, seed=seed, train_size=train_size, test_size=test_size, lanes=tuple(lanes),
    )  # fmt: skip
    data = load_data(config)
    with TemporaryDirectory() as folder:
        result = Trainer(config, data, Path(folder), [EpochLines()]).run()
    text = json.dumps(summary(config, result, len(data.x), len(data.x_test)), indent=1)
    with write_whole(out) as file:
        file.write(text.encode() + b"\n")


def summary(config: Config, result: dict[str, Any], n_train: int, n_test: int) -> dict[str, Any]:
    """What the page needs of a run, and what it takes to reproduce it."""
    accuracy = {row["lane"]: row["test_accuracy"] for row in result["models"]}
    curves: dict[str, list[dict[str, float]]] = {every: [] for every in CADENCES}
    for index, lane in enumerate(config.lanes):
        if index in accuracy:  # a lane whose loss was not finite has none
            for every in CADENCES if index == 0 else (lane.every,):
                curves[every].append({"alpha": float(lane.alpha), "accuracy": accuracy[index]})
    return {
        "command": " ".join(["python -m imlp.explore.measure", *sys.argv[1:]]),
        "machine": facts_of_this_machine(),
        "config": {name: value for name, value in asdict(config).items() if name != "lanes"},
        "images": {"train": n_train, "test": n_test},
        "parameters": result["parameters"],
        "prior": accuracy["prior"],
        "curves": curves,
    }


if __name__ == "__main__":
    typer.run(main)
