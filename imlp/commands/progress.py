"""Progress of long work, on standard error: a bar where somebody watches, a plain line now and then elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
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
            yield _Bar(bars)
    else:
        yield _Plain()


class _Bar:
    """One bar at a time: work of another name takes the place of the last."""

    def __init__(self, bars: "Progress") -> None:
        self._bars, self._what = bars, ""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what != self._what:
            for task in self._bars.task_ids:
                self._bars.remove_task(task)
            self._what = what
            self._bars.add_task(what, total=total)
        self._bars.update(self._bars.task_ids[0], completed=done)


class _Plain:
    """A line for work of unknown length, otherwise one every PLAIN_EVERY seconds: short work prints nothing."""

    def __init__(self) -> None:
        self._what, self._last = "", time.monotonic()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if (total is None and what != self._what) or now - self._last >= PLAIN_EVERY:
            self._last = now
            share = f" {100 * done // total} %" if total else ""
            err.print(f"{what}{share}", soft_wrap=True, markup=False)
        self._what = what
