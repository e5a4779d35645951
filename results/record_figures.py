"""The figures of a record: accuracy against alpha, by epoch, and over two knobs, drawn from the runs that it keeps."""

from pathlib import Path

from imlp.data.dataset import ProgressCallback, silent
from imlp.files import make_folder, write_whole
from imlp.report import figures, gather
from imlp.study.outcomes import read_outcome
from imlp.study.scores import arms_of
from imlp.train.run_reader import find_runs

KINDS = ("alpha", "knobs", "epochs")


def draw(record: Path, progress: ProgressCallback = silent) -> list[Path]:
    """Draw them into `figures` in the record's folder, and delete those of runs that are gone; the files now there."""
    outcomes = [read_outcome(path) for path in sorted(record.rglob("experiment.json"))]
    arms, written = gather.gather(arms_of(find_runs([record])), outcomes), []
    for n, arm in enumerate(arms):
        progress("drawing figures", n, len(arms))
        drawn = figures.of_arm(arm)
        for kind in (kind for kind in KINDS if kind in drawn):
            for suffix, content in figures.written(drawn[kind]).items():
                make_folder(record / "figures")
                written.append(record / "figures" / f"{arm.id}-{kind}.{suffix}")
                with write_whole(written[-1]) as file:
                    file.write(content)
    for old in (path for kind in KINDS for path in (record / "figures").glob(f"*-{kind}.*")):
        if old not in written:
            old.unlink()
    return written
