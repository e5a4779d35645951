"""Tables once, shown on the page, where they can be sorted, and written as CSV.

A column is one line: its heading, what it takes from a record, and how a number is written. One that has nothing to
show is left out.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from imlp.couplings.setting import shown
from imlp.report.gather import ArmData, ModelData, cadence, place, state
from imlp.spec.base import PARTS
from imlp.study.cost import duration
from imlp.study.outcomes import ExperimentOutcome
from imlp.study.scores import constant_alpha
from imlp.train.run_reader import Run

Cell = str | float | int | None
PERCENT, DIFFERENCE, COUNT, SHORT = "{:.2f}".format, "{:+.2f}".format, "{:,}".format, "{:.3g}".format


@dataclass(frozen=True)
class Column:
    """A heading, the value that it takes from a record, and how numbers are written; without that it is text."""

    title: str
    value: Callable[[Any], Cell]
    written: Callable[..., str] | None = None
    bar: bool = False  # whether the page shows it as a bar, from 0 to 100

    def shown(self, value: Cell) -> str:
        """
        >>> Column("alpha", float, SHORT).shown(0.0001), Column("alpha", str, SHORT).shown("decay:0.5:2")
        ('0.0001', 'decay:0.5:2')
        """
        if value is None or isinstance(value, str) or self.written is None:
            return "" if value is None else str(value)
        return self.written(value)


@dataclass(frozen=True)
class Table:
    """What is in `rows` is never rounded; the columns say how it is shown."""

    id: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @classmethod
    def of(cls, id: str, title: str, columns: Iterable[Column], records: Iterable[Any]) -> "Table":
        """A row for each record, without the columns that are empty in all of them."""
        listed = list(records)
        filled = [column for column in columns if any(column.value(record) not in (None, "") for record in listed)]
        return cls(id, title, filled, [[column.value(record) for column in filled] for record in listed])

    def csv(self) -> str:
        """One line of headings, then the values with all their digits."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([column.title for column in self.columns])
        writer.writerows(self.rows)
        return buffer.getvalue()


def _keyed(titles: Mapping[Any, str], value: Callable[[Any, Any], Cell], written: Callable[..., str]) -> list[Column]:
    """A column for each key, of which `value` is told beside the record."""
    return [Column(title, partial(value, key), written) for key, title in titles.items()]


def _interval(interval: Callable[[Any], Sequence[float] | None]) -> list[Column]:
    return _keyed({0: "95 % from", 1: "to"}, lambda end, record: (interval(record) or (None, None))[end], PERCENT)


def _alpha(model: ModelData) -> Cell:
    """One number, or the alpha as it was written; nothing of couplings that have none."""
    if model.lane is None or not model.lane.mixes:
        return None
    alpha = constant_alpha(model.lane)
    return alpha if alpha is not None else " / ".join(dict.fromkeys(model.lane.knobs))


def _metrics(arm: ArmData) -> dict[str, str]:
    """The titles of all numbers that the runs report after an epoch, beside accuracy, by their names."""
    names = (name for model in arm.models for epoch in model.epochs for name in epoch.metrics)
    return {name: name.replace("_", " ") + (", %" if "accuracy" in name else "") for name in names}


def results(arm: ArmData) -> Table:
    """Every model of an arm, those without an accuracy too."""
    seeds = sorted({seed for model in arm.models if model.score for seed in model.score.by_seed})
    columns = [
        Column("model", lambda model: model.title),
        Column("mean, %", lambda model: model.score and model.score.mean, PERCENT, bar=True),
        Column("std", lambda model: model.score and model.score.std, PERCENT),
        *_interval(lambda model: model.score and model.score.interval),
        Column("n", lambda model: model.score.n if model.score else 0, COUNT),
        Column("remark", lambda model: model.remark),
        Column("alpha", _alpha, SHORT),
        Column("mixed", lambda model: cadence(model.lane) if model.lane and not model.lane.is_plain else ""),
        Column("parameters", lambda model: model.parameters, COUNT),
        *_keyed(
            {seed: f"seed {seed}" for seed in seeds if len(seeds) > 1},
            lambda seed, model: model.score and model.score.by_seed.get(seed),
            PERCENT,
        ),
        *_keyed(_metrics(arm), lambda name, model: model.epochs[-1].metrics.get(name) if model.epochs else None, SHORT),
        Column("run time", lambda model: model.seconds, partial(duration, measured=True)),
    ]
    title = f"{arm.arm.config.measure.capitalize()} after the last epoch: {arm.name}"
    return Table.of(f"{arm.id}-results", title, columns, arm.models)


def by_epoch(arm: ArmData) -> Table:
    """Every model after each epoch: mean accuracy over the seeds, and every other number that the runs report."""
    columns = [
        Column("model", lambda pair: pair[0].title),
        Column("epoch", lambda pair: pair[1].epoch, COUNT),
        Column("mean, %", lambda pair: pair[1].accuracy, PERCENT),
        Column("std", lambda pair: pair[1].spread, PERCENT),
        Column("n", lambda pair: pair[1].n, COUNT),
    ]
    columns += _keyed(_metrics(arm), lambda name, pair: pair[1].metrics.get(name), SHORT)
    pairs = [(model, epoch) for model in arm.models for epoch in model.epochs]
    return Table.of(f"{arm.id}-by-epoch", f"By epoch: {arm.name}", columns, pairs)


def bias(arm: ArmData) -> Table:
    """The bias meter after the last epoch, one line per lane and layer."""
    titles = {key: key.replace("_", " ") for part in PARTS for key in (part, f"random_{part}")}
    titles["distance"] = "distance to the prior"
    columns = [Column("model", lambda row: row[0]), Column("layer", lambda row: row[1])]
    columns += _keyed(titles, lambda part, row: row[2][part], SHORT)
    rows = [(model.title, layer, parts) for model in arm.models for layer, parts in model.meter.items()]
    return Table.of(f"{arm.id}-bias", f"Bias meter after the last epoch: {arm.name}", columns, rows)


RUN_COLUMNS = (
    Column("folder", lambda run: place(run.folder)),
    Column("seed", lambda run: run.config.seed, COUNT),
    Column("lanes", lambda run: len(run.config.lanes), COUNT),
    Column("state", state),
    Column("wall time", lambda run: run.seconds if run.times else None, partial(duration, measured=True)),
    Column("started", lambda run: str(run.env.get("started", ""))),
    Column("command", lambda run: str(run.env.get("command", ""))),
)


def runs(arm: ArmData) -> Table:
    """Every folder, finished or not."""
    return Table.of(f"{arm.id}-runs", f"Runs: {arm.name}", RUN_COLUMNS, arm.arm.runs)


def settings(arm: ArmData) -> Table:
    """Every setting but seed and lanes, then what `env.json` says of the machines; each value once."""

    def rows(read: Callable[[Run], dict[str, Any]], but: Sequence[str]) -> list[tuple[str, str]]:
        by_run = list(map(read, arm.arm.runs))
        names = dict.fromkeys(name for values in by_run for name in values if name not in but)
        return [(name, " | ".join(dict.fromkeys(shown(values.get(name, "")) for values in by_run))) for name in names]

    pairs = [
        *rows(lambda run: vars(run.config), ("seed", "lanes")),
        ("identity without seed and lanes", arm.arm.key),
        *rows(lambda run: {name: str(value) for name, value in run.env.items()}, ("command", "started")),
    ]
    columns = [Column("name", lambda pair: pair[0]), Column("value", lambda pair: pair[1])]
    return Table.of(f"{arm.id}-settings", f"Settings and machine: {arm.name}", columns, pairs)


OUTCOME_COLUMNS = (
    Column("arm", lambda row: row.arm),
    Column("model", lambda row: row.model),
    Column("mean, %", lambda row: row.mean, PERCENT, bar=True),
    Column("std", lambda row: row.std, PERCENT),
    *_interval(lambda row: row.interval),
    Column("n", lambda row: row.n, COUNT),
    Column("paper, %", lambda row: row.paper, PERCENT),
    Column("paper's std", lambda row: row.paper_std, PERCENT),
    Column("difference", lambda row: row.difference, DIFFERENCE),
)


def beside_paper(id: str, outcome: ExperimentOutcome) -> Table:
    """Ours beside the paper's."""
    return Table.of(id, f"Ours and the paper's: {outcome.title}", OUTCOME_COLUMNS, outcome.table)


def of_arm(arm: ArmData) -> list[Table]:
    """All tables of an arm that have something to show."""
    return [table for made in (results, by_epoch, bias, runs, settings) if (table := made(arm)).rows]
