"""The worker of a sweep on Ray: runs one task in a process of the cluster.

A worker that sees the sweep's folder writes there itself. One that does not works in a temporary folder: it takes from
the relay what is there already, and sends every file back to it.
"""

import dataclasses
import platform
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

from imlp.data import Dataset
from imlp.errors import ImlpError
from imlp.plugins import imported, is_outside, provide_text
from imlp.study.cluster.relay import PATIENCE, Upload
from imlp.study.cluster.versions import differing, versions
from imlp.study.tasks import Outcome, Task, run_task, write_log
from imlp.study.watcher import Progress
from imlp.train.callbacks import Callback
from imlp.train.loop import Interrupted
from imlp.train.run_folder import RunFolder


@dataclass(frozen=True)
class Job:
    """One task as it travels."""

    key: int
    task: Task
    marker: str
    digest: str
    versions: dict[str, str]
    command: tuple[str, ...]
    source: tuple[str, str] | None = None  # FILE.py and its text, if the network is not of the package


def work(job: Job, data: Dataset, relay: Any) -> Outcome | None:
    """Run a task in this process, None if it was stopped; Ray repeats it only if the process or its machine dies."""
    import ray

    if ray.get(relay.begun.remote(job.key, platform.node())):
        return None
    different = differing(versions(), job.versions)
    if different:
        problem = f"{platform.node()} has {different}; install the same versions on every machine"
        return Outcome(job.task, None, problem)
    if dataclasses.replace(data).digest != job.digest:  # of the arrays as they have arrived
        problem = f"the data were damaged on their way to {platform.node()}; run the same command again"
        return Outcome(job.task, None, problem)
    sys.argv = list(job.command)  # what env.json will name
    if job.source is not None:
        provide_text(*job.source)

    def tell(method: str, value: Any) -> Any:
        return ray.get(relay.tell.remote(job.key, method, value))

    progress = Progress(
        lambda **news: tell("update", {**news, "where": platform.node()}), lambda text: tell("warned", text)
    )
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)  # nobody writes to it
    try:
        if is_outside(job.task.config.network):
            imported(job.task.config.network)
        with _folder(job, relay) as (folder, callbacks):
            task = dataclasses.replace(job.task, folder=folder)
            outcome = _run(task, data, [progress, *callbacks])
    except Interrupted:
        return None
    except (ray.exceptions.RayTaskError, ImlpError) as error:  # its files did not come, or did not go
        return Outcome(job.task, None, _in_a_line(error))
    error_text = outcome.error and outcome.error.replace(str(folder), str(job.task.folder))
    return Outcome(job.task, outcome.result, error_text)


def _run(task: Task, data: Dataset, callbacks: Sequence[Callback]) -> Outcome:
    try:
        _await_orphan(task.folder)
        return run_task(task, data, callbacks)
    except Interrupted:
        raise
    except Exception as error:  # a fault of the program or the machine: it must not take other runs down
        write_log(task.folder)
        return Outcome(task, None, _in_a_line(error))


def _in_a_line(error: Exception) -> str:
    """An error of this process, or of the relay: then as it was there."""
    cause = getattr(error, "cause", None) or error
    return str(cause) if isinstance(cause, ImlpError) else f"{type(cause).__name__}: {cause}"


def _await_orphan(folder: Path) -> None:
    """Where the driver or a machine was killed, the last process of this run may be about to end; give it time."""
    lock = RunFolder(folder).lock
    if lock.exists():
        try:
            with FileLock(lock, timeout=PATIENCE):
                pass
        except Timeout:
            pass  # the trainer says who holds it


@contextmanager
def _folder(job: Job, relay: Any) -> Iterator[tuple[Path, list[Callback]]]:
    """Where this process works: the sweep's own folder if this machine sees it, otherwise one whose files it sends."""
    folder = job.task.folder
    if (folder.parent / job.marker).exists():
        yield folder, []
        return
    with TemporaryDirectory(prefix="imlp-") as temporary:
        upload = Upload(relay, folder, Path(temporary) / folder.name)
        upload.fetch()
        try:
            yield upload.here, [upload]
        finally:
            upload.send()
