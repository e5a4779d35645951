"""The driver of a sweep on Ray: hands its tasks to the cluster, hears how they go, and takes their results."""

import dataclasses
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from imlp.data import Dataset
from imlp.errors import ConfigError, RunError
from imlp.files import make_folder
from imlp.networks import is_ours
from imlp.plugins import is_outside, named_before
from imlp.study.cluster import Cluster
from imlp.study.cluster.relay import Relay
from imlp.study.cluster.worker import Job, in_a_line, versions, work
from imlp.study.tasks import Outcome, Signals, Task
from imlp.study.watcher import Watcher
from imlp.train.loop import Trainer
from imlp.train.signals import stopping_on_signals

RETRIES = 10  # of a run whose worker or machine dies; one that fails by itself is never tried again
LOOK = 0.25  # seconds between two looks of the driver


def run_on_ray(tasks: Sequence[Task], data: Dataset, watcher: Watcher, cluster: Cluster) -> list[Outcome]:
    """As many tasks at a time as the cluster takes. One that fails for its own reasons does not take others down."""
    import ray

    for network in (task.config.network for task in tasks):
        if not is_outside(network) and not is_ours(network):
            problem = f"this program has put {network!r} into NETWORKS, where the processes of Ray do not find it"
            raise ConfigError(problem, "write its function to a file and name that: FILE.py:NAME")
    watcher.planned(tasks)
    outcomes: dict[int, Outcome] = {}
    for key, task in enumerate(tasks):
        result = Trainer(task.config, data, task.folder).finished() if task.finished else None
        if result is not None:
            outcomes[key] = Outcome(task, result)
            watcher.ended(outcomes[key])
    left = {key: task for key, task in enumerate(tasks) if key not in outcomes}
    if left:
        signals, folders = Signals(), {task.folder.absolute() for task in left.values()}
        with _marked({folder.parent for folder in folders}) as marker, stopping_on_signals(signals):
            relay, refs = _relay(folders), {}
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


def _relay(folders: set[Path]) -> Any:
    """A relay for these runs on this machine. It ends with this process, and so do its workers."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
    return ray.remote(Relay).options(**options).remote(sorted(map(str, folders)))


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
