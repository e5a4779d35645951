"""`results`: what was found here, on record, and whether its tables are still what its files give."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import err, out
from imlp.errors import ConfigError
from imlp.files import check_path, read_text, write_whole
from imlp.study import archive as record

PAGE = f"""# What came out

{record.BEGIN}
{record.END}
"""


def results(
    folder: Annotated[Path, typer.Option("--folder", help="Where the results are on record.")] = Path("results"),
    collect: Annotated[
        Path | None, typer.Option("--collect", help="Take the small files of the runs in this folder into the record.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Under this name. Default: the folder's own.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compute the tables again and fail if the page disagrees.")
    ] = False,
) -> None:
    """Keep results on record: configuration, environment, metrics and results of runs, and one table of all of them.

    - `results --collect runs/figure2-cnn-short-cifar10`: take them into results/, and compute the table anew
    - `results`: compute the table of results/README.md anew
    - `results --check`: compute it, and fail if the page says something else
    """
    if check:
        wrong = record.disagreements(folder)
        for text in wrong:
            err.print(f"error: {text}; write it anew: python cli.py results", soft_wrap=True)
        if wrong:
            raise typer.Exit(1)
        out.print(f"{folder / 'README.md'} says what its files give", soft_wrap=True)
        return
    if collect is None and not record.names(check_path(folder)) and not (folder / "README.md").is_file():
        problem = f"there are no results on record in {folder.absolute()}"
        raise ConfigError(problem, "run this in a clone of the repository, or collect runs first: --collect FOLDER")
    if name is not None and Path(name).name != name:
        raise ConfigError(f"--name is {name!r}", "give one word, the name of a folder in the record")
    if collect is not None:
        written = record.collect(check_path(collect), folder / (name or collect.resolve().name))
        out.print(f"collected: {len(written)} files", soft_wrap=True)
    page = folder / "README.md"
    text = record.with_table(read_text(page) if page.exists() else PAGE, record.table(folder))
    with write_whole(page) as file:
        file.write(text.encode())
    out.print(f"written: {page}", soft_wrap=True)
