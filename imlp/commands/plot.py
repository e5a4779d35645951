"""`plot`: draw a run."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import PICTURES, Force, out, output_file
from imlp.errors import FileError, RunError
from imlp.files import check_path, shown
from imlp.train.run_folder import PICTURE, RunFolder
from imlp.train.run_reader import read_run


def plot(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="The picture (.png, .svg or .pdf). Default: RUN/run.png."),
    ] = None,
    force: Force = False,
) -> None:
    """Draw a run: accuracy by epoch, and how much inductive bias each layer holds at the end.

    - `plot RUN`: a picture with both, RUN/run.png
    - `report RUN --out page.html`: a page to show to somebody
    """
    if out_file is not None and out_file.suffix == ".html":
        raise FileError(f"{out_file} is a page", f"make it with: report {shown(run)} --out {shown(out_file)}")
    path = output_file(out_file, run / PICTURE, *PICTURES, force=force)
    if not RunFolder(check_path(run)).config.exists():
        below = [shown(folder) for folder in RunFolder.find(run)] if run.is_dir() else []
        there = f"name one of {', '.join(below[:8])}{', ...' if len(below) > 8 else ''}"
        raise RunError(f"{run} is not the folder of a run", there if below else "name the folder of a run")
    record = read_run(run)
    if not record.rows:
        if record.result is not None:
            raise RunError(f"every lane of {run} stopped in its first epoch", "train again with a smaller --lr")
        raise RunError(f"{run} has no complete epoch yet", "let it train for a while")
    from imlp.look.plot import save  # matplotlib takes a second to import
    from imlp.report.figures import of_run

    save(of_run(record), path)
    out.print(f"drawn: {path}", soft_wrap=True)
