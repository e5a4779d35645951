"""`plot`: draw a run."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import out
from imlp.errors import FileError, RunError
from imlp.files import check_path
from imlp.train.run_folder import PICTURE, RunFolder
from imlp.train.run_reader import read_run


def plot(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    out_file: Annotated[
        Path | None, typer.Option("--out", help="The picture: .png, .svg or .pdf. Default: RUN/run.png.")
    ] = None,
) -> None:
    """Draw a run: accuracy and inductive bias, epoch by epoch."""
    from imlp import plot as drawing  # matplotlib takes a second to import

    path = out_file or run / PICTURE
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise FileError(f"{path} does not end in a known type", "use .png, .svg or .pdf")
    check_path(path)
    if not RunFolder(check_path(run)).config.exists():
        raise RunError(f"{run} is not the folder of a run", "name the folder of a run")
    found = read_run(run)
    if not found.rows:
        raise RunError(f"{run} has no complete epoch yet", "let it train for a while")
    drawing.save(drawing.run_figure(found.rows, found.measure, run.resolve().name), path)
    out.print(f"drawn: {path}", soft_wrap=True)
