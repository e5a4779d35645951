"""The worker of a sweep on Ray: runs one task in a process of the cluster.

A worker that sees the sweep's folder writes there itself. One that does not works in a temporary folder: it takes from
the relay the files that exist, and sends every file back to it. One whose package, Python, NumPy or torch is not the
driver's runs nothing.
"""

import dataclasses
import hashlib
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

import imlp
from imlp.data import Dataset
from imlp.errors import ImlpError, RunError
from imlp.files import make_folder
from imlp.plugins import received
from imlp.study.tasks import Outcome, Task, run_task, write_log
from imlp.study.watcher import Progress
from imlp.train.callbacks import Callback, Row
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_folder import RunFolder

PATIENCE = 120.0  # seconds that a run waits for an orphaned process to release its folder


@dataclass(frozen=True)
class Job:
    """One task as it travels."""

    key: int
    task: Task
    marker: str
    versions: dict[str, str]
    command: tuple[str, ...]
    network: tuple[str, str, str] | None  # place, name and text of one from outside the package


def work(job: Job, data: Dataset, relay: Any) -> Outcome | None:
    """Run a task in this process, None if it was stopped; Ray repeats it only if the process or its machine dies."""
    import ray

    if ray.get(relay.begun.remote(job.key, platform.node())):
        return None
    here = versions()
    if wrong := [f"{name} {here[name]} instead of {n}" for name, n in job.versions.items() if here[name] != n]:
        raise RunError(f"{platform.node()} has {', '.join(wrong)}")  # the driver stops at once
    sys.argv = list(job.command)  # what env.json will name

    def tell(method: str, value: Any) -> Any:
        return ray.get(relay.tell.remote(job.key, method, value))

    progress = Progress(
        lambda **news: tell("update", {**news, "where": platform.node()}), lambda text: tell("warned", text)
    )
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)  # nobody writes to it
    try:
        if job.network is not None:
            received(*job.network)
        with _folder(job, relay) as (folder, callbacks):
            outcome = _run(dataclasses.replace(job.task, folder=folder), data, [progress, *callbacks])
    except Interrupted:
        return None
    except (ray.exceptions.RayTaskError, ImlpError) as error:  # its files did not come, or did not go
        return Outcome(job.task, None, in_a_line(error))
    error_text = outcome.error and outcome.error.replace(str(folder), str(job.task.folder))
    return Outcome(job.task, outcome.result, error_text)


def _run(task: Task, data: Dataset, callbacks: list[Callback]) -> Outcome:
    try:
        if (lock := RunFolder(task.folder).lock).exists():  # a killed driver may have left a process that is about
            with suppress(Timeout), FileLock(lock, timeout=PATIENCE):  # to end; otherwise the trainer says who has it
                pass
        return run_task(task, data, callbacks)
    except Interrupted:
        raise
    except Exception as error:  # a fault of the program or the machine: it must not take other runs down
        write_log(task.folder)
        return Outcome(task, None, in_a_line(error))


def in_a_line(error: Exception) -> str:
    """An error of this process, or of one that Ray has asked: then as it was there."""
    cause = getattr(error, "cause", None) or error
    return str(cause) if isinstance(cause, ImlpError) else f"{type(cause).__name__}: {cause}".partition("\n")[0]


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


class Upload(Callback):
    """Keeps the run's folder at the driver's like the one here, after each checkpoint."""

    def __init__(self, relay: Any, there: Path, here: Path) -> None:
        self.relay, self.there, self.here, self.saved = relay, str(there), here, 0.0
        self.sent: dict[str, tuple[int, int]] = {}

    def fetch(self) -> None:
        """Take what a run needs to be resumed."""
        import ray

        end = time.monotonic() + PATIENCE
        while (files := ray.get(self.relay.take.remote(self.there))) is None:
            if time.monotonic() > end:
                raise RunError(f"another process is training in {self.there}", "wait for it, or give another --out")
            time.sleep(1)
        for name, content in files.items():
            make_folder((self.here / name).parent)
            (self.here / name).write_bytes(content)
        self.sent = self._files()

    def send(self) -> None:
        """Send what is new, what says which run it is first, the result last, and have deleted what is gone."""
        import ray

        files = self._files()
        new = sorted((name for name in files if self.sent.get(name) != files[name]), key=RunFolder.sending_order)
        contents = {name: (self.here / name).read_bytes() for name in new}
        ray.get(self.relay.put.remote(self.there, contents, [*self.sent.keys() - files.keys()]))
        self.sent = files

    def stepped(self, trainer: Trainer, images: int) -> None:
        if trainer.saved != self.saved:
            self.epoch_ended(trainer, [], {})

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        begin = time.monotonic()
        self.send()
        if trainer.saved != self.saved:  # sending is a part of saving: a run that is far away saves less often
            trainer.saving += time.monotonic() - begin
        self.saved = trainer.saved

    def _files(self) -> dict[str, tuple[int, int]]:
        paths = [path for path in self.here.rglob("*") if path.is_file() and not path.name.startswith(".")]
        stats = {path.relative_to(self.here).as_posix(): path.stat() for path in paths}
        return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}


def versions() -> dict[str, str]:
    """What has to be the same on every machine.

    >>> versions()["imlp"].startswith(imlp.__version__)
    True
    """
    here = {"imlp": f"{imlp.__version__} (source {_digest(Path(imlp.__file__).parent)[:8]})"}
    here["python"] = ".".join(platform.python_version_tuple()[:2])
    for name in ("numpy", "torch"):
        try:
            here[name] = version(name)
        except PackageNotFoundError:
            here[name] = "none"
    return here


def _digest(home: Path) -> str:
    """SHA-256 of every file of the package, whatever its kind, but for what Python compiles from them."""
    sha = hashlib.sha256()
    for path in sorted(path for path in home.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        name, content = path.relative_to(home).as_posix().encode(), path.read_bytes()
        sha.update(b"%d %d " % (len(name), len(content)) + name + content)
    return sha.hexdigest()
