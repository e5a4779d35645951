"""`results`: keep results on record, and check that the tables on their page agree with the files."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import err, out
from imlp.errors import ConfigError
from imlp.files import check_path, read_text, write_whole
from imlp.study import archive as record

PAGE = f"""# Results

{record.BEGIN}
{record.END}
"""


def results(
    folder: Annotated[Path, typer.Option("--folder", help="The folder of the results on record.")] = Path("results"),
    collect: Annotated[
        Path | None, typer.Option("--collect", help="Add the small files of the runs in this folder to the record.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The name on record. Default: that of the collected folder.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Recompute the tables, and fail if the page differs.")] = False,
) -> None:
    """Keep results on record: the small files of runs, and one page with what they show.

    - `results --collect runs/figure2-cnn-short-cifar10`: add these runs to results/, and recompute the table
    - `results`: recompute the table of results/README.md
    - `results --check`: recompute it, and fail if the page says something different
    """
    if check:
        wrong = record.disagreements(folder)
        for text in wrong:
            err.print(f"error: {text}; to update it: python cli.py results", soft_wrap=True)
        if wrong:
            raise typer.Exit(1)
        out.print(f"{folder / 'README.md'} agrees with its files", soft_wrap=True)
        return
    if collect is None and not record.names(check_path(folder)) and not (folder / "README.md").is_file():
        problem = f"there are no results on record in {folder.absolute()}"
        raise ConfigError(problem, "run this in a clone of the repository, or collect runs first: --collect FOLDER")
    if name is not None and Path(name).name != name:
        raise ConfigError(f"--name is {name!r}", "give the name of a folder in the record, without slashes")
    if collect is not None:
        written = record.collect(check_path(collect), folder / (name or collect.resolve().name))
        out.print(f"collected: {len(written)} files", soft_wrap=True)
    page = folder / "README.md"
    text = record.with_table(read_text(page) if page.exists() else PAGE, record.table(folder))
    with write_whole(page) as file:
        file.write(text.encode())
    out.print(f"written: {page}", soft_wrap=True)
