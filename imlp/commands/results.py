"""`results`: keep results on record, and check that their page agrees with the files."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import err, out
from imlp.commands.progress import watched
from imlp.errors import ConfigError
from imlp.files import check_path, read_text, write_whole
from imlp.study import archive, figure2, figure3, record_figures
from imlp.study.results_page import FINDINGS, MARK, page


def results(
    folder: Annotated[Path, typer.Option("--folder", help="The folder of the results on record.")] = Path("results"),
    collect: Annotated[
        Path | None, typer.Option("--collect", help="Add the small files of the runs in this folder to the record.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The name on record. Default: that of the collected folder.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Compute the page again, and fail if it differs.")] = False,
) -> None:
    """Keep results on record: the small files of runs, and one page with what they show.

    The page opens with the findings of `findings.toml`, as long as the verdicts that they rest on stand; everything
    else on it, with `figure2.png` and `figure3.png`, is computed from the files.

    - `results --collect runs/figure2-cnn-short-cifar10`: add these runs to results/, draw them, compute the page again
    - `results`: compute results/README.md again
    - `results --check`: compute it, and fail if the page says something different
    """
    if check:
        wrong = archive.disagreements(folder)
        for text in wrong:
            err.print(f"error: {text}; to update it: python cli.py results", soft_wrap=True)
        if wrong:
            raise typer.Exit(1)
        out.print(f"{folder / 'README.md'} agrees with its files", soft_wrap=True)
        return
    if collect is None and not archive.names(check_path(folder)) and not (folder / "README.md").is_file():
        problem = f"there are no results on record in {folder.absolute()}"
        raise ConfigError(problem, "run this in a clone of the repository, or collect runs first: --collect FOLDER")
    if name is not None and Path(name).name != name:
        raise ConfigError(f"--name is {name!r}", "give the name of a folder in the record, without slashes")
    if collect is not None:
        own = folder / (name or check_path(collect).resolve().name)
        with watched() as progress:
            written = [*archive.collect(collect, own), *record_figures.draw(own, progress)]
        out.print(f"collected: {len(written)} files", soft_wrap=True)
    written_by_hand = (folder / "README.md").is_file() and MARK not in read_text(folder / "README.md")
    if written_by_hand:
        remedy = f"move what it says into {folder / FINDINGS}, delete it, and run this command again"
        raise ConfigError(f"{folder / 'README.md'} was not written by this command", remedy)
    archive.update(folder)
    found = archive.records(folder)
    for name, of in (("figure2", figure2), ("figure3", figure3)):
        if (arm := of.best_arm([run for record in found for run in record.runs])) is not None:
            figure2.write(folder, name, of.figure(arm))
    text = page(folder, found)
    with write_whole(folder / "README.md") as file:
        file.write(text.encode())
    out.print(f"written: {folder / 'README.md'}", soft_wrap=True)
