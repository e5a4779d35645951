"""What the commands share: where and how they print, and how they read sizes and names of files."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from imlp.errors import FileError
from imlp.files import check_new, check_path

PICTURES = (".png", ".svg", ".pdf")
OutsideNetwork: TypeAlias = Annotated[
    str | None,
    typer.Option(help="FILE.py:NAME of a network from outside the package: its code is only run if you name it."),
]
OutsideCoupling: TypeAlias = Annotated[
    str | None, typer.Option(help="FILE.py:Class of a coupling from outside the package: as above.")
]

out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


def in_panel(panel: str) -> Callable[..., Any]:
    """`typer.Option` for one panel of a help text, with the help first."""

    def option(help: str, *names: str, **more: Any) -> Any:
        return typer.Option(*names, help=help, rich_help_panel=panel, **more)

    return option


def table(title: str | None, columns: Iterable[str], rows: Iterable[Sequence[Any]], *, text: int = 1) -> Table:
    """The first columns, as many as `text` says, are text, the others numbers; None is an empty cell."""
    made = Table(title=title, title_justify="left")
    for n, column in enumerate(columns):
        made.add_column(column, justify="left" if n < text else "right", overflow="fold")
    for row in rows:
        made.add_row(*("" if cell is None else str(cell) for cell in row))
    return made


def print_facts(facts: Mapping[str, Any], title: str | None = None) -> None:
    """Names and what they stand for, one line each."""
    made = Table(show_header=False, title=title, title_justify="left")
    for name, value in facts.items():
        made.add_row(name, str(value))
    out.print(made)


Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


def print_json(value: Any) -> None:
    """JSON on standard output, with nothing around it."""
    print(json.dumps(value, indent=2))


def sizes(lengths: tuple[int, ...], example: str) -> Callable[[str], tuple[int, ...]]:
    """Reads `3x32x32` as `(3, 32, 32)`."""

    def parsed(text: str) -> tuple[int, ...]:
        parts = re.split(r"[x,]", text.lower().replace(" ", ""))
        if len(parts) not in lengths or not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
            raise typer.BadParameter(f"{text!r} is not of the form {example}")
        return tuple(map(int, parts))

    return parsed


def output_file(given: Path | None, default: Path, *suffixes: str, force: bool) -> Path:
    """Where to write: a new file that is named, or the default in a run's folder."""
    from imlp.train.run_folder import refuse_links  # most commands need no runs

    if suffixes:
        check_suffix(given, *suffixes)
    path = check_path(given or default)
    check_new(given, force=force)
    if given is None:
        refuse_links([path])
    return path


def check_suffix(path: Path | None, *known: str) -> None:
    """Refuse the name of a file to write that does not say which of the known types it is to have."""
    if path is not None and path.suffix not in known:
        raise FileError(f"{path} does not end in a known type", f"use {' or '.join(known)}")
