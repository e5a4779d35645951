"""What a study tells while it runs. A watcher overrides what it wants to hear; the library prints nothing itself."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from imlp.train.callbacks import Callback, Row

if TYPE_CHECKING:
    from imlp.study.tasks import Outcome, Task
    from imlp.train.loop import Trainer

INTERVAL = 0.5  # seconds between two reports of a run's progress


class Watcher:
    """Is told of all progress and does nothing."""

    def progress(self, what: str, done: int, total: int | None) -> None:
        """Progress of reading data, timing steps or writing a page; `total` is None if it is not known."""

    def noted(self, text: str) -> None:
        """One line of news."""

    def planned(self, tasks: "Sequence[Task]") -> None:
        """Before the first of these runs."""

    def update(self, task: "Task", *, done: float, rows: Sequence[Row] = (), where: str = "") -> None:
        """Progress of a run: epochs done, parts included, and the rows of one that has just ended.

        `where` is the name of the machine, unless it is this process.
        """

    def warned(self, task: "Task", text: str) -> None:
        """Something that the user should know and that does not stop the run."""

    def ended(self, outcome: "Outcome") -> None:
        """After each run, however it ended."""

    def close(self) -> None:
        """After the last of the planned runs, whatever has ended them."""


class Progress(Callback):
    """Reports the progress of a run in any process: `update(done=..., rows=...)` may return why to stop."""

    def __init__(self, update: Callable[..., str | None], warned: Callable[[str], object]) -> None:
        self.update, self.warn, self.told = update, warned, 0.0

    def started(self, trainer: "Trainer") -> None:
        self._tell(trainer)

    def stepped(self, trainer: "Trainer", images: int) -> None:
        if time.monotonic() - self.told > INTERVAL:
            self._tell(trainer)

    def epoch_ended(self, trainer: "Trainer", rows: list[Row], seconds: dict[str, float]) -> None:
        self._tell(trainer, rows)

    def warned(self, text: str) -> None:
        self.warn(text)

    def _tell(self, trainer: "Trainer", rows: Sequence[Row] = ()) -> None:
        share = min(trainer.state.step, trainer.steps - 1) / trainer.steps
        why = self.update(done=trainer.state.epoch + share, rows=rows)
        trainer.stop_requested = trainer.stop_requested or why
        self.told = time.monotonic()
