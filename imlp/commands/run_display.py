"""How a run is watched: a live table where there is a terminal, plain lines where there is none."""

import time
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from imlp.commands.console import err, out, table
from imlp.spec.meter import PARTS
from imlp.study.cost import counted
from imlp.train.callbacks import Callback, Row
from imlp.train.loop import Trainer

EPOCHS_SHOWN = 14  # epochs in the live table; earlier ones scroll out of it, and stay in metrics.jsonl


class Silent(Callback):
    """Warnings only."""

    def warned(self, text: str) -> None:
        err.print(Text.assemble(("warning: ", "yellow"), text), soft_wrap=True)


class Watch(Silent):
    """A bar within the epoch with images per second and the time left, above a table that grows by epoch."""

    def __init__(self) -> None:
        columns = (
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[speed]:,.0f} images/s"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=err)
        self.live = Live(console=err, refresh_per_second=4, transient=True)

    def started(self, trainer: Trainer) -> None:
        state, config = trainer.state, trainer.config
        total, done = config.epochs * trainer.steps, state.epoch * trainer.steps + state.step
        self.task = self.progress.add_task("", total=total, completed=done, epoch=_epoch(trainer), speed=0.0)
        self.titles: dict[int | str, str] = {"prior": "prior"} if config.needs_prior else {}
        self.titles |= {k: lane.title for k, lane in enumerate(config.lanes)}
        self.wakes = {k: lane.rule.begins_after(config.epochs) for k, lane in enumerate(config.lanes)}
        self.epoch_ended(trainer, [], {})
        self.live.start()

    def stepped(self, trainer: Trainer, images: int) -> None:
        self.images += images
        speed = self.images / max(1e-9, time.monotonic() - self.since)
        self.progress.update(self.task, advance=1, epoch=_epoch(trainer), speed=speed)

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        """Accuracy by epoch, a column for the prior and for each lane; a lane sleeps before the epoch it wakes in."""
        self.images, self.since = 0, time.monotonic()
        shown, now = [], trainer.state.epoch
        for epoch in range(max(1, now + 1 - EPOCHS_SHOWN), now + 1):
            ended = (row for row in trainer.state.rows if row["epoch"] == epoch)
            by_lane = {row["lane"]: f"{100 * row['test_accuracy']:.2f}" for row in ended}
            asleep = {lane for lane, after in self.wakes.items() if epoch < after}
            cells = (by_lane.get(lane, "asleep" if lane in asleep else "stopped") for lane in self.titles)
            shown.append([epoch, *cells])
        above = table("test accuracy, %", ("epoch", *self.titles.values()), shown, text=0)
        self.live.update(Group(above, self.progress))

    def close(self) -> None:
        """Give the terminal back, whatever ended the run."""
        self.live.stop()


def _epoch(trainer: Trainer) -> str:
    return f"{min(trainer.state.epoch + 1, trainer.config.epochs)}/{trainer.config.epochs}"


class Lines(Silent):
    """One plain line per epoch, for logs and pipes."""

    def started(self, trainer: Trainer) -> None:
        self.images = 0
        if trainer.state.epoch or trainer.state.step:
            out.print(f"resuming in epoch {trainer.state.epoch + 1} after step {trainer.state.step}", soft_wrap=True)

    def stepped(self, trainer: Trainer, images: int) -> None:
        self.images += images

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        parts = [f"{row['name']} {100 * row['test_accuracy']:.2f} %" for row in rows]
        speed, self.images = self.images / max(seconds["train"], 1e-9), 0
        took, of = sum(seconds.values()), trainer.config.epochs
        line = f"epoch {trainer.state.epoch}/{of}: {'; '.join(parts)} ({took:.1f} s, {speed:,.0f} images/s)"
        out.print(line, soft_wrap=True, markup=False)


def result_table(result: dict[str, Any], prior_name: str, classes: int) -> Table:
    """The end of a run: each model's accuracy and loss; and the accuracy before the last mixing, where that differs."""
    models = result["models"]
    lanes = [row for row in models if row["lane"] != "prior"]
    more = {}
    if any(row["test_accuracy"] != row["test_accuracy_before"] for row in lanes):
        more["before mixing, %"] = "test_accuracy_before"
    if any("validation_accuracy" in row for row in models):
        more["validation, %"] = "validation_accuracy"
    rows: list[list[str | None]] = []
    for row in models:
        prior = row["lane"] == "prior"
        name, parameters = prior_name if prior else row["name"], result["parameters"]["prior" if prior else "dense"]
        cells = [name, f"{parameters:,}", f"{100 * row['test_accuracy']:.2f}", f"{row['test_loss']:.3f}"]
        rows.append([*cells, *(f"{100 * row[key]:.2f}" if key in row else None for key in more.values())])
    for stop in result["stopped"]:
        where = f"epoch {stop['epoch']}, step {stop['step']}"
        rows.append([f"lane {stop['lane']}", None, stop.get("reason", "stopped"), where])
    what = f"{result['network']} on {result['data']} after {counted(result['epochs'], 'epoch')}"
    columns = ("model", "parameters", "accuracy, %", "loss", *more)
    return table(f"{what}; guessing gets {100 / classes:.3g} %", columns, rows)


def meter_table(result: dict[str, Any]) -> Table | None:
    """The bias meter at the end of a run: one line per model and layer, and a random matrix to compare with."""
    found = [(row["name"], row["bias"]) for row in result["models"] if row.get("bias")]
    if not found:
        return None
    random = {layer: {part: own.get(f"random_{part}") for part in PARTS} for layer, own in found[0][1].items()}
    made = table("what share of |W|² is shared, local and outside", ("model", "layer", *PARTS), (), text=2)
    for name, layers in [("random matrix", random), *found]:
        for n, (layer, own) in enumerate(layers.items(), start=1):
            cells = ["" if (share := own.get(part)) is None else f"{share:.4f}" for part in PARTS]
            made.add_row(name if n == 1 else "", layer, *cells, end_section=n == len(layers))
    return made
