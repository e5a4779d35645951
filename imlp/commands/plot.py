"""`plot`: draw a run."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import out
from imlp.errors import FileError, RunError
from imlp.files import check_path, write_whole
from imlp.train.run_folder import PICTURE, RunFolder
from imlp.train.run_reader import read_run


def plot(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="The picture (.png, .svg or .pdf), or a page (.html). Default: RUN/run.png."),
    ] = None,
) -> None:
    """Draw a run: accuracy by epoch, and how much inductive bias each layer holds at the end.

    - `plot RUN`: a picture with both, RUN/run.png
    - `plot RUN --out page.html`: one page to show to somebody, with what each network learned, a layer's matrix before
      and after training, the curves and the bias meter
    """
    from imlp import plot as drawing  # matplotlib takes a second to import

    path = out_file or run / PICTURE
    if path.suffix not in (".png", ".svg", ".pdf", ".html"):
        raise FileError(f"{path} does not end in a known type", "use .png, .svg, .pdf or .html")
    check_path(path)
    if not RunFolder(check_path(run)).config.exists():
        raise RunError(f"{run} is not the folder of a run", "name the folder of a run")
    found = read_run(run)
    if not found.rows:
        raise RunError(f"{run} has no complete epoch yet", "let it train for a while")
    if path.suffix == ".html":
        from imlp.study.run_page import run_page

        text = run_page(found)
        with write_whole(path) as file:
            file.write(text.encode())
        out.print(f"written: {path} (open it in a browser)", soft_wrap=True)
        return
    drawing.save(drawing.run_figure(found.rows, found.measure, run.resolve().name), path)
    out.print(f"drawn: {path}", soft_wrap=True)
