"""Many lanes and many seeds as a list of tasks, and the loop that runs them on this machine.

A task is a run in a separate folder, named by its identity. What is finished is skipped and what was interrupted is
resumed, so the same tasks can be run again at any time, with more alphas or seeds as well.
"""

import dataclasses
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from imlp import machine
from imlp.data import Dataset
from imlp.errors import ConfigError, FileError, ImlpError, RunError
from imlp.files import make_folder, write_whole
from imlp.study.watcher import Progress, Watcher
from imlp.train.callbacks import Callback
from imlp.train.config import Config, Lane
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_folder import RunFolder, refuse_links
from imlp.train.run_reader import find_runs
from imlp.train.signals import stopping_on_signals

SHARE = 0.8  # of the free memory, for lanes


@dataclass(frozen=True)
class Task:
    """One run of a sweep."""

    config: Config
    folder: Path
    callbacks: tuple[Callback, ...] = ()  # that belong to the run, wherever it is run: they can be pickled

    @property
    def finished(self) -> bool:
        return RunFolder(self.folder).result.exists()


@dataclass(frozen=True)
class Outcome:
    """The outcome of a task: a result, or the error that ended it."""

    task: Task
    result: dict[str, Any] | None
    error: str | None = None


def plan(
    base: Config, lanes: Sequence[Lane], seeds: Iterable[int], folder: Path, *, at_once: int, digest: str | None = None
) -> list[Task]:
    """The runs that it takes. A lane that a run in the folder has is not run again; new lanes go together.

    Runs on other data of the same name (`digest` is that of the data now) are refused: nothing could be compared.
    """
    if not lanes:
        raise ConfigError("there are no alphas", "give at least one: --alpha 0,0.5,1")
    there = find_runs([folder]) if RunFolder.find(folder, "*") else []
    tasks = []
    for seed in seeds:
        missing = list(dict.fromkeys(lanes))
        for run in there:
            config, has = dataclasses.replace(base, seed=seed, lanes=run.config.lanes), set(run.config.lanes)
            same = config.identity == run.config.identity
            if same and digest and run.result and run.result["data_digest"] != digest:
                remedy = "restore them, or choose another folder with --out"
                raise RunError(f"the runs in {folder} were trained on other data of this name", remedy)
            if same and has & set(missing) and (run.result or has <= set(missing)):
                tasks.append(Task(config, run.folder))
                missing = [lane for lane in missing if lane not in has]
        for start in range(0, len(missing), at_once):
            config = dataclasses.replace(base, seed=seed, lanes=tuple(missing[start : start + at_once]))
            tasks.append(Task(config, folder / f"seed{seed}-{config.identity}"))
    return tasks


def lanes_at_once(base: Config, data: Dataset, lanes: int, free: float | None = None) -> int:
    """As many lanes as fit into the memory that is free, at least one; `free` where the runs are not here."""
    need = Trainer(dataclasses.replace(base, lanes=()), data, Path()).memory()
    free = machine.free_memory(need.device) if free is None else free
    return max(1, min(lanes, int((SHARE * free - need.once) // need.lane)))


def run_here(tasks: Sequence[Task], data: Dataset, watcher: Watcher) -> list[Outcome]:
    """One task after the other on this machine. One that fails for its own reasons does not take the others down."""
    outcomes: list[Outcome] = []
    signals = Signals()
    with stopping_on_signals(signals):
        watcher.planned(tasks)
        for task in tasks:
            if signals.stop_requested is None:
                progress = Progress(partial(watcher.update, task), partial(watcher.warned, task))
                outcomes.append(run_task(task, data, [progress, signals]))
                watcher.ended(outcomes[-1])
    signals.stop_if_requested()
    return outcomes


class Signals(Callback):
    """Remembers a signal for all runs of a study: one that comes while a run is evaluated or saved stops the rest."""

    stop_requested: str | None = None

    def stepped(self, trainer: Trainer, images: int) -> None:
        trainer.stop_requested = trainer.stop_requested or self.stop_requested

    def stop_if_requested(self) -> None:
        """After the last run too: the caller may have more."""
        if self.stop_requested is not None:
            raise Interrupted(self.stop_requested, "nothing is lost: run the same command again")


def write_log(folder: Path) -> None:
    """Leave the traceback of the error under way beside the run's files."""
    with suppress(FileError):  # the error under way says more
        make_folder(folder)
        refuse_links([RunFolder(folder).log])
        with write_whole(RunFolder(folder).log) as file:
            file.write(traceback.format_exc().encode())


def run_task(task: Task, data: Dataset, callbacks: Sequence[Callback]) -> Outcome:
    """Start the run, resume it, or take its result; `Interrupted` is for the caller.

    A run that fails leaves its traceback in its folder, as `error.log`.
    """
    refuse_links([task.folder])
    try:
        trainer = Trainer(task.config, data, task.folder, [*task.callbacks, *callbacks])
        if (result := trainer.finished()) is None:
            result = trainer.run(resume=True)
            RunFolder(task.folder).log.unlink(missing_ok=True)
        return Outcome(task, result)
    except Interrupted:
        raise
    except ImlpError as error:
        write_log(task.folder)
        return Outcome(task, None, str(error))
