"""What the commands for many runs print while they run."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from imlp.commands.console import err, out, print_facts, watched
from imlp.data import ProgressCallback
from imlp.study.cost import counted, span
from imlp.study.scores import constant_alpha
from imlp.study.tasks import Outcome, Task
from imlp.study.watcher import Watcher
from imlp.train.callbacks import Row
from imlp.train.run_folder import RunFolder


class Board(Watcher):
    """One line per run and epoch and, on a terminal, a bar for all runs below them.

    `update` and `ended` may come from this process or from another machine.

    Use: `with closing(Board()) as board: study.sweep(config, watcher=board)`
    """

    def __init__(self, *, quiet: bool = False, arms: bool = False) -> None:
        self.quiet, self.arms, self.live = quiet, arms, err.is_terminal
        self.open = ExitStack()  # the bar that is shown now
        self.tell: ProgressCallback | None = None
        self.epochs: dict[Path, float] = {}  # that have been done of each run that has begun, parts included

    def progress(self, what: str, done: int, total: int | None) -> None:
        if self.tell is None:
            self.close()
            self.tell = self.open.enter_context(watched(quiet=self.quiet))
        self.tell(what, done, total)

    def noted(self, text: str) -> None:
        self.close()
        if not self.quiet:
            err.print(text, soft_wrap=True)

    def planned(self, tasks: Sequence[Task]) -> None:
        self.close()
        columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        hidden, text = self.quiet or not self.live, TextColumn("{task.description}")
        self.bars = self.open.enter_context(Progress(text, *columns, console=err, transient=True, disable=hidden))
        total = sum(_weight(task) * task.config.epochs for task in tasks)
        self.bar = self.bars.add_task(counted(len(tasks), "run"), total=total)
        self.epochs = {}

    def update(self, task: Task, *, done: float, rows: Sequence[Row] = (), where: str = "") -> None:
        """`done` epochs of the run, parts included; `rows` of the epoch that has just ended."""
        before = self._advance(task, done)
        if rows and int(done) > int(before or 0):
            told = zip(("prior", "lanes"), accuracies(rows), strict=True)
            place, of = f" on {where}" if where else "", f"epoch {int(done)}/{task.config.epochs}"
            self._print(task, f"{place}: {of}: {', '.join(f'{name} {text} %' for name, text in told if text)}")

    def ended(self, outcome: Outcome) -> None:
        before = self._advance(outcome.task, outcome.task.config.epochs)
        if outcome.error:
            log = RunFolder(outcome.task.folder).log
            where = f" (traceback: {log})" if log.exists() else ""
            self.warned(outcome.task, f"failed: {outcome.error}{where}")
        elif before is None:
            self._print(outcome.task, ": done already")

    def warned(self, task: Task, text: str) -> None:
        err.print(f"warning: {self._title(task)}: {text}", soft_wrap=True)

    def close(self) -> None:
        """Give the terminal back, whatever ended the runs."""
        self.tell = None
        self.open.close()

    def _title(self, task: Task) -> str:
        """The arm where there may be several, the seed, and the alphas, or how many lanes if they are not numbers."""
        alphas = sorted(alpha for lane in task.config.lanes if (alpha := constant_alpha(lane)) is not None)
        told = counted(len(task.config.lanes), "lane")
        if alphas and len(alphas) == len(task.config.lanes):
            told = f"alpha {alphas[0]:g}" + (f" to {alphas[-1]:g}" if len(alphas) > 1 else "")
        return f"{task.folder.parent.name + ' ' if self.arms else ''}seed {task.config.seed}, {told}"

    def _advance(self, task: Task, done: float) -> float | None:
        """How many epochs of the run had been done before; None if it had not begun."""
        before = self.epochs.get(task.folder)
        self.epochs[task.folder] = done
        self.bars.advance(self.bar, _weight(task) * (done - (before or 0)))
        return before

    def _print(self, task: Task, text: str) -> None:
        if not self.quiet:
            (err if self.live else out).print(f"{self._title(task)}{text}", soft_wrap=True)


def accuracies(rows: Sequence[Row]) -> tuple[str, str]:
    """The prior's, if it is trained, and the range of the lanes', in per cent."""
    by_model = {row["lane"]: 100 * row["test_accuracy"] for row in rows}
    prior = f"{by_model.pop('prior'):.2f}" if "prior" in by_model else ""
    return prior, f"{min(by_model.values()):.2f} to {max(by_model.values()):.2f}" if by_model else ""


def _weight(task: Task) -> int:
    """A lane costs about as much as a prior."""
    return 1 + len(task.config.lanes)


def print_estimate(expected: dict[str, Any]) -> None:
    """What many runs are made of, and how long they would take in this process."""
    parts = {name: expected[name] for name in ("arms", "trials", "lanes", "seeds") if name in expected}
    print_facts(parts | {"time": f"about {span(expected['seconds'])} on this machine, one run after the other"})
