"""Results on record: the small files of runs, and their outcomes.

`results/NAME/` holds what `collect` took from a folder of `train`, `sweep` or `reproduce`: each run's configuration,
environment, metrics, times and result, `experiment.json` if there is one, and figures drawn from them. No weights.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from imlp.data.dataset import ProgressCallback, silent
from imlp.errors import FileError
from imlp.files import check_path, make_folder, reason, shown, write_json, write_whole
from imlp.paper import experiments
from imlp.paper.experiments import decided, implied
from imlp.report import figures, gather
from imlp.study.outcomes import ExperimentOutcome, Verdict, read_outcome
from imlp.study.scores import arms_of
from imlp.train.run_folder import ENVIRONMENT, RunFolder, refuse_links
from imlp.train.run_reader import Run, find_runs, read_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENT = "experiment.json"
DRAWN = ("alpha", "knobs", "epochs")  # figures: accuracy against alpha, over two knobs, and by epoch


@dataclass(frozen=True)
class Record:
    """One folder on record: its runs, and their outcomes."""

    name: str
    runs: list[Run]
    on_file: ExperimentOutcome | None  # what its `experiment.json` says, if it has one
    outcomes: list[ExperimentOutcome]  # computed from the runs: of the experiment, or of each arm without one

    @property
    def verdicts(self) -> list[Verdict]:
        """On the claims of its experiment, or on those that its runs can speak of."""
        return self.outcomes[0].verdicts if self.on_file else decided(self.outcomes)

    @property
    def is_stale(self) -> bool:
        """Whether its `experiment.json` is not what its runs give."""
        return self.on_file is not None and self.on_file != self.outcomes[0]

    @property
    def shortfall(self) -> str:
        """What its runs lack of the paper's setting."""
        return next((outcome.shortfall for outcome in self.outcomes if outcome.shortfall), "")


def names(folder: Path) -> list[str]:
    """Of the folders that hold runs."""
    with_runs = {path.relative_to(folder).parts[0] for path in RunFolder.find(folder, "*/**")}
    return sorted(name for name in with_runs if not name.startswith("."))  # left by a process that was killed


def records(folder: Path) -> list[Record]:
    """Everything on record, by name."""
    return [_record(folder / name) for name in names(folder)]


def _record(folder: Path) -> Record:
    path, runs = folder / EXPERIMENT, find_runs([folder])
    on_file = read_outcome(path, ExperimentOutcome) if path.exists() else None
    arms = {arm.key: arm for arm in arms_of(runs)}
    if on_file is None:
        outcomes = [outcome for arm in arms.values() for outcome in implied(arm)]
    else:
        named = {arm.name: arms[arm.key] for arm in on_file.arms if arm.key in arms}
        experiment = experiments.read_experiment(on_file.name)
        outcomes = [experiment.outcome(named, budget=on_file.budget, command=on_file.command)]
    return Record(folder.name, runs, on_file, outcomes)


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
        if folder.is_dir():
            os.rename(folder, old)
        try:
            os.rename(new, folder)
        except OSError:
            if old.is_dir():
                os.rename(old, folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, shutil.Error) as error:
        problem = f"cannot write {shown(folder)}: {reason(error)}"
        raise FileError(problem, "make room on the disk, and repeat") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def collect(source: Path, target: Path) -> int:
    """Copy what is kept of the runs in a folder, and return the number of files.

    Commands lose `--out FOLDER`: where it was written then means nothing to those who repeat it.
    """
    experiment = [source / EXPERIMENT] if (source / EXPERIMENT).exists() else []
    kept = [path for run in find_runs([source]) for path in RunFolder(run.folder).archived()] + experiment
    refuse_links(kept)
    for path in kept:
        copy = target / path.parent.resolve().relative_to(source.resolve()) / path.name
        make_folder(copy.parent)
        shutil.copyfile(path, copy)
        if copy.name in (ENVIRONMENT, EXPERIMENT):
            content = read_json(copy, {"command": str})
            write_json(copy, {**content, "command": re.sub(r" --out[ =]\S+", "", content["command"])})
    return len(kept)


def draw(record: Path, progress: ProgressCallback = silent) -> int:
    """Draw its figures into a folder in that of the record, and delete those of runs that are gone; how many files."""
    outcomes = [read_outcome(path, ExperimentOutcome) for path in sorted(record.rglob(EXPERIMENT))]
    arms, written = gather.gather(arms_of(find_runs([record])), outcomes), []
    for n, arm in enumerate(arms):
        progress("drawing figures", n, len(arms))
        drawn = figures.of_arm(arm)
        for kind in (kind for kind in DRAWN if kind in drawn):
            written += write(record / "figures", f"{arm.id}-{kind}", drawn[kind])
    for old in (path for kind in DRAWN for path in (record / "figures").glob(f"*-{kind}.*")):
        if old not in written:
            old.unlink()
    return len(written)


def write(folder: Path, name: str, figure: "Figure") -> list[Path]:
    """Put a figure into a folder, as `name.png` and `name.svg`."""
    make_folder(folder)
    paths = []
    for suffix, content in figures.written(figure).items():
        paths.append(folder / f"{name}.{suffix}")
        with write_whole(paths[-1]) as file:
            file.write(content)
    return paths
