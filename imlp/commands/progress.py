"""Progress of long work, on standard error: a bar where somebody watches, a plain line now and then elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from imlp.commands.console import err

if TYPE_CHECKING:  # importing either takes a while
    from rich.progress import Progress

    from imlp.data import ProgressCallback

PLAIN_EVERY = 5  # seconds between two plain lines


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
