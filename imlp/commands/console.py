"""What the commands share: where and how they print, and how they read sizes and names of files.

Progress goes to standard error: a bar where somebody watches, a plain line now and then elsewhere.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from imlp.errors import FileError
from imlp.files import check_new, check_path

if TYPE_CHECKING:  # importing either takes a while
    from rich.progress import Progress

    from imlp.data import ProgressCallback

PLAIN_EVERY = 5  # seconds between two plain lines of progress
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


@contextmanager
def watched(*, quiet: bool = False) -> "Iterator[ProgressCallback]":
    """A callback `(what, done, total)` that shows how far the work has come; `total` None: not known.

    Use: `with watched() as progress: load_data_set("cifar10", progress=progress)`
    """
    if quiet:
        yield lambda what, done, total: None
    elif err.is_terminal:
        from rich import progress as shown

        columns = (shown.TextColumn("{task.description}"), shown.BarColumn(), shown.TaskProgressColumn())
        times = (shown.TimeElapsedColumn(), shown.TimeRemainingColumn())
        with shown.Progress(*columns, *times, console=err, transient=True) as bars:
            yield partial(_advance, bars)
    else:
        yield _lines()


def _advance(bars: "Progress", what: str, done: int, total: int | None) -> None:
    """One bar at a time: work of another name takes the place of the last."""
    if [task.description for task in bars.tasks] != [what]:
        for task in bars.task_ids:
            bars.remove_task(task)
        bars.add_task(what, total=total)
    bars.update(bars.task_ids[0], completed=done)


def _lines() -> "ProgressCallback":
    """A line for work of unknown length, otherwise one every PLAIN_EVERY seconds: short work prints nothing."""
    before, last = "", time.monotonic()

    def tell(what: str, done: int, total: int | None) -> None:
        nonlocal before, last
        now = time.monotonic()
        if (total is None and what != before) or now - last >= PLAIN_EVERY:
            last = now
            share = f" {100 * done // total} %" if total else ""
            err.print(f"{what}{share}", soft_wrap=True, markup=False)
        before = what

    return tell
