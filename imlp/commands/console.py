"""What the commands share: where they print, how they show progress, how they read sizes."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


@contextmanager
def steps(total: int, *, quiet: bool = False) -> Iterator[Any]:
    """A bar over `total` named steps, on standard error and only where somebody watches.

    Use: `with steps(3) as step: step("building"); ...; step("writing"); ...`
    """
    if quiet or not err.is_terminal:
        yield lambda name: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=total)
        begun = False

        def step(name: str) -> None:
            nonlocal begun
            progress.update(task, description=name, advance=1 if begun else 0)
            begun = True

        yield step


def print_json(value: Any) -> None:
    """JSON on standard output, with nothing around it."""
    print(json.dumps(value, indent=2))


def sizes(text: str, lengths: tuple[int, ...], example: str) -> tuple[int, ...]:
    """`3x32x32` as `(3, 32, 32)`."""
    parts = re.split(r"[x,]", text.lower().replace(" ", ""))
    if len(parts) not in lengths or not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
        raise typer.BadParameter(f"{text!r} is not of the form {example}")
    return tuple(map(int, parts))
