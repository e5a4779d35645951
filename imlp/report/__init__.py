"""`report`: one page for one run or many, which needs nothing but itself."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

import imlp
from imlp.data.dataset import ProgressCallback, silent
from imlp.errors import FileError, RunError
from imlp.files import check_new, check_path, make_folder, write_whole
from imlp.report import figures, gather, page, tables
from imlp.study.cost import counted
from imlp.study.outcomes import ExperimentOutcome, FromPaper, read_outcome
from imlp.study.scores import Arm, arms_of
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import find_runs

REMEDY = "name folders that train, sweep or reproduce have written"


@dataclass(frozen=True)
class Report:
    """The page, and every figure and table by name, of which the page shows the most important."""

    page: str
    figures: dict[str, Figure]
    tables: dict[str, tables.Table]

    @property
    def files(self) -> dict[str, bytes]:
        """Every figure as PNG and SVG, every table as CSV, by the names of their files."""
        drawn = {name: figures.written(figure) for name, figure in self.figures.items()}
        files = {f"{name}.{suffix}": content for name, formats in drawn.items() for suffix, content in formats.items()}
        return files | {f"{name}.csv": table.csv().encode() for name, table in self.tables.items()}


def make(
    folders: Sequence[Path],
    *,
    compare: Callable[[Arm], FromPaper] = lambda arm: FromPaper(),
    beside: Mapping[str, str] | None = None,
    progress: ProgressCallback = silent,
    warn: Callable[[str], None] = lambda text: None,
) -> Report:
    """The report on every run in the folders and below them; nothing is written.

    - `compare`: asked what the paper says of runs that belong to no experiment
    - `beside`: pages to link to, by what the link says
    - `warn`: told the name of a `config.toml` that is not a run's, which is skipped
    """
    for folder in map(check_path, folders):
        if not folder.is_dir():
            raise RunError(f"there is no folder {folder}", REMEDY)
    progress("reading runs", 0, 1)
    outcomes = [read_outcome(path, ExperimentOutcome) for path in _below(folders, "experiment.json")]
    runs = find_runs(folders, warn)
    if not runs:
        raise RunError("there is no run to report on", REMEDY)
    arms = gather.gather(arms_of(runs), outcomes, compare)
    drawn: dict[str, dict[str, Figure]] = {}
    for n, arm in enumerate(arms):
        progress("drawing figures", n, len(arms))
        drawn[arm.id] = figures.of_arm(arm)
    written = [table for arm in arms for table in tables.of_arm(arm)]
    written += [tables.beside_paper(f"experiment{n}-beside-paper", one) for n, one in enumerate(outcomes, start=1)]
    by_name = {table.id: table for table in written}
    sections = page.sections(arms, outcomes)
    name = " and ".join(folder.resolve().name for folder in folders)
    text = page.render(sections, arms, drawn, by_name, f"{name}: {counted(len(sections), 'set')} of runs", beside or {})
    return Report(text, {f"{id}-{kind}": figure for id, of in drawn.items() for kind, figure in of.items()}, by_name)


def write(
    folders: Sequence[Path],
    path: Path,
    *,
    files: Path | None = None,
    compare: Callable[[Arm], FromPaper] = lambda arm: FromPaper(),
    force: bool = True,
    progress: ProgressCallback = silent,
    warn: Callable[[str], None] = lambda text: None,
) -> None:
    """Write the page, and, with `files`, every figure and table into that folder; otherwise as `make`.

    Without `force`, files that are there already are not replaced, but for a page that was made by imlp.
    """
    check_new(path, force=force)
    if path.suffix.lower() not in (".html", ".htm"):
        raise FileError(f"{path} does not end in .html", "give the page a name such as report.html")
    for given in (path, *folders, *([files] if files else [])):
        check_path(given)
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if path.is_dir() or not above.is_dir() or not os.access(above, os.W_OK):  # before the work, not after it
        raise FileError(f"cannot write {path}", "choose a file in a folder that you may write to")
    docs = Path(imlp.__file__).parents[1] / "docs"  # of a clone; as text where they are not built
    built = docs / "_build" / "html" / "index.html"
    links = {"point at every entry of a matrix": path.parent / "explore.html"}
    links["the documentation"] = built if built.exists() else docs / "start.md"
    beside = {text: os.path.relpath(page, path.parent) for text, page in links.items() if page.exists()}
    report = make(folders, compare=compare, beside=beside, progress=progress, warn=warn)
    contents = {files / name: content for name, content in report.files.items()} if files is not None else {}
    check_new(*contents, force=force)
    for place, content in {path: report.page.encode(), **contents}.items():
        make_folder(place.parent)
        with write_whole(place) as file:
            file.write(content)


def _below(folders: Iterable[Path], name: str) -> list[Path]:
    return list(dict.fromkeys(path.resolve() for folder in folders for path in sorted(folder.rglob(name))))
