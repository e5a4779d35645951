"""Keeps this repository's results on record: `python results/build.py` computes their page and figures again.

The package knows nothing of the record; this program and the modules beside it make its page from the runs.
"""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import archive
import figure2
import figure3
import typer
import valley
from results_page import FINDINGS, MARK, pages

from imlp.commands.console import err, out, watched
from imlp.errors import ConfigError, ImlpError
from imlp.files import check_path, read_text, write_json, write_whole

HERE = Path(__file__).resolve().parent
EXPLORE = HERE.parent / "imlp/look/explore/accuracy.json"  # figure 2 of this record, for the page of `explore`

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[Path, typer.Option(help="The folder of the results on record.")] = HERE,
    collect: Annotated[
        Path | None, typer.Option(help="Add the small files of the runs in this folder to the record.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The name on record. Default: that of the collected folder.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Compute the page again, and fail if it differs.")] = False,
) -> None:
    """Keep results on record: the small files of runs, and one page with what they show.

    The page opens with the findings of `findings.toml`, as long as the verdicts that they rest on stand; everything
    else on it, with `figure2.png`, `figure3.png` and `valley.png`, is computed from the files.
    """
    try:
        _check(folder) if check else _build(folder, collect, name)
    except ImlpError as error:
        err.print(f"error: {error}", soft_wrap=True)
        raise typer.Exit(2) from None


def _build(folder: Path, collect: Path | None, name: str | None) -> None:
    if collect is None and not archive.names(check_path(folder)) and not (folder / "README.md").is_file():
        problem = f"there are no results on record in {folder.absolute()}"
        raise ConfigError(problem, "run this in a clone of the repository, or collect runs first: --collect FOLDER")
    target = folder / (name or check_path(collect).resolve().name if collect is not None else "")
    if name is not None and (Path(name).name != name or name == ".." or target.is_file()):
        raise ConfigError(f"--name is {name!r}", "give the name of a folder in the record, without slashes")
    if collect is not None:
        with watched() as progress, archive.replaced(target) as new:
            n = archive.collect(collect, new) + archive.draw(new, progress)
        out.print(f"collected: {n} files", soft_wrap=True)
    if (folder / "README.md").is_file() and MARK not in read_text(folder / "README.md"):
        remedy = f"move what it says into {folder / FINDINGS}, delete it, and run this program again"
        raise ConfigError(f"{folder / 'README.md'} was not written by this program", remedy)
    records = archive.records(folder)
    for record in (record for record in records if record.is_stale):
        write_json(folder / record.name / archive.EXPERIMENT, dataclasses.asdict(record.outcomes[0]))
    runs = [run for record in records for run in record.runs]
    for number, module in ((2, figure2), (3, figure3)):
        if (arm := module.best_arm(runs)) is not None:
            archive.write(folder, f"figure{number}", module.figure(arm))
    if arms := valley.best_arms(run for record in records if record.name in valley.RECORDS for run in record.runs):
        archive.write(folder, "valley", valley.figure(arms, valley.deviations(folder, arms)))
    for path, text in computed(folder, records).items():
        with write_whole(path) as file:
            file.write(text.encode())
        out.print(f"written: {path}", soft_wrap=True)


def _check(folder: Path) -> None:
    records, remedy = archive.records(folder), "write it first: python results/build.py"
    stale = [folder / record.name / archive.EXPERIMENT for record in records if record.is_stale]
    stale += [path for path, text in computed(folder, records).items() if read_text(path, remedy) != text]
    for path in stale:
        err.print(f"error: {path} is not what the runs give; to update it: python results/build.py", soft_wrap=True)
    if stale:
        raise typer.Exit(1)
    out.print(f"{folder / 'README.md'} agrees with its files", soft_wrap=True)


def computed(folder: Path, records: list[archive.Record]) -> dict[Path, str]:
    """The pages, and, of this repository's own record, what the page of `explore` shows."""
    texts = {folder / name: text for name, text in pages(folder, records).items()}
    if folder.resolve() == HERE:
        arm = figure2.best_arm([run for record in records for run in record.runs])
        if arm is None:
            raise ConfigError(f"{HERE} has no curve over alpha yet", "collect runs first: --collect FOLDER")
        texts[EXPLORE] = json.dumps(figure2.points(arm), indent=1) + "\n"
    return texts


if __name__ == "__main__":
    app()
