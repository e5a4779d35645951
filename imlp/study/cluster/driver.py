"""The driver of a sweep on Ray: hands its tasks to the cluster, hears how they go, and takes their results.

`Relay` is an actor beside it: progress and files of the runs come to it from the workers, and the request to stop goes
to them.
"""

import dataclasses
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from imlp.data import Dataset
from imlp.errors import ConfigError, RunError
from imlp.files import make_folder, read_bytes, write_whole
from imlp.networks import is_ours
from imlp.plugins import is_outside, named_before
from imlp.study.cluster import Cluster
from imlp.study.cluster.worker import Job, in_a_line, versions, work
from imlp.study.tasks import Outcome, Signals, Task
from imlp.study.watcher import Watcher
from imlp.train.run_folder import RunFolder
from imlp.train.signals import stopping_on_signals

RETRIES = 10  # of a run whose worker or machine dies; one that fails by itself is never tried again
LOOK = 0.25  # seconds between two looks of the driver

Event = tuple[int, str, Any]  # the number of the task, the method of the watcher that hears it, and what it is told


def run_on_ray(tasks: Sequence[Task], data: Dataset, watcher: Watcher, cluster: Cluster) -> list[Outcome]:
    """As many tasks at a time as the cluster takes. One that fails for its own reasons does not take others down."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    for network in (task.config.network for task in tasks):
        if not is_outside(network) and not is_ours(network):
            problem = f"this program has put {network!r} into NETWORKS, where the processes of Ray do not find it"
            raise ConfigError(problem, "write its function to a file and name that: FILE.py:NAME")
    watcher.planned(tasks)
    outcomes: dict[int, Outcome] = {}
    for key, task in enumerate(tasks):
        if (result := RunFolder(task.folder).result_of(task.config, data.digest)) is not None:
            outcomes[key] = Outcome(task, result)
            watcher.ended(outcomes[key])
    left = {key: task for key, task in enumerate(tasks) if key not in outcomes}
    if left:
        signals, folders = Signals(), {task.folder.absolute() for task in left.values()}
        with _marked({folder.parent for folder in folders}) as marker, stopping_on_signals(signals):
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
            relay: Any = ray.remote(Relay).options(**options).remote(sorted(map(str, folders)))
            refs: dict[Any, int] = {}
            try:
                refs = _submit(left, data, cluster, marker, relay)
                _follow(refs, tasks, outcomes, watcher, relay, signals)
            finally:
                for ref in refs:
                    ray.cancel(ref, recursive=False)
                ray.kill(relay)
        signals.stop_if_requested()
    return [outcomes[key] for key in range(len(tasks))]


@contextmanager
def _marked(folders: set[Path]) -> Iterator[str]:
    """A file with a random name in each folder: a worker that finds it shares the folder with the driver."""
    name = f".driver-{secrets.token_hex(8)}"
    try:
        for folder in folders:
            make_folder(folder)
            (folder / name).touch()
        yield name
    finally:
        for folder in folders:
            (folder / name).unlink(missing_ok=True)


def _submit(left: dict[int, Task], data: Dataset, cluster: Cluster, marker: str, relay: Any) -> dict[Any, int]:
    """Hand all tasks to Ray; the data go once into its store."""
    import ray

    remote, stored, here, refs = ray.remote(work), ray.put(data), versions(), {}
    for key, task in left.items():
        cpus, gpus = cluster.needs(task.config)
        cluster.nodes_for(task.config)
        config = cluster.settings(task.config)
        to_run = dataclasses.replace(task, config=config, folder=task.folder.absolute())
        network = named_before(config.network, config.source) if config.source is not None else None
        travels = (network.place, network.name, network.text) if network is not None else None
        job = Job(key, to_run, marker, here, tuple(sys.argv), travels)
        # torch is told its threads, NumPy has to find them when it starts
        environment = {name: str(config.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        ref = remote.options(
            num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False,
            scheduling_strategy="SPREAD", runtime_env={"env_vars": environment}, name=task.folder.name,
        ).remote(job, stored, relay)  # fmt: skip
        refs[ref] = key
    return refs


def _follow(
    refs: dict[Any, int],
    tasks: Sequence[Task],
    outcomes: dict[int, Outcome],
    watcher: Watcher,
    relay: Any,
    signals: Signals,
) -> None:
    """Hear the runs and take their results, until all have ended or, once asked to stop, those that had begun."""
    import ray

    begun: set[int] = set()
    told = False
    while refs and not (told and not begun):
        ready = ray.wait(list(refs), timeout=LOOK)[0]
        for key, event, value in ray.get(relay.events.remote()):
            begun.add(key)
            if event == "warned":
                watcher.warned(tasks[key], value)
            elif event == "update" and key not in outcomes:
                watcher.update(tasks[key], **value)
        for ref in ready:
            key = refs.pop(ref)
            begun.discard(key)
            if (outcome := _outcome(tasks[key], ref)) is not None:
                outcomes[key] = outcome
                watcher.ended(outcome)
        if signals.stop_requested is not None and not told:
            ray.get(relay.ask_to_stop.remote(signals.stop_requested))
            told = True


def _outcome(task: Task, ref: Any) -> Outcome | None:
    """The outcome of a task; None for one that was stopped."""
    import ray

    try:
        outcome: Outcome | None = ray.get(ref)
    except ray.exceptions.RayTaskError as error:  # of the machine: what goes wrong in a run is its outcome
        remedy = "install the same versions on every machine, then run the same command again"
        raise RunError(in_a_line(error), remedy) from error
    except ray.exceptions.RayError as error:
        why = f"Ray gave it up ({in_a_line(error)})"
        return Outcome(task, None, f"{why}; its checkpoints are there: run the same command again")
    return outcome and dataclasses.replace(outcome, task=task)


class Relay:
    """Keeps events for the driver, reads and writes files in the folders of its runs, and tells workers to stop.

    It ends with the driver, and so do its workers.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = {folder: Path(folder) for folder in folders}  # of the runs: nothing else is read or written
        self.waiting: list[Event] = []
        self.starts: Counter[int] = Counter()
        self.stop: str | None = None
        self.locks: dict[str, FileLock] = {}

    def begun(self, key: int, where: str) -> str | None:
        """A worker has taken the task; the answer says whether to stop at once."""
        self.starts[key] += 1
        if self.starts[key] > 1:
            text = f"its worker died; resuming from its last checkpoint on {where} (start {self.starts[key]})"
            self.waiting.append((key, "warned", text))
        return self.tell(key, "begun", where)

    def tell(self, key: int, method: str, value: Any) -> str | None:
        """Keep an event for the driver; the answer says whether to stop."""
        self.waiting.append((key, method, value))
        return self.stop

    def events(self) -> list[Event]:
        """What has come since the last time."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def ask_to_stop(self, why: str) -> None:
        self.stop = why

    def take(self, folder: str) -> dict[str, bytes] | None:
        """The files that a run needs to be resumed; the folder is now locked. None while another process has it."""
        run_folder = RunFolder(self._path(folder, ".lock").parent)
        if folder not in self.locks:
            make_folder(run_folder.path)
            lock = FileLock(run_folder.lock)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return None
            self.locks[folder] = lock
        return {name: read_bytes(run_folder.path / name) for name in run_folder.needed_to_resume()}

    def put(self, folder: str, files: dict[str, bytes], gone: Iterable[str] = ()) -> None:
        """Write files into a run's folder, one after the other, then delete those that are gone."""
        for name, content in files.items():
            path = self._path(folder, name)
            make_folder(path.parent)
            with write_whole(path) as file:
                file.write(content)
        for name in gone:
            self._path(folder, name).unlink(missing_ok=True)

    def _path(self, folder: str, name: str) -> Path:
        """A file of a run by the name that a worker gives it; one outside of the run's folder is refused."""
        root = self.folders.get(folder)
        if root is None:
            raise RunError(f"{folder} is not the folder of a run of this sweep", "run the same command again")
        path = root / name
        if ".." in path.parts[len(root.parts) :] or not path.resolve().is_relative_to(root.resolve()) or path == root:
            raise RunError(f"{name!r:.60} is not a file in {root}", "name files within the run's folder")
        return path
