"""The page of the results on record: what was found, what cannot be told yet, the numbers, where they come from.

All of it is computed from the files of the runs, but for the sentences in `findings.toml` beside them. A finding there
names the verdicts that it rests on, so it cannot outlive them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import beside_paper
import figure2
import figure3
import readings
from archive import Record

from imlp.errors import ConfigError, ImlpError, known
from imlp.paper.claims import UNKNOWN
from imlp.study.cost import duration
from imlp.study.scores import PRIORS, arms_of
from imlp.train.config import read
from imlp.train.run_reader import Run, conform, optional

FINDINGS = "findings.toml"
MARK = "<!-- computed by `python results/build.py`; sentences of your own go into findings.toml -->"
REST = {"record": str, "claim": str, "verdict": str}  # what findings.toml may hold, and has to
FINDING, MORE_OF_FINDING = {"says": str, "figure": str, "rests": [REST]}, {"more": str, "alt": str}
RECORD = {"title": str, "commit": str, "commits": {...: str}, "note": str, "figure": str, "alt": str}
PAGE = {
    "missing": str,
    "reading": str,
    "findings": [lambda own: FINDING | optional(**MORE_OF_FINDING)(own)],
    "records": {...: optional(**RECORD)},
}
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
BESIDE = "Test accuracy in per cent at the paper's setting, as we read it: 100 epochs, all images, the crop `pad`."


def page(folder: Path, found: Sequence[Record]) -> str:
    """The whole page in Markdown."""
    given = _read_findings(folder)
    notes = given.get("records", {})
    found = sorted(found, key=lambda record: record.lacking != "")  # the paper's setting first
    parts = [
        f"{MARK}\n\n# Results",
        *_findings(folder, given.get("findings", []), found),
        *_beside_the_paper(found),
        *_paper_figures(found, {finding["figure"] for finding in given.get("findings", [])}),
        *_readings(found, given.get("reading", "")),
        "## What was judged, and what cannot be told yet",
        RULE,
        _open(found, notes),
        *(_note(folder, record, notes.get(record.name, {})) for record in found if not record.lacking),
        *([given["missing"].strip()] if "missing" in given else []),
        *(_short(folder, [record for record in found if record.lacking], notes)),
        "## The numbers",
        ABOUT,
        *(_numbers(record) for record in found),
        "## The verdicts in full",
        *(_verdicts(record) for record in found if record.verdicts),
        "## Where the runs come from",
        _origins(found, notes),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _findings(folder: Path, given: Sequence[dict[str, Any]], known: Sequence[Record]) -> list[str]:
    """Each finding in bold with its evidence and its picture; without a file of them, the verdicts themselves."""
    found: list[str] = []
    for finding in given:
        evidence = []
        for rest in finding["rests"]:
            verdict = _named(known, rest["record"], rest["claim"])
            if verdict is None or verdict["verdict"] != rest["verdict"]:
                now = verdict["verdict"] if verdict else "not on record"
                problem = f"{folder / FINDINGS}: {finding['says']!r:.60} rests on {rest['claim']!r} in {rest['record']}"
                raise ConfigError(f"{problem}, which is now: {now}", "say what the runs say")
            evidence.append(_evidence(rest["record"], verdict))
        picture = f"![{finding.get('alt', finding['says'])}]({finding['figure']})"
        said = f"**{finding['says']}** {finding.get('more', '').strip()}".strip()
        found += [said, picture, "\n".join(evidence)]
    if not given:
        decided = [(r.name, v) for r in known for v in r.verdicts if v["verdict"] != UNKNOWN]
        found = [_evidence(name, verdict) for name, verdict in decided]
        found = ["\n".join(found)] if found else ["No claim can be judged by what is on record."]
    return found


def _read_findings(folder: Path) -> dict[str, Any]:
    """What is written by hand, if it is what it should be; nothing where there is no file."""
    path = folder / FINDINGS
    if not path.exists():
        return {}
    given = read(path)
    try:
        conform(given, optional(**PAGE))
        tables = [(given, PAGE), *((own, RECORD) for own in given.get("records", {}).values())]
        tables += [(own, FINDING | MORE_OF_FINDING) for own in given.get("findings", [])]
        for key, keys in ((key, keys) for table, keys in tables for key in table):
            known(key, keys, "key")
        if lacking := [own["says"] for own in given.get("findings", []) if not own["rests"]]:
            raise ValueError(f"{lacking[0]!r:.60} rests on no verdict")
    except ImlpError as error:
        raise ConfigError(f"{path}: {error.problem}", error.remedy) from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}", "correct it; see the findings of the record in a clone") from error
    return given


def _named(found: Iterable[Record], name: str, claim: str) -> dict[str, str] | None:
    own = (verdict for record in found if record.name == name for verdict in record.verdicts)
    return next((verdict for verdict in own if verdict["claim"] == claim), None)


def _beside_the_paper(found: Sequence[Record]) -> list[str]:
    columns, rows = beside_paper.table(arms_of(run for record in found for run in record.runs))
    return ["## Beside the paper", BESIDE, _table(columns, rows), MODELS] if rows else []


def _paper_figures(found: Sequence[Record], shown: set[str]) -> list[str]:
    """Figures 2 and 3, unless a finding has shown them."""
    runs, parts = [run for record in found for run in record.runs], []
    for number, of, what in ((2, figure2, "Accuracy against alpha"), (3, figure3, "Alpha that decays over the epochs")):
        name = f"figure{number}.png"
        if name not in shown and (arm := of.best_arm(runs)) is not None:
            text = f"{what}, with the CNN prior on CIFAR-10: {figure2.described(arm, of.drawn(arm))}."
            parts += [f"## Figure {number}, as far as it is on record", text, f"![{what}]({name})"]
    return parts


def _readings(found: Sequence[Record], chosen: str) -> list[str]:
    """The settings that the paper leaves open, each beside its numbers; and which was chosen, in the writer's words."""
    tables = readings.tables([run for record in found for run in record.runs])
    if not tables:
        return []
    parts = ["## Which reading of the paper", *([chosen.strip()] if chosen else [])]
    for name, (columns, rows) in tables.items():
        parts += [f"Runs that are {name}:" if name == "finished" else f"Runs that were {name}:", _table(columns, rows)]
    return parts


def _open(found: Sequence[Record], notes: dict[str, Any]) -> str:
    rows = []
    for record in found:
        verdicts = [verdict["verdict"] for verdict in record.verdicts]
        counts = [str(verdicts.count(which)) for which in ("holds", "fails", UNKNOWN)]
        title = record.outcomes[0]["title"] if record.said else notes.get(record.name, {}).get("title", "")
        rows.append([record.name, title, *counts, _lacking(record)])
    return _table(["runs", "what they ask", "hold", "fail", "cannot tell", "the paper's setting"], rows)


def _lacking(record: Record) -> str:
    """How far its runs are from the paper's setting, and how they read what the paper leaves open."""
    if not any(run.result for run in record.runs):
        return "stopped early"
    read_as = ", ".join(readings.differences(record.runs[0].config))
    return record.lacking or ("complete" + (f", with {read_as}" if read_as else ""))


def _short(folder: Path, found: Sequence[Record], notes: dict[str, Any]) -> list[str]:
    told = list(filter(None, (_note(folder, record, notes.get(record.name, {})) for record in found)))
    return ["## What short runs show", *told] if told else []


def _note(folder: Path, record: Record, about: dict[str, str]) -> str:
    if not about.get("note"):
        return ""
    shown = about.get("figure", "")
    picture = f"\n\n![{_text(record.name)}]({shown})" if shown and (folder / shown).exists() else ""
    return f"### {_text(record.name)}: {about.get('title', '')}\n\n{about['note'].strip()}{picture}"


def _numbers(record: Record) -> str:
    """A table for each arm's models, and where a run that is not finished has come to."""
    rows: dict[tuple[str, str], list[str]] = {}
    compared = any(row["difference"] is not None for outcome in record.outcomes for row in outcome["table"])
    for outcome in record.outcomes:
        several = len(outcome["arms"]) > 1
        for row in outcome["table"]:
            model = f"{row['arm']}: {row['model']}" if several else row["model"]
            cells = [_number(row["mean"]), _number(row["std"])]
            cells.append("{:.2f} to {:.2f}".format(*row["interval"]) if row["interval"] else "")
            cells += [str(row["n"]), _number(row["paper"]), _number(row["paper_std"])]
            cells += [f"{row['difference']:+.2f}" if row["difference"] is not None else ""] if compared else []
            known = rows.get((row["arm"], row["model"]))
            if known is None or row["paper"] is not None:
                rows[row["arm"], row["model"]] = [model, *cells]
    columns = ["model", "ours", "std", "95 %", "seeds", "paper", "its std", *(["difference"] if compared else [])]
    body = [*rows.values()] or [row for run in record.runs if run.result for row in _alone(run)]
    parts = [_text(f"**{record.name}**{f' ({record.lacking})' if record.lacking else ''}")]
    parts += [_table(columns, body)] if body else []
    return "\n\n".join([*parts, *(text for run in record.runs if run.result is None for text in _unfinished(run))])


def _alone(run: Run) -> list[list[str]]:
    """The models of a run that no experiment asks about."""
    names = {"prior": PRIORS.get(run.config.network, "prior")}
    own = run.result["models"] if run.result else ()
    return [[names.get(m["lane"], m["name"]), _number(100 * m["test_accuracy"]), "", "", "1", "", ""] for m in own]


def _unfinished(run: Run) -> list[str]:
    """Where each model of a run has come to that is not finished."""
    done, config = max((row["epoch"] for row in run.rows), default=0), run.config
    names = {"prior": PRIORS.get(config.network, "prior")}
    last = [row for row in run.rows if row["epoch"] == done]
    models = ", ".join(f"{names.get(row['lane'], row['name'])} {_number(100 * row['test_accuracy'])}" for row in last)
    how_far = f"Not finished: seed {config.seed}, epoch {done} of {config.epochs}{f': {models}' if models else ''}."
    return [_text(how_far)]


def _verdicts(record: Record) -> str:
    lines = [_text(f"- *{v['verdict']}*: {v['claim']}. {_sentence(v)}") for v in record.verdicts]
    return "\n".join([_text(f"**{record.name}**"), "", *lines])


def _origins(found: Sequence[Record], notes: dict[str, Any]) -> str:
    """A row for each experiment, and for each run of a record without one."""
    rows = []
    for record in found:
        about = notes.get(record.name, {})
        for runs in [record.runs] if record.said else [[run] for run in record.runs]:
            run, env = runs[0], runs[0].env
            own = run.folder.name
            name = record.name if record.said or len(record.runs) == 1 else f"{record.name}/{own}"
            command = record.said["command"] if record.said else env.get("command", "")
            command = f"python {command}" if command.startswith("cli.py") else command
            times = duration(60 * max(1, round(sum(one.seconds for one in runs) / 60)))
            images = f"{run.config.train_size:,}" if run.config.train_size else "all"
            images += f", {run.config.validation:,} held out" if run.config.validation else ""
            rows.append([
                name, f"`{command}`", str(env.get("started", ""))[:10], times, str(run.config.epochs), images,
                about.get("commits", {}).get(own, about.get("commit", "")), _machine(env),
                *(str(env.get(key, "")) for key in ("python", "torch", "numpy")),
            ])  # fmt: skip
    titles = ["runs", "command", "began", "wall time", "epochs", "images", "commit", "machine"]
    return _table([*titles, "Python", "torch", "NumPy"], rows)


def _machine(env: dict[str, Any]) -> str:
    threads = env.get("threads")
    parts = [env.get("system"), env.get("processor"), threads and f"{threads} thread{'s' * (threads != 1)}"]
    return ", ".join(str(part) for part in parts if part)


def _evidence(record: str, verdict: dict[str, str]) -> str:
    return _text(f"- *{verdict['verdict']}*: {verdict['claim']} (`{record}`). {_sentence(verdict)}")


def _sentence(verdict: dict[str, str]) -> str:
    return f"{verdict['because'][0].upper()}{verdict['because'][1:]}."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_text, cells)) + " |" for cells in lines)


def _text(value: Any) -> str:
    """What the files of runs say, as Markdown shows it: on one line, in one cell, and never a tag or a link."""
    escaped = " ".join(str(value).split())
    for mark, instead in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("](", "]\\(")):
        escaped = escaped.replace(mark, instead)
    return escaped
