"""The worker of a sweep on Ray: runs one task in a process of the cluster.

A worker that sees the sweep's folder writes there itself. One that does not works in a temporary folder: it takes from
the post office what is there already, and sends every file back to it.
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
from imlp.plugins import imported, is_outside, remember
from imlp.study.cluster.post_office import PATIENCE, Mail, News
from imlp.study.cluster.versions import differing, versions
from imlp.study.tasks import Task, run_task, write_log
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


@dataclass(frozen=True)
class Done:
    """What came of it, as it travels back."""

    result: dict[str, Any] | None = None
    error: str | None = None
    stopped: bool = False


def work(job: Job, data: Dataset, post: Any) -> Done:
    """Run a task in this process; Ray repeats it only if the process or its machine dies."""
    import ray

    if ray.get(post.begun.remote(job.key, platform.node())):
        return Done(stopped=True)
    different = differing(versions(), job.versions)
    if different:
        return Done(error=f"{platform.node()} has {different}; install the same versions on every machine")
    if dataclasses.replace(data).digest != job.digest:  # of the arrays as they have arrived
        return Done(error=f"the data were damaged on their way to {platform.node()}; run the same command again")
    sys.argv = list(job.command)  # what env.json will name
    if job.source is not None:
        remember(*job.source)
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)  # nobody writes to it
    news = News(post, job.key)
    try:
        if is_outside(job.task.config.network):
            imported(job.task.config.network)
        with _folder(job, post) as (folder, callbacks):
            done = _run(dataclasses.replace(job.task, folder=folder), data, [news, *callbacks])
            error = done.error and done.error.replace(str(folder), str(job.task.folder))
            done = dataclasses.replace(done, error=error)
    except (ray.exceptions.RayTaskError, ImlpError) as error:  # its files did not come, or did not go
        done = Done(error=_in_a_line(error))
    news.close()
    return done


def _run(task: Task, data: Dataset, callbacks: Sequence[Callback]) -> Done:
    try:
        _await_orphan(task.folder)
        outcome = run_task(task, data, callbacks)
    except Interrupted:
        return Done(stopped=True)
    except Exception as error:  # a fault of the program or the machine: it must not take other runs down
        write_log(task.folder)
        return Done(error=_in_a_line(error))
    return Done(outcome.result, outcome.error)


def _in_a_line(error: Exception) -> str:
    """An error of this process, or of the post office: then as it was there."""
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
def _folder(job: Job, post: Any) -> Iterator[tuple[Path, list[Callback]]]:
    """Where this process works: the sweep's own folder if this machine sees it, otherwise one whose files it sends."""
    folder = job.task.folder
    if (folder.parent / job.marker).exists():
        yield folder, []
        return
    with TemporaryDirectory(prefix="imlp-") as temporary:
        mail = Mail(post, folder, Path(temporary) / folder.name)
        mail.fetch()
        try:
            yield mail.here, [mail]
        finally:
            mail.send()
