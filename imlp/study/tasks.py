"""Many lanes and many seeds as a list of tasks, and the loop that runs them on this machine.

A task is a run in a folder of its own, named by its identity. What is finished is skipped and what was interrupted is
resumed, so the same tasks can be run again at any time, with more alphas or seeds as well.
"""

import dataclasses
import shutil
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from imlp import machine
from imlp.errors import ConfigError, FileError, ImlpError, RunError
from imlp.files import make_folder, write_whole
from imlp.study.prior_recording import PriorRecording
from imlp.study.watcher import Watcher
from imlp.train.callbacks import Callback
from imlp.train.config import Config, Lane
from imlp.train.data import Dataset
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import find_runs
from imlp.train.signals import Stoppable, stopping_on_signals

if TYPE_CHECKING:
    from imlp.study.cluster import Cluster

SHARE = 0.8  # of the free memory, for lanes
DISK = 0.5  # of the free disk, for the prior's path


@dataclass(frozen=True)
class Task:
    """One run of a sweep."""

    config: Config
    folder: Path
    recorder: Path | None = None  # the run of this seed whose prior is on record, or will be: this one, or an earlier
    cadences: tuple[int, ...] = ()  # of all lanes of the seed
    callbacks: tuple[Callback, ...] = ()  # that belong to the run, wherever it is run: they can be pickled

    @property
    def finished(self) -> bool:
        return RunFolder(self.folder).is_finished


@dataclass(frozen=True)
class Outcome:
    """What came of a task: a result, or the error that ended it."""

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
        missing, own = list(dict.fromkeys(lanes)), []
        for run in there:
            config, has = dataclasses.replace(base, seed=seed, lanes=run.config.lanes), set(run.config.lanes)
            same = config.identity == run.config.identity
            if same and digest and run.result and run.result["data_digest"] != digest:
                remedy = "restore them, or choose another folder with --out"
                raise RunError(f"the runs in {folder} were trained on other data of this name", remedy)
            if same and has & set(missing) and (run.result or has <= set(missing)):
                own.append(Task(config, run.folder))
                missing = [lane for lane in missing if lane not in has]
        for start in range(0, len(missing), at_once):
            config = dataclasses.replace(base, seed=seed, lanes=tuple(missing[start : start + at_once]))
            own.append(Task(config, folder / f"seed{seed}-{config.identity}"))
        tasks += _with_record(own)
    return tasks


def _with_record(tasks: list[Task]) -> list[Task]:
    """Where the lanes of a seed take several runs, the first records its prior's path and the others play it."""
    cadences = {lane.steps for task in tasks for lane in task.config.lanes if lane.steps is not None}
    recorder = next((task for task in tasks if RunFolder(task.folder).recording.is_dir()), None)
    fresh = [task for task in tasks if task.config.needs_prior and not RunFolder(task.folder).has_begun]
    recorder = recorder or (fresh[0] if len(fresh) > 1 else None)
    if recorder is None:
        return tasks
    common: dict[str, Any] = {"recorder": recorder.folder, "cadences": tuple(sorted(cadences))}
    return [
        dataclasses.replace(task, **common) if task in (recorder, *fresh) or is_player(task) else task for task in tasks
    ]


def is_player(task: Task) -> bool:
    """Whether it was begun with the prior of another run of its seed."""
    return RunFolder(task.folder).replays_a_prior


def lanes_at_once(base: Config, data: Dataset, lanes: int, free: float | None = None) -> int:
    """As many lanes as fit into the memory that is free, at least one; `free` where the runs are not here."""
    network = base.make_network(data.image, data.n_classes)
    itemsize = np.dtype("float64" if base.backend == "reference" else base.dtype).itemsize
    sizes: dict[str, Any] = {"batch": base.batch, "itemsize": itemsize, "images": len(data.x) + len(data.x_test)}
    need = machine.memory(network, lanes=1, **sizes)
    if free is None:
        free = machine.free_memory(machine.device(base.backend, base.device, base.dtype))
    return max(1, min(lanes, int((SHARE * free - need.once) // need.lane)))


def run_tasks(
    tasks: Sequence[Task], data: Dataset, watcher: Watcher, cluster: "Cluster | None" = None
) -> list[Outcome]:
    """All tasks, in this process or on the cluster that it is connected to; a signal stops them with nothing lost."""
    try:
        if cluster is None:
            return run_here(tasks, data, watcher, stopping_on_signals)
        from imlp.study.cluster.driver import run_on_ray

        return run_on_ray(tasks, data, watcher, stopping_on_signals, cluster=cluster)
    finally:
        watcher.close()


def run_here(
    tasks: Sequence[Task], data: Dataset, watcher: Watcher, guard: Callable[[Stoppable], AbstractContextManager[None]]
) -> list[Outcome]:
    """One task after the other on this machine. One that fails for its own reasons does not take the others down."""
    outcomes = []
    watcher.planned(tasks)
    for task in tasks:
        outcomes.append(run_task(task, data, watcher.callbacks(task), guard))
        watcher.ended(outcomes[-1])
    drop_records(outcomes)
    return outcomes


def drop_records(outcomes: Sequence[Outcome]) -> None:
    """Delete each record of a prior that no run needs any more."""
    for recorder in {o.task.recorder for o in outcomes if o.task.recorder is not None}:
        if all(outcome.result for outcome in outcomes if outcome.task.recorder == recorder):
            RunFolder(recorder).delete_recording()


def write_log(folder: Path) -> None:
    """Leave the traceback of the error under way beside the run's files."""
    try:
        make_folder(folder)
        with write_whole(RunFolder(folder).log) as file:
            file.write(traceback.format_exc().encode())
    except FileError:
        pass  # the error under way says more


def run_task(
    task: Task,
    data: Dataset,
    callbacks: Sequence[Callback],
    guard: Callable[[Stoppable], AbstractContextManager[None]] = lambda trainer: nullcontext(),
) -> Outcome:
    """Start the run, resume it, or take its result; `Interrupted` is for the caller.

    A run that fails leaves its traceback in its folder, as `error.log`.
    """
    try:
        trainer = Trainer(task.config, data, task.folder, [*task.callbacks, *callbacks])
        found = trainer.finished()
        if found is not None:
            return Outcome(task, found)
        trainer.prior_source = _recording(task, trainer)
        lost = is_player(task) and trainer.prior_source is None  # the recording is gone, and it has no moments
        with guard(trainer):
            result = trainer.run(resume=True, again=lost)
        RunFolder(task.folder).log.unlink(missing_ok=True)
        return Outcome(task, result)
    except Interrupted:
        raise
    except ImlpError as error:
        write_log(task.folder)
        return Outcome(task, None, str(error))


def _recording(task: Task, trainer: Trainer) -> PriorRecording | None:
    """The recording that the task writes or replays, where that can be."""
    if task.recorder is None:
        return None
    own, recorder = RunFolder(task.folder), RunFolder(task.recorder)
    replays, epochs, started = task.recorder != task.folder, task.config.epochs, own.has_begun
    if not replays and not started:
        own.delete_recording()  # of a process that was killed
    steps = {lane.steps for lane in task.config.lanes if lane.steps is not None}
    options: dict[str, Any] = {"steps": trainer.steps, "dtype": trainer.dtype, "replays": replays}
    recording = PriorRecording(task.recorder, trainer.network, steps if replays else task.cadences, **options)
    if replays:
        recording.check(recorder.recorded_cadences())
        return recording if recording.complete(epochs) and (is_player(task) or not started) else None
    if not recording.folder.is_dir():
        make_folder(task.folder)
        if started or recording.bytes(epochs) > DISK * shutil.disk_usage(task.folder).free:
            return None
        recording.begin()
    return recording
