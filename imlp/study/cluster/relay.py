"""Between the workers and the driver: progress and files of the runs one way, the request to stop the other.

`Relay` is an actor on the driver's machine; `Upload` is the callback that sends it the files of a run.
"""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from imlp.errors import RunError
from imlp.files import make_folder, write_whole
from imlp.train.callbacks import Callback, Row
from imlp.train.loop import Trainer
from imlp.train.run_folder import RunFolder

PATIENCE = 120.0  # seconds that a run waits for an orphaned process to release its folder

Event = tuple[int, str, Any]  # the number of the task, the method of the watcher that hears it, and what it is told


class Relay:
    """Keeps events for the driver, reads and writes files in the folders of its runs, and tells workers to stop."""

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
        return {name: (run_folder.path / name).read_bytes() for name in run_folder.needed_to_resume()}

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
        """Every file of the run with its time and size."""
        paths = [path for path in self.here.rglob("*") if path.is_file() and not path.name.startswith(".")]
        stats = {path.relative_to(self.here).as_posix(): path.stat() for path in paths}
        return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}
