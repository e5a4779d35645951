"""Results on record: the small files of runs, and a page that can be computed from them again.

`results/NAME/` holds what `collect` took from a folder of `train`, `sweep` or `reproduce`: each run's configuration,
environment, metrics, times and result, `experiment.json` if there is one, and figures drawn from them. No weights.
"""

import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imlp.files import check_path, make_folder, read_text, write_json, write_whole
from imlp.study import experiments
from imlp.study.scores import Arm, arms_of
from imlp.train.run_folder import ENVIRONMENT, RunFolder
from imlp.train.run_reader import Run, find_runs, read_json

SAID = {"name": str, "budget": str, "command": str, "arms": [{"name": str, "key": str}]}  # of experiment.json
JUDGED_BY = {  # whose claims and numbers stand beside those of runs without an experiment
    "cnn": ("table1-cnn", "figure2-cnn", "decay"),
    "mixer": ("table1-mixer", "figure2-mixer"),
    "mlp1": ("first-layer",),
    "mlp2": ("first-layer",),
}


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


def decided(outcomes: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The verdicts that something can be said about, each claim once."""
    verdicts = (verdict for outcome in outcomes for verdict in outcome["verdicts"])
    return list({one["claim"]: one for one in verdicts if not one["because"].endswith("was not run")}.values())


def implied(arm: Arm) -> list[dict[str, Any]]:
    """For runs without an experiment: the outcomes of the experiments that ask about the same pair."""
    found = []
    for name in JUDGED_BY.get(arm.config.network, ()):
        experiment = experiments.read_experiment(name)
        own = experiment.arm_of(arm.config.network)
        if own is not None and arm.scores and experiment.paper(arm.config.data):
            found.append(experiment.outcome({own: arm}, budget="", command=""))
    return found


def _by_name(said: Mapping[str, Any], arms: Iterable[Arm]) -> dict[str, Arm]:
    names = {arm["key"]: arm["name"] for arm in said["arms"]}
    found = {names[arm.key]: arm for arm in arms if arm.key in names}
    return {arm["name"]: found[arm["name"]] for arm in said["arms"] if arm["name"] in found}


def names(folder: Path) -> list[str]:
    """Of the folders that hold runs."""
    return sorted({path.relative_to(folder).parts[0] for path in RunFolder.find(folder, "*/**")})


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
    from imlp.study.results_page import page

    found = records(folder)
    wrong = [
        f"{folder / record.name / 'experiment.json'} is not what its runs give"
        for record in found
        if record.said and record.outcomes[0] != record.said
    ]
    if read_text(folder / "README.md", "write it first: results") != page(folder, found):
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
