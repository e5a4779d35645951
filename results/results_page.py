"""The page of the results on record: what was found, what cannot be told yet, the numbers, where they come from.

All of it is computed from the files of the runs, but for the sentences in `findings.toml` beside them. A finding there
names the verdicts that it rests on, so it cannot outlive them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import readings
from archive import Record

from imlp.errors import ConfigError, ImlpError
from imlp.files import parse_toml, read_text
from imlp.study.cost import duration
from imlp.study.outcomes import FAILS, HOLDS, UNKNOWN, typed
from imlp.study.scores import PRIORS, Arm, arms_of
from imlp.train.run_reader import Run

FINDINGS, NUMBERS = "findings.toml", "numbers.md"
MARK = "<!-- computed by `python results/build.py`; sentences of your own go into findings.toml -->"
ABOUT = (
    "This page is computed from the runs beside it (`python results/build.py`; `--check` fails if it differs). "
    "Accuracies are top-1 on the test images after the last epoch, in per cent; *std* is the standard deviation over "
    "seeds, *95 %* the confidence interval of the mean by Student's t, for three seeds or more."
)
RULE = (
    "A claim *holds* or *fails* by runs of the length that it is about, and by differences above the spread (the "
    "root of the sum of the two variances over seeds); otherwise the verdict is *cannot tell*. With fewer than three "
    "seeds, the largest standard deviation that the paper reports for these models is assumed, unless theirs is larger."
    " So *holds* means a difference of more than one such spread, which is not yet significance."
)
MODELS = (
    "The *S-MLP* is the plain MLP (alpha 0). An *I-MLP* is moved towards a *prior* by alpha, after every step unless "
    "stated otherwise. With `decay:0.5:k`, alpha is 0.5 (1 - t / T)^k in epoch t of T; `end:0.5` mixes once, before "
    "the test. The *S-CNN* and the *MLP-Mixer* are priors, trained on the same batches."
)
AT_THE_SETTING = (
    "Test accuracy in per cent at the paper's setting, as we read it: 100 epochs, all images, the crop `pad`; in "
    "brackets, how many seeds. *Lowest test loss* and *highest* choose the epoch on the test images."
)
CITED = re.compile(r"\{([\w-]+): ([^{}|]+?)(?: \| ([^{}|]+))?\}")
READ = {None: Arm.score, "last five": readings.over_the_last, "lowest loss": readings.at_lowest_loss}
FAR = "How far each reading is from the paper, in the paper's standard deviations"


@dataclass(frozen=True)
class Rest:
    """A verdict that a finding rests on."""

    record: str
    claim: str
    verdict: str


@dataclass(frozen=True)
class Finding:
    """A sentence, its picture, and the verdicts that it rests on; `alt` is what the picture shows."""

    says: str
    figure: str
    rests: list[Rest]
    more: str = ""
    alt: str = ""


@dataclass(frozen=True)
class Note:
    """What is said of one record; `commits` by the name of the run's folder."""

    title: str = ""
    commit: str = ""
    commits: dict[str, str] = field(default_factory=dict)
    note: str = ""
    figure: str = ""
    alt: str = ""


@dataclass(frozen=True)
class Findings:
    """What `findings.toml` holds, which is written by hand."""

    missing: str = ""
    reading: str = ""
    findings: list[Finding] = field(default_factory=list)
    records: dict[str, Note] = field(default_factory=dict)


def pages(folder: Path, found: Sequence[Record]) -> dict[str, str]:
    """The page with the findings, and that with every number, in Markdown; the paper's setting comes first."""
    written = _read_findings(folder, found)
    notes = {record.name: written.records.get(record.name, Note()) for record in found}
    whole, short = ([record for record in found if bool(record.shortfall) == is_short] for is_short in (False, True))
    found = [*whole, *short]
    about_short = list(filter(None, (_note(folder, record, notes[record.name]) for record in short)))
    findings = [
        f"{MARK}\n\n# Results",
        *(part for finding in written.findings for part in _finding(folder, finding, found)),
        *_beside_the_paper(found),
        *_readings(found, written.reading),
        "## What was judged, and what cannot be told yet",
        RULE,
        _counts(found, notes),
        written.missing.strip(),
        *(["## What short runs show", *about_short] if about_short else []),
        f"[Every number, every verdict in full, and where the runs come from]({NUMBERS}).",
    ]
    numbers = [
        f"{MARK}\n\n# The numbers",
        ABOUT,
        *map(_numbers, found),
        "## What the runs are",
        *(_note(folder, record, notes[record.name]) for record in whole),
        "## The verdicts in full",
        *(_verdicts(record) for record in found if record.verdicts),
        "## Where the runs come from",
        _origins(found, notes),
    ]
    parts = {"README.md": findings, NUMBERS: numbers}
    return {name: "\n\n".join(filter(None, own)) + "\n" for name, own in parts.items()}


def _finding(folder: Path, finding: Finding, found: Sequence[Record]) -> list[str]:
    """A finding in bold, its picture, and its evidence; an error if it no longer holds."""
    evidence = []
    for rest in finding.rests:
        verdicts = [verdict for record in found if record.name == rest.record for verdict in record.verdicts]
        verdict = next((verdict for verdict in verdicts if verdict.claim == rest.claim), None)
        if verdict is None or verdict.verdict != rest.verdict:
            now = verdict.verdict if verdict else "not on record"
            problem = f"{folder / FINDINGS}: {finding.says!r:.60} rests on {rest.claim!r} in {rest.record}"
            raise ConfigError(f"{problem}, which is now: {now}", "say what the runs say")
        evidence.append(_text(f"- *{verdict.verdict}*: {verdict.claim} (`{rest.record}`)"))
    picture = f"![{finding.alt or finding.says}]({finding.figure})"
    return [f"**{finding.says}** {finding.more.strip()}".strip(), picture, "\n".join(evidence)]


def _read_findings(folder: Path, found: Sequence[Record]) -> Findings:
    """What is written by hand, with the numbers that it cites; nothing where there is no file."""
    path = folder / FINDINGS
    try:
        content = filled(read_text(path), found) if path.exists() else ""
        written = typed(Findings, parse_toml(content.encode()))
        if unfounded := [finding.says for finding in written.findings if not finding.rests]:
            raise ValueError(f"{unfounded[0]!r:.60} rests on no verdict")
    except ValueError as error:
        problem = error.problem if isinstance(error, ImlpError) else str(error)
        raise ConfigError(
            f"{path}: {problem.removeprefix(f'{path}: ')}", "see that of a clone, and correct it"
        ) from error
    return written


def filled(text: str, records: Sequence[Record]) -> str:
    """A text with each number that it cites, in per cent with one decimal: none in `findings.toml` is outdated.

    `{cnn-paper: S-CNN}` is what the runs say; after a bar stands how it is read: `{cnn-paper: S-CNN | last five}`.
    """
    return CITED.sub(lambda match: _cited(match, records), text)


def _cited(match: re.Match[str], records: Sequence[Record]) -> str:
    name, model, how = match.groups()
    for record in (record for record in records if record.name == name):
        if how in ("seeds", "paper"):
            for row in (row for outcome in record.outcomes for row in outcome.table if row.model == model):
                if (value := row.n if how == "seeds" else row.paper) is not None:
                    return f"{value:.{0 if how == 'seeds' else 1}f}"
        epoch = re.fullmatch(r"epoch (\d+)", how or "")
        read = partial(readings.after_epoch, epoch=int(epoch[1])) if epoch else READ.get(how)
        for arm in arms_of(record.runs) if read else ():
            lanes = {arm.prior_name: None} | {lane.title: lane for lane in arm.lanes}
            if model in lanes and (score := read(arm, lanes[model])) is not None:
                return f"{score.mean:.1f}"
    remedy = "name a record, a model as its table does, and: nothing, last five, lowest loss, epoch N, seeds or paper"
    raise ConfigError(f"{match[0]} is not on record", remedy)


def _beside_the_paper(found: Sequence[Record]) -> list[str]:
    columns, rows = readings.beside_paper(arms_of(run for record in found for run in record.runs))
    return ["## Beside the paper", AT_THE_SETTING, _table(columns, rows), MODELS] if rows else []


def _readings(found: Sequence[Record], chosen: str) -> list[str]:
    """The settings that the paper leaves open, each beside its numbers; and which was chosen, in the writer's words."""
    tables = [_table(*table) for table in readings.tables([run for record in found for run in record.runs])]
    if not tables:
        return []
    folds = [f"<details><summary>{FAR}</summary>\n\n{table}\n\n</details>" for table in tables[1:]]
    return ["## Which reading of the paper", *([chosen.strip()] if chosen else []), tables[0], *folds]


def _counts(found: Sequence[Record], notes: Mapping[str, Note]) -> str:
    """A row for each record: what it asks, how its verdicts came out, and how far it is from the paper's setting."""
    rows = []
    for record in found:
        verdicts = [verdict.verdict for verdict in record.verdicts]
        counts = [str(verdicts.count(which)) for which in (HOLDS, FAILS, UNKNOWN)]
        title = record.outcomes[0].title if record.on_file else notes[record.name].title
        read_as = ", ".join(readings.differences(record.runs[0].config))
        setting = record.shortfall or ("complete" + (f", with {read_as}" if read_as else ""))
        rows.append(
            [record.name, title, *counts, setting if any(run.result for run in record.runs) else "stopped early"]
        )
    return _table(["runs", "what they ask", "hold", "fail", "cannot tell", "the paper's setting"], rows)


def _note(folder: Path, record: Record, about: Note) -> str:
    shows = about.figure and (folder / about.figure).exists()
    picture = f"\n\n![{_text(record.name)}]({about.figure})" if shows else ""
    return f"### {_text(record.name)}: {about.title}\n\n{about.note.strip()}{picture}" if about.note else ""


def _numbers(record: Record) -> str:
    """A table of the models of all arms, then the latest accuracies of unfinished runs."""
    rows: dict[tuple[str, str], list[str]] = {}
    compared = any(row.difference is not None for outcome in record.outcomes for row in outcome.table)
    for outcome in record.outcomes:
        for row in outcome.table:
            if (row.arm, row.model) not in rows or row.paper is not None:
                model = f"{row.arm}: {row.model}" if len(outcome.arms) > 1 else row.model
                interval = "{:.2f} to {:.2f}".format(*row.interval) if row.interval else ""
                ours = [_number(row.mean), _number(row.std), interval, str(row.n)]
                paper = [_number(row.paper), _number(row.paper_std), *([_number(row.difference, "+.2f")] * compared)]
                rows[row.arm, row.model] = [model, *ours, *paper]
    columns = ["model", "ours", "std", "95 %", "seeds", "paper", "its std", *(["difference"] if compared else [])]
    parts = [_text(f"**{record.name}**{f' ({record.shortfall})' if record.shortfall else ''}")]
    parts += [_table(columns, rows.values())] if rows else []
    return "\n\n".join([*parts, *(_unfinished(run) for run in record.runs if run.result is None)])


def _unfinished(run: Run) -> str:
    """Latest accuracy of each model of an unfinished run."""
    done, config = max((row["epoch"] for row in run.rows), default=0), run.config
    names = {"prior": PRIORS.get(config.network, "prior")}
    last = [row for row in run.rows if row["epoch"] == done]
    models = ", ".join(f"{names.get(row['lane'], row['name'])} {_number(100 * row['test_accuracy'])}" for row in last)
    return _text(f"Not finished: seed {config.seed}, epoch {done} of {config.epochs}{f': {models}' if models else ''}.")


def _verdicts(record: Record) -> str:
    lines = [_text(f"- *{v.verdict}*: {v.claim}. {v.because[0].upper()}{v.because[1:]}.") for v in record.verdicts]
    return "\n".join([_text(f"**{record.name}**"), "", *lines])


def _origins(found: Sequence[Record], notes: Mapping[str, Note]) -> str:
    """A row for each experiment, and for each run of a record without one."""
    rows = []
    for record in found:
        about = notes[record.name]
        for runs in [record.runs] if record.on_file else [[run] for run in record.runs]:
            run, env = runs[0], runs[0].env
            folder = run.folder.name
            name = record.name if record.on_file or len(record.runs) == 1 else f"{record.name}/{folder}"
            command = record.on_file.command if record.on_file else env.get("command", "")
            command = f"python {command}" if command.startswith("cli.py") else command
            times = duration(60 * max(1, round(sum(one.seconds for one in runs) / 60)))
            images = f"{run.config.train_size:,}" if run.config.train_size else "all"
            images += f", {run.config.validation:,} held out" if run.config.validation else ""
            rows.append([
                name, f"`{command}`", str(env.get("started", ""))[:10], times, str(run.config.epochs), images,
                about.commits.get(folder, about.commit), _machine(env),
                *(str(env.get(key, "")) for key in ("python", "torch", "numpy")),
            ])  # fmt: skip
    titles = ["runs", "command", "began", "wall time", "epochs", "images", "commit", "machine"]
    return _table([*titles, "Python", "torch", "NumPy"], rows)


def _machine(env: dict[str, Any]) -> str:
    threads = env.get("threads")
    parts = [env.get("system"), env.get("processor"), threads and f"{threads} thread{'s' * (threads != 1)}"]
    return ", ".join(str(part) for part in parts if part)


def _number(value: float | None, digits: str = ".2f") -> str:
    return "" if value is None else format(value, digits)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_text, cells)) + " |" for cells in lines)


def _text(value: Any) -> str:
    """What the files of runs say, as Markdown shows it: on one line, in one cell, and never a tag or a link."""
    escaped = " ".join(str(value).split())
    for mark, instead in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("](", "]\\(")):
        escaped = escaped.replace(mark, instead)
    return escaped
