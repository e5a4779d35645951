"""How a run is watched: a live table where there is a terminal, plain lines where there is none."""

import time
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from imlp.commands.console import err, out
from imlp.spec.meter import PARTS
from imlp.train.callbacks import Callback, Row
from imlp.train.loop import Trainer

SHOWN = 14  # epochs in the live table; earlier ones scroll out of it, and stay in metrics.jsonl


class Watch(Callback):
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
        self.rows: list[list[Row]] = []

    def started(self, trainer: Trainer) -> None:
        state, config = trainer.state, trainer.config
        self.epochs, self.steps = config.epochs, trainer.steps
        done = state.epoch * trainer.steps + state.step
        self.task = self.progress.add_task(
            "", total=config.epochs * trainer.steps, completed=done, epoch=self._epoch(state.epoch), speed=0.0
        )
        self.titles: dict[int | str, str] = {"prior": "prior"} if config.needs_prior else {}
        self.titles |= {k: lane.title for k, lane in enumerate(config.lanes)}
        self.wakes = {k: lane.wakes_after(config.epochs) for k, lane in enumerate(config.lanes)}
        self.rows = [[row for row in state.rows if row["epoch"] == e + 1] for e in range(state.epoch)]
        self.images, self.since = 0, time.monotonic()
        self._show()
        self.live.start()

    def stepped(self, trainer: Trainer, images: int) -> None:
        self.images += images
        speed = self.images / max(1e-9, time.monotonic() - self.since)
        self.progress.update(self.task, advance=1, epoch=self._epoch(trainer.state.epoch), speed=speed)

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        self.rows.append(rows)
        self.images, self.since = 0, time.monotonic()
        self._show()

    def warned(self, text: str) -> None:
        err.print(Text.assemble(("warning: ", "yellow"), text))

    def close(self) -> None:
        """Give the terminal back, whatever ended the run."""
        self.live.stop()

    def _epoch(self, epoch: int) -> str:
        return f"{min(epoch + 1, self.epochs)}/{self.epochs}"

    def _show(self) -> None:
        self.live.update(Group(accuracy_table(self.titles, self.rows[-SHOWN:], self.wakes), self.progress))


class Lines(Callback):
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

    def warned(self, text: str) -> None:
        err.print(f"warning: {text}", soft_wrap=True, markup=False)


class Silent(Callback):
    """Warnings only."""

    def warned(self, text: str) -> None:
        err.print(f"warning: {text}", soft_wrap=True, markup=False)


def accuracy_table(titles: dict[int | str, str], epochs: list[list[Row]], wakes: dict[int, int]) -> Table:
    """Test accuracy by epoch, a column for the prior and for each lane; a lane sleeps before the epoch it wakes in."""
    table = Table(title="test accuracy, %")
    table.add_column("epoch", justify="right")
    for title in titles.values():
        table.add_column(title, justify="right")
    for rows in filter(None, epochs):
        epoch, by_lane = rows[0]["epoch"], {row["lane"]: f"{100 * row['test_accuracy']:.2f}" for row in rows}
        asleep = {lane for lane, after in wakes.items() if epoch < after}
        table.add_row(str(epoch), *(by_lane.get(lane, "asleep" if lane in asleep else "stopped") for lane in titles))
    return table


def result_table(result: dict[str, Any], prior_name: str) -> Table:
    """The end of a run: each model's test accuracy after and before the last mixing, and its loss."""
    table = Table(title=f"{result['network']} on {result['data']}, {result['epochs']} epochs", title_justify="left")
    table.add_column("model", min_width=18, overflow="fold")
    validated = any("validation_accuracy" in row for row in result["models"])
    columns = ("parameters", "accuracy, %", "unmixed, %", "loss")
    for column in (*columns, "validation, %") if validated else columns:
        table.add_column(column, justify="right")
    for row in result["models"]:
        prior = row["lane"] == "prior"
        parameters = result["parameters"]["prior" if prior else "dense"]
        before = "" if prior else f"{100 * row['test_accuracy_before']:.2f}"
        accuracy = f"{100 * row['test_accuracy']:.2f}"
        name = prior_name if prior else row["name"]
        held_out = [f"{100 * row['validation_accuracy']:.2f}"] if validated else []
        table.add_row(name, f"{parameters:,}", accuracy, before, f"{row['test_loss']:.3f}", *held_out)
    for stop in result["stopped"]:
        where = f"epoch {stop['epoch']}, step {stop['step']}"
        table.add_row(f"lane {stop['lane']}", "", stop.get("reason", "stopped"), "", where)
    return table


def meter_table(result: dict[str, Any]) -> Table | None:
    """The bias meter at the end of a run: a line per model and layer, and what it shows of a random matrix."""
    found: list[tuple[str, dict[str, Any]]] = [
        (row["name"], row["bias"]) for row in result["models"] if row.get("bias")
    ]
    if not found:
        return None
    random = {layer: {part: own.get(f"random_{part}") for part in PARTS} for layer, own in found[0][1].items()}
    table = Table(title="which part of |W|² is shared, local and outside", title_justify="left")
    table.add_column("model", overflow="fold")
    table.add_column("layer", overflow="fold")
    for part in PARTS:
        table.add_column(part, justify="right")
    for name, layers in [("random matrix", random), *found]:
        for n, (layer, own) in enumerate(layers.items(), start=1):
            cells = ["" if (share := own.get(part)) is None else f"{share:.4f}" for part in PARTS]
            table.add_row(name if n == 1 else "", layer, *cells, end_section=n == len(layers))
    return table
