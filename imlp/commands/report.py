"""`report`: put runs on one page."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import err, out
from imlp.commands.progress import watched
from imlp.networks.outside import imported


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs, or folders that hold such folders.")
    ],
    out_file: Annotated[
        Path,
        typer.Option("--out", help="The page. Its figures and tables go into a folder of the same name beside it."),
    ] = Path("report.html"),
    network: Annotated[
        list[str] | None,
        typer.Option(
            help="FILE.py:NAME of a network from outside the package, to show its first layer: its code is only run if "
            "you name it. Repeat for more."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Put runs on one self-contained page that opens in any browser, offline.

    Runs that differ only in seeds and lanes are shown together: accuracy against alpha with the fit of two lines,
    accuracy by epoch, the bias meter by layer, the first layer as images, and sortable tables. A search is shown with
    its trials, its choice and the test of that choice. Unfinished runs and searches, and lanes that have stopped, are
    listed. Every figure is also written as PNG and SVG, every table as CSV and LaTeX.

    Example: `python cli.py report runs --out report.html`
    """
    from imlp.study import report as reporting  # matplotlib takes a second to import

    def warn(text: str) -> None:
        err.print(f"warning: {text}", soft_wrap=True)

    for reference in network or []:
        imported(reference)
    with watched(quiet=quiet) as progress:
        beside = reporting.write(folders, out_file, progress, warn)
    out.print(f"written: {out_file} (open it in a browser); figures and tables: {beside}/", soft_wrap=True)
