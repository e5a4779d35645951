"""`report`: put runs on one page."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import Force, err, out, watched
from imlp.couplings import class_of
from imlp.plugins import imported


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs, or folders that hold such folders.")
    ],
    out_file: Annotated[Path, typer.Option("--out", help="The page.")] = Path("report.html"),
    files: Annotated[
        Path | None,
        typer.Option(help="A folder for all figures as PNG and SVG and all tables as CSV. Default: none."),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(help="FILE.py:NAME of a network from outside: its code is only run if you name it. Repeatable."),
    ] = None,
    coupling: Annotated[
        list[str] | None, typer.Option(help="FILE.py:Class of a coupling from outside, likewise. Repeatable.")
    ] = None,
    force: Force = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Put runs on one self-contained page that opens in any browser, offline.

    Runs that differ only in seeds and lanes are shown together: accuracy against alpha with the fit of two lines,
    accuracy by epoch, the bias meter by layer, what the matrices look like, and sortable tables. Unfinished runs, and
    lanes that have stopped, are listed. Figures and tables can be downloaded from the page.

    - `report RUN --out page.html`: one run as a page to show to somebody
    - `report runs --files figures`: everything below runs/, with every figure and table as a file too
    """
    from imlp import report as reporting  # matplotlib takes a second to import
    from imlp.paper.experiments import from_paper

    def warn(text: str) -> None:
        err.print(f"warning: {text}", soft_wrap=True)

    for reference in network or []:
        imported(reference)
    for reference in coupling or []:
        class_of(reference)
    with watched(quiet=quiet) as progress:
        reporting.write(folders, out_file, files=files, compare=from_paper, force=force, progress=progress, warn=warn)
    more = f"; figures and tables: {files}/" if files else ""
    out.print(f"written: {out_file} (open it in a browser){more}", soft_wrap=True)
