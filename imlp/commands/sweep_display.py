"""One display for many runs: a live table and a bar where there is a terminal, plain lines where there is none."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from imlp.commands.console import err, out, print_facts, table
from imlp.commands.progress import watched
from imlp.data import ProgressCallback
from imlp.study.cost import counted, span
from imlp.study.scores import constant_alpha
from imlp.study.tasks import Outcome, Task
from imlp.study.watcher import Watcher
from imlp.train.callbacks import Row
from imlp.train.run_folder import RunFolder

RUNS_SHOWN = 20  # runs in the table at a time: those under way, then the last to end, then the next to come


@dataclass
class Line:
    """What is known of one run."""

    task: Task
    state: str = "waiting"
    done: float = 0.0  # epochs, parts included
    rows: Sequence[Row] = ()
    where: str = ""  # the machine, if there are several

    @property
    def accuracies(self) -> tuple[str, str]:
        """The prior's, if it is trained, and the range of the lanes', in per cent."""
        own = {row["lane"]: 100 * row["test_accuracy"] for row in self.rows}
        prior = f"{own.pop('prior'):.2f}" if "prior" in own else ""
        return prior, f"{min(own.values()):.2f} to {max(own.values()):.2f}" if own else ""


class Board(Watcher):
    """Shows all runs of a study at once; `update` and `ended` may come from this process or from another machine.

    Use: `with closing(Board()) as board: study.sweep(config, watcher=board)`
    """

    def __init__(self, *, quiet: bool = False, arms: bool = False) -> None:
        self.quiet, self.arms, self.live = quiet, arms, err.is_terminal and not quiet
        self.open = ExitStack()  # the bar or the screen that is shown now
        self.tell: ProgressCallback | None = None
        self.lines: dict[str, Line] = {}

    def progress(self, what: str, done: int, total: int | None) -> None:
        if self.tell is None:
            self.close()
            self.tell = self.open.enter_context(watched(quiet=self.quiet))
        self.tell(what, done, total)

    def during(self, what: str) -> AbstractContextManager[object]:
        self.close()
        return nullcontext() if self.quiet else err.status(what)

    def noted(self, text: str) -> None:
        self.close()
        if not self.quiet:
            err.print(text, soft_wrap=True)

    def planned(self, tasks: Sequence[Task]) -> None:
        self.close()
        columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        self.bars = Progress(TextColumn("{task.description}"), *columns, console=err)
        self.screen = Live(console=err, refresh_per_second=4, transient=True)
        self.lines = {str(task.folder): Line(task) for task in tasks}
        total = sum(_weight(task) * task.config.epochs for task in tasks)
        self.bar = self.bars.add_task(f"{len(tasks)} runs", total=total)
        self._show()
        if self.live:
            self.screen.start()
            self.open.callback(self.screen.stop)

    def update(self, task: Task, *, done: float, rows: Sequence[Row] = (), where: str = "") -> None:
        """`done` epochs of the run, parts included; `rows` of the epoch that has just ended."""
        line = self.lines[str(task.folder)]
        ended = int(done) > int(line.done) and bool(rows)
        line.state, line.done, line.rows, line.where = "running", done, rows or line.rows, where or line.where
        self._show()
        if ended and not self.live and not self.quiet:
            told = zip(("prior", "lanes"), line.accuracies, strict=True)
            of = f"epoch {int(done)}/{task.config.epochs}"
            place = f" on {where}" if where else ""
            accuracies = ", ".join(f"{name} {accuracy} %" for name, accuracy in told if accuracy)
            out.print(f"{self._title(task)}{place}: {of}: {accuracies}", soft_wrap=True)

    def ended(self, outcome: Outcome) -> None:
        line = self.lines[str(outcome.task.folder)]
        waited = line.state == "waiting"
        line.state, line.done = "failed" if outcome.result is None else "done", outcome.task.config.epochs
        line.rows = outcome.result["models"] if outcome.result else line.rows
        self._show()
        if outcome.error:
            log = RunFolder(outcome.task.folder).log
            where = f" (traceback: {log})" if log.exists() else ""
            self.warned(outcome.task, f"failed: {outcome.error}{where}")
        elif waited and not self.live and not self.quiet:
            out.print(f"{self._title(outcome.task)}: done already", soft_wrap=True)

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

    def _show(self) -> None:
        if not self.live:
            return
        self.bars.update(self.bar, completed=sum(_weight(line.task) * line.done for line in self.lines.values()))
        order = {"running": 0, "failed": 1, "done": 2, "waiting": 3}
        chosen = sorted(self.lines.values(), key=lambda line: order[line.state])
        several = any(line.where for line in chosen)
        columns, rows = ("run", "state", "prior", "I-MLPs", *(["where"] if several else [])), []
        for line in chosen[:RUNS_SHOWN]:
            epochs = line.task.config.epochs
            epoch = f"epoch {min(int(line.done) + 1, epochs)}/{epochs}"
            state = epoch if line.state == "running" else line.state
            cells = [self._title(line.task), state, *line.accuracies]
            rows.append([*cells, *([line.where] if several else [])])
        rows += [[f"and {len(chosen) - RUNS_SHOWN} more"]] if len(chosen) > RUNS_SHOWN else []
        self.screen.update(Group(table(f"{chosen[0].task.config.measure}, %", columns, rows, text=6), self.bars))


def _weight(task: Task) -> int:
    """A lane costs about as much as a prior."""
    return 1 + len(task.config.lanes)


def print_estimate(expected: dict[str, Any]) -> None:
    """What many runs are made of, and how long they would take in this process."""
    parts = {name: expected[name] for name in ("arms", "trials", "lanes", "seeds") if name in expected}
    print_facts(parts | {"time": f"about {span(expected['seconds'])} on this machine, one run after the other"})
