"""Tables once, written three ways: HTML that sorts, CSV with every digit, LaTeX for booktabs."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from imlp.spec.meter import PARTS
from imlp.study.cost import duration
from imlp.study.report.data import ArmData, SearchData
from imlp.study.scores import confidence_interval

Cell = str | float | int | None
LONG = 48  # letters; a cell with more is broken into lines


@dataclass(frozen=True)
class Column:
    """A heading and how its values are written: text, count, per cent, difference, alpha, seconds or r2."""

    title: str
    kind: str = "text"

    def shown(self, value: Cell) -> str:
        """
        >>> Column("std", "percent").shown(1.234), Column("alpha", "alpha").shown(0.0001), Column("n").shown(None)
        ('1.23', '0.0001', '')
        """
        if value is None or isinstance(value, str):
            return value or ""
        match self.kind:
            case "percent":
                return f"{value:.2f}"
            case "difference":
                return f"{value:+.2f}"
            case "count":
                return f"{value:,}"
            case "seconds":
                return duration(value, measured=True)
            case "alpha":
                return f"{value:.3g}"
            case "r2":
                return f"{value:.3f}"
        return str(value)

    @property
    def is_number(self) -> bool:
        return self.kind != "text"


@dataclass(frozen=True)
class Table:
    """What is in `rows` is never rounded; the columns say how it is shown."""

    id: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def csv(self) -> str:
        """One line of headings, then the values with all their digits."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([column.title for column in self.columns])
        writer.writerows(self.rows)
        return buffer.getvalue()

    def latex(self) -> str:
        """A tabular with the rules of booktabs, the title as a comment before it."""
        kinds = "".join("r" if column.is_number else "l" for column in self.columns)
        lines = [f"% {_one_line(self.title)}; needs \\usepackage{{booktabs}}", f"\\begin{{tabular}}{{{kinds}}}"]
        lines += ["\\toprule", _latex_row(column.title for column in self.columns), "\\midrule"]
        for row in self.rows:
            lines.append(_latex_row(column.shown(cell) for column, cell in zip(self.columns, row, strict=True)))
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])

    def html(self) -> str:
        """A table whose headings are buttons that sort it, in a frame that scrolls where it is too wide."""
        heads = "".join(
            f'<th scope="col" aria-sort="none"{_number(column)}>'
            f'<button type="button">{escape(column.title)}<span class="arrow" aria-hidden="true"></span></button></th>'
            for column in self.columns
        )
        body = "".join(f"<tr>{self._html_row(row)}</tr>" for row in self.rows)
        own = f"table-{self.id}"
        return (
            f'<p class="caption" id="{own}-title">{escape(self.title)}</p>'
            f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{own}-title">'
            f'<table class="sortable" id="{own}" aria-labelledby="{own}-title">'
            f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _html_row(self, row: Sequence[Cell]) -> str:
        cells = []
        for n, (column, cell) in enumerate(zip(self.columns, row, strict=True)):
            tag, scope = ("th", ' scope="row"') if n == 0 else ("td", "")
            value = "" if cell is None else escape(str(cell))
            shown = column.shown(cell)
            own = ' class="long"' if len(shown) > LONG else _number(column)
            cells.append(f'<{tag}{scope}{own} data-value="{value}">{escape(shown)}</{tag}>')
        return "".join(cells)


def _number(column: Column) -> str:
    return ' class="number"' if column.is_number else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", **{c: f"\\{c}" for c in "&%$#_{}"},
}  # fmt: skip


def latex_escape(text: str) -> str:
    r"""
    >>> print(latex_escape("50 % of a_b"))
    50 \% of a\_b
    """
    return re.sub("|".join(map(re.escape, SPECIAL)), lambda found: SPECIAL[found[0]], _one_line(text))


def _latex_row(cells: Any) -> str:
    return " & ".join(map(latex_escape, cells)) + r" \\"


def results(arm: ArmData) -> Table:
    """Every model of an arm, those without an accuracy too."""
    seeds = sorted({seed for model in arm.models for seed in model.by_seed})
    remarks = any(model.remark for model in arm.models)
    intervals = any(len(model.by_seed) > 2 for model in arm.models)
    columns = [
        Column("model"), Column("mean, %", "percent"), Column("std", "percent"),
        *([Column("95 % from", "percent"), Column("to", "percent")] if intervals else []), Column("n", "count"),
        *([Column("remark")] if remarks else []), Column("alpha", "alpha"), Column("cadence"),
        Column("parameters", "count"), *(Column(f"seed {seed}", "percent") for seed in seeds),
        Column("run time", "seconds"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            model.title, model.mean, model.std,
            *((confidence_interval(list(model.by_seed.values())) or (None, None)) if intervals else ()),
            len(model.by_seed), *([model.remark] if remarks else []),
            model.alpha if model.alpha is not None else model.setting or None, model.cadence, model.parameters,
            *(model.by_seed.get(seed) for seed in seeds), model.seconds,
        ]
        for model in arm.models
    ]  # fmt: skip
    return Table(f"{arm.id}-results", f"{arm.measure.capitalize()} after the last epoch: {arm.name}", columns, rows)


def fits(arm: ArmData) -> Table | None:
    """The two lines of each series, where there are enough alphas for them."""
    columns = [
        Column("series"), Column("lines meet at alpha", "alpha"), Column("accuracy there, %", "percent"),
        Column("left, points per decade", "difference"), Column("left R²", "r2"),
        Column("right, points per decade", "difference"), Column("right R²", "r2"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [s.name, fit.alpha, fit.accuracy, fit.left.slope, fit.left.r2, fit.right.slope, fit.right.r2]
        for s in arm.series
        if (fit := s.fit)
    ]
    return Table(f"{arm.id}-fits", f"Two lines in log10(alpha): {arm.name}", columns, rows) if rows else None


def by_epoch(arm: ArmData) -> Table:
    """Mean accuracy of every model after each epoch."""
    epochs = sorted({epoch for model in arm.models for epoch in model.epochs})
    columns = [Column("epoch", "count"), *(Column(model.title, "percent") for model in arm.models)]
    at = [dict(zip(model.epochs, model.accuracy, strict=True)) for model in arm.models]
    rows = [[epoch, *(own.get(epoch) for own in at)] for epoch in epochs]
    title = f"{arm.measure.capitalize()} by epoch, %, mean over seeds: {arm.name}"
    return Table(f"{arm.id}-by-epoch", title, columns, rows)


def bias(arm: ArmData) -> Table | None:
    """The bias meter after the last epoch, one line per lane and layer."""
    columns = [Column("model"), Column("layer")]
    columns += [Column(title, "alpha") for part in PARTS for title in (part, f"{part} in a random matrix")]
    columns += [Column("distance to the prior", "r2")]
    rows: list[list[Cell]] = [
        [
            model.title,
            layer,
            *(value for part in PARTS for value in (model.parts[part][k][-1], model.random[part][k])),
            model.distance[k][-1],
        ]
        for model in arm.models
        for k, layer in enumerate(model.layers)
    ]
    return Table(f"{arm.id}-bias", f"Bias meter after the last epoch: {arm.name}", columns, rows) if rows else None


def runs(arm: ArmData) -> Table:
    """Every folder, finished or not."""
    columns = [
        Column("folder"), Column("seed", "count"), Column("lanes", "count"), Column("state"),
        Column("wall time", "seconds"), Column("started"), Column("command"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [run.folder, run.seed, run.lanes, run.state, run.seconds, run.started, run.command] for run in arm.runs
    ]
    return Table(f"{arm.id}-runs", f"Runs: {arm.name}", columns, rows)


def pairs(arm: ArmData, what: str, title: str, rows: Sequence[tuple[str, str]]) -> Table:
    """Names and values: settings, environment."""
    return Table(f"{arm.id}-{what}", f"{title}: {arm.name}", [Column("name"), Column("value")], rows)


def experiment(number: int, found: dict[str, Any]) -> Table:
    """Ours beside the paper's; without the columns that would be empty."""
    intervals = any(row.get("interval") for row in found["table"])
    compared = any(row["difference"] is not None for row in found["table"])
    columns = [
        Column("arm"), Column("model"), Column("mean, %", "percent"), Column("std", "percent"),
        *([Column("95 % from", "percent"), Column("to", "percent")] if intervals else []), Column("n", "count"),
        Column("paper, %", "percent"), Column("paper's std", "percent"),
        *([Column("difference", "difference")] if compared else []),
    ]  # fmt: skip
    rows = [
        [
            *(row[key] for key in ("arm", "model", "mean", "std")),
            *((row.get("interval") or (None, None)) if intervals else ()),
            *(row[key] for key in ("n", "paper", "paper_std", *(["difference"] if compared else []))),
        ]
        for row in found["table"]
    ]  # fmt: skip
    return Table(f"experiment{number}", f"Ours and the paper's: {found['title']}", columns, rows)


def verdicts(number: int, found: dict[str, Any]) -> Table:
    """What became of each of the paper's claims."""
    columns = [Column("verdict"), Column("claim"), Column("because")]
    rows = [[row["verdict"], row["claim"], row["because"]] for row in found["verdicts"]]
    return Table(f"experiment{number}-verdicts", f"Verdicts: {found['title']}", columns, rows)


def of_arm(arm: ArmData) -> dict[str, Table]:
    """All tables of an arm by what they show; those that have nothing to show are left out."""
    found = {
        "results": results(arm), "fits": fits(arm), "by_epoch": by_epoch(arm), "bias": bias(arm), "runs": runs(arm),
        "settings": pairs(arm, "settings", "Settings", arm.settings),
        "environment": pairs(arm, "environment", "Environment", arm.environment),
    }  # fmt: skip
    return {name: table for name, table in found.items() if table is not None}


def trials(found: SearchData) -> Table:
    """Every trial, the best first and those that were stopped early last."""
    layers = found.layers
    columns = [
        Column("trial", "count"), Column("validation accuracy, %", "percent"), Column("after epoch", "count"),
        Column("state"),
        *([Column(f"alpha {layer}", "alpha") for layer in layers] or [Column("alpha", "alpha")]),
        Column("schedule"), Column("mixed every"), Column("lane"), Column("run"),
    ]  # fmt: skip
    content = found.content
    ordered = sorted(content["trials"], key=lambda t: (t["state"] != "complete", -(t["value"] or 0), t["number"]))
    rows: list[list[Cell]] = [
        [
            trial["number"], trial["value"], len(trial["values"]),
            _marked(trial["state"], chosen=trial["number"] == content["chosen"]["number"]),
            *(trial["alphas"].get(layer, trial["alphas"].get("all layers")) for layer in layers or [""]),
            trial["kind"], trial["lane"]["every"], trial["title"], ", lane ".join(map(str, trial["run"])),
        ]
        for trial in ordered
    ]  # fmt: skip
    return Table(f"{found.id}-trials", f"Trials: {found.name}", columns, rows)


def chosen(found: SearchData) -> Table:
    """The alpha of each layer."""
    rows = list(found.content["chosen"]["alpha"].items())
    return Table(f"{found.id}-chosen", f"Chosen: {found.name}", [Column("layer"), Column("alpha", "alpha")], rows)


def final(found: SearchData) -> Table | None:
    """The choice on the test images, beside the prior and the known lanes; None before the end."""
    own = found.content["final"] or ()
    seeds = sorted({seed for row in own for seed in row["test"]["by_seed"]}, key=lambda seed: (len(seed), seed))
    columns = [
        Column("model"), Column("validation accuracy, %", "percent"), Column("test accuracy, mean, %", "percent"),
        Column("std", "percent"), Column("n", "count"), *(Column(f"seed {seed}", "percent") for seed in seeds),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            _marked(row["title"], chosen=row["lane"] == found.content["chosen"]["lane"]), row["validation"],
            *(row["test"][key] for key in ("mean", "std", "n")), *(row["test"]["by_seed"].get(seed) for seed in seeds),
        ]
        for row in own
    ]  # fmt: skip
    return Table(f"{found.id}-final", f"On the test images: {found.name}", columns, rows) if rows else None


def _marked(title: str, *, chosen: bool) -> str:
    return f"{title} (chosen)" if chosen else title


def of_search(found: SearchData) -> dict[str, Table]:
    """All tables of a search by what they show."""
    own = {"trials": trials(found), "chosen": chosen(found), "final": final(found)}
    return {name: table for name, table in own.items() if table is not None}
