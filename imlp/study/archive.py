"""Results on record: the small files of runs, and a table that can be computed from them again.

`results/NAME/` holds what `collect` took from a folder of `train`, `sweep` or `reproduce`: each run's configuration,
environment, metrics, times and result, `experiment.json` if there is one, and the report's figures. No weights.
"""

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from imlp.errors import ConfigError
from imlp.files import check_path, make_folder, read_text, write_json, write_whole
from imlp.study import experiments
from imlp.study.cost import duration
from imlp.study.scores import PRIORS, Arm, arms_of
from imlp.train.run_folder import ENVIRONMENT, RunFolder
from imlp.train.run_reader import Run, find_runs, read_json

BEGIN, END = "<!-- begin: computed by `python cli.py results` -->", "<!-- end -->"
SAID = {"name": str, "budget": str, "command": str, "arms": [{"name": str, "key": str}]}  # of experiment.json
PAPER = {"cnn": "table1-cnn", "mixer": "table1-mixer"}  # whose numbers stand beside those of runs without an experiment


def collect(source: Path, target: Path) -> list[Path]:
    """Copy what is kept of the runs in a folder; the files that are there now."""
    runs = find_runs([source])
    check_path(target)
    written = []
    for run in runs:
        place = target / run.folder.relative_to(source.resolve())
        make_folder(place)
        written += [_copy(path, place / path.name) for path in RunFolder(run.folder).archived()]
    if (source / "experiment.json").exists():
        written.append(_copy(source / "experiment.json", target / "experiment.json"))
    for path in written:
        if path.name in (ENVIRONMENT, "experiment.json"):
            _forget_place(path)
    for name, made in outcomes(target.parent).items():  # of all runs that are there, whichever call made them
        if name == target.name:
            write_json(target / "experiment.json", made)
    for picture in sorted((source / "report").glob("*-alpha.*")) + sorted((source / "report").glob("*-epochs.*")):
        make_folder(target / "figures")
        written.append(_copy(picture, target / "figures" / picture.name))
    return written


def table(folder: Path) -> str:
    """The table of everything on record, in Markdown."""
    lines = [
        "| what | model | paper, % | ours, % | difference | seeds | epochs | images | wall time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names(folder):
        for row in _rows(name, folder / name):
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n" + _verdicts(folder) + _commands(folder)


def with_table(text: str, made: str) -> str:
    """The page with the computed part put in its place."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError("the page has no place for the table", f"put these two lines into it: {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def outcomes(folder: Path) -> dict[str, dict[str, Any]]:
    """What each `experiment.json` says, computed again from the files of the runs."""
    found = {}
    for name in names(folder):
        said = _said(folder / name)
        if said:
            arms = _arms_by_name(said, arms_of(find_runs([folder / name])))
            experiment = experiments.read_experiment(said["name"])
            found[name] = experiment.outcome(arms, budget=said["budget"], command=said["command"])
    return found


def disagreements(folder: Path) -> list[str]:
    """Where the page or an `experiment.json` differs from what the files of the runs say."""
    wrong = []
    for name, made in outcomes(folder).items():
        if made != _said(folder / name):
            wrong.append(f"{folder / name / 'experiment.json'} is not what its runs give")
    text = read_text(folder / "README.md", "write it first: results")
    if with_table(text, table(folder)) != text:
        wrong.append(f"the table of {folder / 'README.md'} is not what the runs give")
    return wrong


def _said(folder: Path) -> dict[str, Any] | None:
    path = folder / "experiment.json"
    return read_json(path, SAID) if path.exists() else None


def names(folder: Path) -> list[str]:
    """Of the folders that hold runs."""
    return sorted({path.relative_to(folder).parts[0] for path in RunFolder.find(folder, "*/**")})


def _arms_by_name(said: Mapping[str, Any], arms: Iterable[Arm]) -> dict[str, Arm]:
    names = {arm["key"]: arm["name"] for arm in said["arms"]}
    found = {names[arm.key]: arm for arm in arms if arm.key in names}
    return {arm["name"]: found[arm["name"]] for arm in said["arms"] if arm["name"] in found}


def _rows(name: str, folder: Path) -> list[list[str]]:
    """A row for each model of each arm, with where a run that is not finished has come to."""
    said = _said(folder)
    rows = []
    arms = arms_of(find_runs([folder]))
    by_key = {arm["key"]: arm["name"] for arm in said["arms"]} if said else {}
    for arm in arms:
        title = f"{name}, {by_key[arm.key]}" if len(by_key) > 1 and arm.key in by_key else name
        paper = _paper(said["name"] if said else PAPER.get(arm.config.network), by_key.get(arm.key), arm)
        rows += [_row(title, arm, score, paper) for score in arm.scores]
        rows += [row for run in arm.runs if run.result is None for row in _unfinished(title, run)]
    return rows


def _paper(experiment: str | None, arm_name: str | None, arm: Arm) -> dict[Any, dict[str, Any]]:
    """The paper's row for each score's lane, where it has one."""
    if experiment is None:
        return {}
    loaded = experiments.read_experiment(experiment)
    rows = [row for row in loaded.paper(arm.config.data) if arm_name is None or row["arm"] == arm_name]
    found = {}
    for score in arm.scores:
        row = next((row for row in rows if experiments.is_about(score, row["lane"])), None)
        if row:
            found[score.lane] = row
    return found


def _row(title: str, arm: Arm, score: Any, paper: Mapping[Any, dict[str, Any]]) -> list[str]:
    theirs = paper.get(score.lane)
    std = f" +- {theirs['std']:.2f}" if theirs and theirs["std"] is not None else ""
    printed = f"{theirs['value']:.2f}{std}" if theirs else ""
    difference = f"{score.mean - theirs['value']:+.2f}" if theirs else ""
    model = score.lane.title if score.lane else arm.prior_name
    config = arm.config
    images = f"{config.train_size:,}" if config.train_size else "all"
    return [title, model, printed, str(score), difference, str(score.n), str(config.epochs), images, _time(arm.runs)]


def _unfinished(title: str, run: Run) -> list[list[str]]:
    """Where each model of a run has come to that is not finished."""
    done, config = max((row["epoch"] for row in run.rows), default=0), run.config
    images = f"{config.train_size:,}" if config.train_size else "all"
    about = ["", f"{done} of {config.epochs}", images, _time([run])]
    last = [row for row in run.rows if row["epoch"] == done]
    names = {"prior": PRIORS.get(config.network, "prior")}
    shown = [(names.get(row["lane"], row["name"]), f"{100 * row['test_accuracy']:.2f}") for row in last]
    rows = shown or [("nothing yet", "")]
    return [[title, f"{model}, seed {config.seed}, not finished", "", accuracy, "", *about] for model, accuracy in rows]


def _time(runs: Iterable[Run]) -> str:
    """Of all seeds together; lanes train beside each other."""
    minutes = round(sum(run.seconds for run in runs) / 60)
    return f"{minutes} min" if minutes < 2 else duration(60 * minutes)


def _verdicts(folder: Path) -> str:
    lines = []
    for name, outcome in outcomes(folder).items():
        if outcome["verdicts"]:
            lines += ["", f"**{name}** ({outcome['budget']}): {outcome['title']}.", ""]
        for verdict in outcome["verdicts"]:
            lines.append(f"- *{verdict['verdict']}*: {verdict['claim']}. {verdict['because']}.")
    return "\n".join(["", *lines, ""]) if lines else ""


def _commands(folder: Path) -> str:
    """What each was made with."""
    lines = ["", "| what | command | machine | versions |", "|---|---|---|---|"]
    for name in names(folder):
        run = find_runs([folder / name])[0]
        said = _said(folder / name)
        command = said["command"] if said else run.env.get("command", "")
        command = f"python {command}" if command.startswith("cli.py") else command
        versions = ", ".join(
            f"{key} {run.env[key]}" for key in ("imlp", "python", "torch", "numpy") if run.env.get(key)
        )
        machine = f"{run.env.get('system', '')}, {run.env.get('threads', '')} threads"
        lines.append(f"| {name} | `{command}` | {machine} | {versions} |")
    return "\n".join([*lines, ""])


def _forget_place(path: Path) -> None:
    """Take `--out FOLDER` from the command: where it was written then means nothing to those who repeat it."""
    content = read_json(path, {"command": str})
    content["command"] = re.sub(r" --out[ =]\S+", "", content.get("command", ""))
    write_json(path, content)


def _copy(source: Path, target: Path) -> Path:
    with open(source, "rb") as file, write_whole(target) as copy:
        shutil.copyfileobj(file, copy)
    return target
