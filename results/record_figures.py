"""The figures of a record: accuracy against alpha, by epoch, and over two knobs, drawn from the runs that it keeps."""

from pathlib import Path
from typing import TYPE_CHECKING

from imlp.data.dataset import ProgressCallback, silent
from imlp.files import make_folder, write_whole
from imlp.report import figures, gather
from imlp.study.outcomes import read_outcome
from imlp.study.scores import arms_of
from imlp.train.run_reader import find_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = ("alpha", "knobs", "epochs")


def draw(record: Path, progress: ProgressCallback = silent) -> int:
    """Draw them into `figures` in the record's folder, and delete those of runs that are gone; the number of files."""
    outcomes = [read_outcome(path) for path in sorted(record.rglob("experiment.json"))]
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
