"""`report`: runs as one page that needs nothing but itself, and its figures and tables as files beside it."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from imlp.errors import FileError, RunError
from imlp.files import check_path, make_folder, write_whole
from imlp.study.report import figures, gather, page, tables
from imlp.study.results_page import first_finding
from imlp.study.scores import arms_of
from imlp.train.data.dataset import ProgressCallback, silent
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import find_runs

LIST = ".imlp-report"  # in the folder of the files: their names


@dataclass(frozen=True)
class Report:
    """The page, and its figures and tables by file name."""

    page: str
    files: dict[str, bytes]


def _unheard(text: str) -> None:
    """The default of `warn`: says nothing."""


def make(
    folders: Sequence[Path], progress: ProgressCallback = silent, warn: Callable[[str], None] = _unheard
) -> Report:
    """The report on every run and every search in the folders and below them; nothing is written.

    A `config.toml` that is not a run's is skipped, and `warn` is told its name.
    """
    for folder in map(check_path, folders):
        if not folder.is_dir():
            raise RunError(f"there is no folder {folder}", "name folders that train, sweep or reproduce have written")
    progress("reading runs", 0, 1)
    found, searches = gather.experiments(folders), gather.searches(folders)
    alone = [f for f in folders if any(f.rglob("search.json")) and not RunFolder.find(f)]
    runs = find_runs((folder for folder in folders if folder not in alone), warn)
    if not runs and not searches:
        raise RunError("there is no run to report on", "name folders that train, sweep or reproduce have written")
    arms = gather.gather(arms_of(runs), found)
    files: dict[str, bytes] = {}
    for n, arm in enumerate(arms):
        progress("drawing figures", n, len(arms) + len(searches))
        for name, figure in figures.of_arm(arm).items():
            files |= {f"{arm.id}-{name}.{suffix}": drawn for suffix, drawn in figures.written(figure).items()}
        files |= _texts(tables.of_arm(arm).values())
    for n, experiment in enumerate(found, start=1):
        files |= _texts([tables.experiment(n, experiment), tables.verdicts(n, experiment)])
    for n, search in enumerate(searches, start=len(arms)):
        progress("drawing figures", n, len(arms) + len(searches))
        drawn = figures.written(figures.of_search(search))
        files |= {f"{search.id}-trials.{suffix}": content for suffix, content in drawn.items()}
        files |= _texts(tables.of_search(search).values())
    names = [folder.resolve().name for folder in folders]
    finding = next(filter(None, map(first_finding, folders)), None)
    return Report(page.html(arms, found, searches, files, names=names, finding=finding), files)


def _texts(found: Iterable[tables.Table]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for table in found:
        files |= {f"{table.id}.csv": table.csv().encode(), f"{table.id}.tex": table.latex().encode()}
    return files


def write(
    folders: Sequence[Path], path: Path, progress: ProgressCallback = silent, warn: Callable[[str], None] = _unheard
) -> Path:
    """Write the page, then its files into a folder of the same name, which is returned.

    What an earlier report has left there is deleted as far as its list names it, and nothing else.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise FileError(f"{path} does not end in .html", "give the page a name such as report.html")
    for given in (path, *folders):
        check_path(given)
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if path.is_dir() or not above.is_dir() or not os.access(above, os.W_OK):  # before the work, not after it
        raise FileError(f"cannot write {path}", "choose a file in a folder that you may write to")
    beside = path.with_suffix("")
    if any(beside.resolve() in (folder.resolve(), *folder.resolve().parents) for folder in folders):
        raise FileError(f"the figures of {path} would go into {beside}, among the runs", "give the page another name")
    report = make(folders, progress, warn)
    make_folder(path.parent)
    make_folder(beside)
    with write_whole(path) as file:
        file.write(report.page.encode())
    for old in _listed(beside) - set(report.files):
        (beside / old).unlink(missing_ok=True)
    for name, content in {LIST: "\n".join(report.files).encode(), **report.files}.items():
        with write_whole(beside / name) as file:
            file.write(content)
    return beside


def _listed(folder: Path) -> set[str]:
    path = folder / LIST
    names = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return {name for name in names if name == Path(name).name}
