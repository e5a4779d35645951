"""What `train` prints: a line per epoch, above a bar where somebody watches, and tables at the end."""

import time
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from imlp.commands.console import err, out, table
from imlp.study.cost import counted
from imlp.train.callbacks import Callback, Row
from imlp.train.loop import Trainer


class Silent(Callback):
    """Warnings only."""

    def warned(self, text: str) -> None:
        err.print(Text.assemble(("warning: ", "yellow"), text), soft_wrap=True)


class Lines(Silent):
    """One line per epoch and, on a terminal, a bar below them with images per second and the time left."""

    def __init__(self) -> None:
        speed = TextColumn("{task.fields[speed]:,.0f} images/s")
        columns = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(), TaskProgressColumn(), speed)
        self.live = err.is_terminal
        self.bar = Progress(*columns, TimeRemainingColumn(), console=err, transient=True, disable=not self.live)

    def started(self, trainer: Trainer) -> None:
        state, steps = trainer.state, trainer.steps
        total, done = trainer.config.epochs * steps, state.epoch * steps + state.step
        self.task = self.bar.add_task("", total=total, completed=done, epoch="", speed=0.0)
        self.images, self.since = 0, time.monotonic()
        if done:
            self._print(f"resuming in epoch {state.epoch + 1} after step {state.step}")
        self.bar.start()

    def stepped(self, trainer: Trainer, images: int) -> None:
        self.images += images
        speed = self.images / max(1e-9, time.monotonic() - self.since)
        epoch = f"{trainer.state.epoch + 1}/{trainer.config.epochs}"
        self.bar.update(self.task, advance=1, epoch=epoch, speed=speed)

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        parts = "; ".join(f"{row['name']} {100 * row['test_accuracy']:.2f} %" for row in rows)
        took, speed = sum(seconds.values()), self.images / max(seconds["train"], 1e-9)
        epoch = f"{trainer.state.epoch}/{trainer.config.epochs}"
        self._print(f"epoch {epoch}: {parts} ({took:.1f} s, {speed:,.0f} images/s)")
        self.images, self.since = 0, time.monotonic()

    def close(self) -> None:
        """Give the terminal back, whatever ended the run."""
        self.bar.stop()

    def _print(self, line: str) -> None:
        (err if self.live else out).print(line, soft_wrap=True)


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
