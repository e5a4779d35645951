"""Between the workers and the driver: news of the runs and their files one way, the wish to stop the other.

The post office is an actor on the driver's machine; `News` and `Mail` are the callbacks by which a worker reaches it.
"""

import os
import platform
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from imlp.errors import RunError
from imlp.files import make_folder
from imlp.train.callbacks import Callback, Row
from imlp.train.loop import Trainer
from imlp.train.run_folder import RunFolder

PATIENCE = 120.0  # seconds that a run waits for an orphan of its own to let go of its folder
TELL = 0.5  # seconds between two pieces of news of a run
PIECE = 64 * 2**20  # bytes of a file in one message


class News(Callback):
    """Tells the post office how the run is going, and hears from it whether to stop."""

    def __init__(self, post: Any, key: int) -> None:
        self.post, self.key, self.told, self.answer = post, key, 0.0, None

    def started(self, trainer: Trainer) -> None:
        self._tell(trainer)

    def stepped(self, trainer: Trainer, images: int) -> None:
        if time.monotonic() - self.told > TELL:
            self._tell(trainer)

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        self._tell(trainer, rows)

    def warned(self, text: str) -> None:
        self.post.warned.remote(self.key, text)

    def _tell(self, trainer: Trainer, rows: Sequence[Row] = ()) -> None:
        import ray

        if self.answer is not None and ray.wait([self.answer], timeout=0)[0]:
            trainer.stop_requested = ray.get(self.answer)
        self.told = time.monotonic()
        share = min(trainer.state.step, trainer.steps - 1) / trainer.steps
        news = {"done": trainer.state.epoch + share, "rows": rows, "where": platform.node()}
        self.answer = self.post.tell.remote(self.key, news)

    def close(self) -> None:
        """Wait until the last word has arrived: the result must not overtake it."""
        import ray

        if self.answer is not None:
            ray.get(self.answer)


class Mail(Callback):
    """Keeps the run's folder at the driver's like the one here; comes after each checkpoint."""

    def __init__(self, post: Any, there: Path, here: Path) -> None:
        self.post, self.there, self.here, self.sent = post, str(there), here, {}  # type: ignore[var-annotated]
        self.saved = 0.0

    def fetch(self) -> None:
        """Take what a run needs to be resumed."""
        import ray

        end = time.monotonic() + PATIENCE
        while (names := ray.get(self.post.listed.remote(self.there))) is None:
            if time.monotonic() > end:
                raise RunError(f"another process is training in {self.there}", "wait for it, or give another --out")
            time.sleep(1)
        for name in names:
            make_folder((self.here / name).parent)
            with open(self.here / name, "wb") as file:
                while piece := ray.get(self.post.read.remote(self.there, name, file.tell())):
                    file.write(piece)
        self.sent = self._files()

    def send(self) -> None:
        """Send what is new, what says which run it is first, the result last, and have deleted what is gone."""
        import ray

        files = self._files()
        for name in sorted(files, key=RunFolder.sending_order):
            if self.sent.get(name) == files[name]:
                continue
            with open(self.here / name, "rb") as file:
                while True:
                    start, piece = file.tell(), file.read(PIECE)
                    ended = file.tell() == files[name][1]
                    ray.get(self.post.write.remote(self.there, name, start, piece, ended))
                    if ended:
                        break
        gone = [name for name in self.sent if name not in files]
        if gone:
            ray.get(self.post.delete.remote(self.there, gone))
        self.sent = files

    def stepped(self, trainer: Trainer, images: int) -> None:
        if trainer.saved != self.saved:
            self._send_all(trainer)

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        self._send_all(trainer)

    def _send_all(self, trainer: Trainer) -> None:
        """Sending is a part of saving: a run that is far away saves less often."""
        begin = time.monotonic()
        self.send()
        if trainer.saved != self.saved:
            trainer.saving += time.monotonic() - begin
        self.saved = trainer.saved

    def _files(self) -> dict[str, tuple[int, int]]:
        """Every file of the run with its time and size."""
        paths = [path for path in self.here.rglob("*") if path.is_file() and not path.name.startswith(".")]
        stats = {path.relative_to(self.here).as_posix(): path.stat() for path in paths}
        return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}


class PostOffice:
    """An actor on the driver's machine: news and files from the workers, and the wish to stop to them."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = {folder: Path(folder) for folder in folders}  # of the runs: nothing else is read or written
        self.waiting: list[tuple[int, str, Any]] = []
        self.starts: Counter[int] = Counter()
        self.stop: str | None = None
        self.locks: dict[str, FileLock] = {}

    def begun(self, key: int, where: str) -> str | None:
        """A worker has taken the task; the answer says whether to stop at once."""
        self.starts[key] += 1
        self.waiting.append((key, "begun", where))
        if self.starts[key] > 1:
            text = f"its worker died; resuming from its last checkpoint on {where} (start {self.starts[key]})"
            self.waiting.append((key, "warned", text))
        return self.stop

    def tell(self, key: int, news: dict[str, Any]) -> str | None:
        self.waiting.append((key, "update", news))
        return self.stop

    def warned(self, key: int, text: str) -> None:
        self.waiting.append((key, "warned", text))

    def news(self) -> list[tuple[int, str, Any]]:
        """What has come since the last time."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def ask_to_stop(self, why: str) -> None:
        self.stop = why

    def listed(self, folder: str) -> list[str] | None:
        """The files that a run needs to be resumed; the folder is now locked. None while another process has it."""
        self._path(folder, ".lock")
        if folder not in self.locks:
            make_folder(Path(folder))
            lock = FileLock(RunFolder(Path(folder)).lock)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return None
            self.locks[folder] = lock
        return RunFolder(Path(folder)).needed_to_resume()

    def read(self, folder: str, name: str, start: int) -> bytes:
        with open(self._path(folder, name), "rb") as file:
            file.seek(start)
            return file.read(PIECE)

    def write(self, folder: str, name: str, start: int, piece: bytes, ended: bool) -> None:
        """One piece of a file; with the last one it gets its name."""
        path = self._path(folder, name)
        partial = self._path(folder, str(Path(name).with_name(f".{path.name}.part")))
        make_folder(path.parent)
        with open(partial, "r+b" if start else "wb") as file:
            file.seek(start)
            file.write(piece)
            if ended:
                file.flush()
                os.fsync(file.fileno())
        if ended:
            os.replace(partial, path)

    def delete(self, folder: str, names: list[str]) -> None:
        for path in [self._path(folder, name) for name in names]:
            path.unlink(missing_ok=True)

    def _path(self, folder: str, name: str) -> Path:
        """A file of a run by the name that a worker gives it; one outside of the run's folder is refused."""
        root = self.folders.get(folder)
        if root is None:
            raise RunError(f"{folder} is not the folder of a run of this sweep", "run the same command again")
        path = root / name
        if ".." in path.parts[len(root.parts) :] or not path.resolve().is_relative_to(root.resolve()) or path == root:
            raise RunError(f"{name!r:.60} is not a file in {root}", "name files within the run's folder")
        return path
