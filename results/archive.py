"""Results on record: the small files of runs, and a page that can be computed from them again.

`results/NAME/` holds what `collect` took from a folder of `train`, `sweep` or `reproduce`: each run's configuration,
environment, metrics, times and result, `experiment.json` if there is one, and figures drawn from them. No weights.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imlp.errors import FileError
from imlp.files import check_path, make_folder, read_text, reason, shown, write_json, write_whole
from imlp.paper import experiments
from imlp.paper.implied import decided, implied
from imlp.study.scores import Arm, arms_of
from imlp.train.run_folder import ENVIRONMENT, RunFolder
from imlp.train.run_reader import Run, find_runs, read_json

SAID = {"name": str, "budget": str, "command": str, "arms": [{"name": str, "key": str}]}  # of experiment.json


@dataclass(frozen=True)
class Record:
    """One folder on record: its runs, and what came of them."""

    name: str
    runs: list[Run]
    said: dict[str, Any] | None  # what its `experiment.json` says
    outcomes: list[dict[str, Any]]  # one computed again for the experiment, or for each arm without one

    @property
    def verdicts(self) -> list[dict[str, str]]:
        """On the claims of its experiment, or on those that its runs can speak of."""
        return self.outcomes[0]["verdicts"] if self.said else decided(self.outcomes)

    @property
    def lacking(self) -> str:
        """What its runs lack of the paper's setting."""
        return next((outcome["lacking"] for outcome in self.outcomes if outcome["lacking"]), "")


def records(folder: Path) -> list[Record]:
    """Everything on record, by name."""
    return [_record(folder / name) for name in names(folder)]


def _record(folder: Path) -> Record:
    path, runs = folder / "experiment.json", find_runs([folder])
    said = read_json(path, SAID) if path.exists() else None
    arms = arms_of(runs)
    if said:
        experiment = experiments.read_experiment(said["name"])
        made = [experiment.outcome(_by_name(said, arms), budget=said["budget"], command=said["command"])]
    else:
        made = [outcome for arm in arms for outcome in implied(arm)]
    return Record(folder.name, runs, said, made)


def _by_name(said: Mapping[str, Any], arms: Iterable[Arm]) -> dict[str, Arm]:
    names = {arm["key"]: arm["name"] for arm in said["arms"]}
    found = {names[arm.key]: arm for arm in arms if arm.key in names}
    return {arm["name"]: found[arm["name"]] for arm in said["arms"] if arm["name"] in found}


def names(folder: Path) -> list[str]:
    """Of the folders that hold runs."""
    found = {path.relative_to(folder).parts[0] for path in RunFolder.find(folder, "*/**")}
    return sorted(name for name in found if not name.startswith("."))  # left by a process that was killed


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """A copy of a folder to change. At the end it takes the folder's place; after an error the folder is as it was."""
    folder = check_path(folder).resolve()
    new, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{which}") for which in ("part", "old"))
    try:
        if folder.is_dir():
            shutil.copytree(folder, new)
        make_folder(new)
        yield new
        _exchange(folder, new, old)
    except (OSError, shutil.Error) as error:
        raise FileError(
            f"cannot write {shown(folder)}: {reason(error)}", "make room on the disk, and repeat"
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _exchange(folder: Path, new: Path, old: Path) -> None:
    """Give `new` the folder's name; what had it is `old` for a moment."""
    if not folder.is_dir():
        os.rename(new, folder)
        return
    os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


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
    return written


def update(folder: Path) -> None:
    """Write each `experiment.json` again: numbers and verdicts of all runs that are there, whichever call made them."""
    for record in records(folder):
        if record.said and record.outcomes[0] != record.said:
            write_json(folder / record.name / "experiment.json", record.outcomes[0])


def disagreements(folder: Path) -> list[str]:
    """Where the page or an `experiment.json` differs from what the files of the runs say."""
    from results_page import page

    found = records(folder)
    wrong = [
        f"{folder / record.name / 'experiment.json'} is not what its runs give"
        for record in found
        if record.said and record.outcomes[0] != record.said
    ]
    if read_text(folder / "README.md", "write it first: python results/build.py") != page(folder, found):
        wrong.append(f"{folder / 'README.md'} is not what the runs give")
    return wrong


def _forget_place(path: Path) -> None:
    """Take `--out FOLDER` from the command: where it was written then means nothing to those who repeat it."""
    content = read_json(path, {"command": str})
    content["command"] = re.sub(r" --out[ =]\S+", "", content.get("command", ""))
    write_json(path, content)


def _copy(source: Path, target: Path) -> Path:
    with open(source, "rb") as file, write_whole(target) as copy:
        shutil.copyfileobj(file, copy)
    return target
