"""What a study tells while it runs. A watcher overrides what it wants to hear; the library prints nothing itself."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from imlp.train.callbacks import Callback, Row

if TYPE_CHECKING:
    from imlp.study.tasks import Outcome, Task


class Watcher:
    """Hears everything and does nothing."""

    def progress(self, what: str, done: int, total: int | None) -> None:
        """How far reading data, timing steps or writing a page has come; `total` None: nobody knows."""

    def during(self, what: str) -> AbstractContextManager[object]:
        """Around work that takes seconds and has no measure of its progress."""
        return nullcontext()

    def noted(self, text: str) -> None:
        """One line of news."""

    def planned(self, tasks: "Sequence[Task]") -> None:
        """Before the first of these runs."""

    def callbacks(self, task: "Task") -> Sequence[Callback]:
        """Those that hear the run of a task in this process."""
        return ()

    def update(self, task: "Task", *, done: float, rows: Sequence[Row] = (), where: str = "") -> None:
        """News of a run on another machine: epochs done, parts included, and the rows of one that has just ended."""

    def warned(self, task: "Task", text: str) -> None:
        """Something that the user should know and that does not stop the run."""

    def ended(self, outcome: "Outcome") -> None:
        """After each run, whatever came of it."""

    def close(self) -> None:
        """After the last of the planned runs, whatever has ended them."""
