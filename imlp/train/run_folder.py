"""A run's folder: what its files are called, what each one is for, and how they are written, checked and deleted.

Nobody else names these files. `ENTRIES` is the one list of what belongs to a run; everything else in the folder is the
user's, and is never touched.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from imlp.errors import FileError, RunError
from imlp.files import parse_json, reason, write_whole
from imlp.networks.outside import recalled
from imlp.train import checkpoint
from imlp.train.config import Config, differences, read, recorded, to_toml

CONFIG, ENVIRONMENT, METRICS, TIMES, RESULT = "config.toml", "env.json", "metrics.jsonl", "times.jsonl", "result.json"
CHECKPOINT, STOPPED_LANE = "checkpoint", "stopped-lane"
NETWORK = "network.py"  # the text of a network from outside the package; nobody runs it unless the user names it
RECORDING, REPLAYED = "prior-path", "plays.json"  # the prior's weights on record; whose recording a run replays
PICTURE, TENSORBOARD, LOG, LOCK = "run.png", "tensorboard", "error.log", ".lock"


@dataclass(frozen=True)
class Entry:
    """A file or folder of a run, by its name or a pattern of names."""

    name: str
    needed: str | None = None  # to resume: the pattern of the files that a worker on another machine fetches first
    identifies: bool = False  # it says which run this is, and is sent before checkpoints, which are refused without it
    archived: bool = False  # it is small, and kept with the results on record


ENTRIES = (  # in the order in which they are deleted: whatever is left at any moment is a run, or nothing
    Entry(RESULT, archived=True),
    Entry(CHECKPOINT, needed=f"{CHECKPOINT}/*.safetensors"),
    Entry(f"{STOPPED_LANE}*", needed=f"{STOPPED_LANE}*/*.safetensors"),
    Entry(RECORDING),
    Entry(REPLAYED, needed=REPLAYED, identifies=True),
    Entry(ENVIRONMENT, needed=ENVIRONMENT, identifies=True, archived=True),
    Entry(METRICS, needed=METRICS, archived=True),
    Entry(TIMES, needed=TIMES, archived=True),
    Entry(PICTURE),
    Entry(TENSORBOARD),
    Entry("lane*.*"),  # exported networks
    Entry("prior.*"),
    Entry(LOG),
    Entry(NETWORK, needed=NETWORK, identifies=True, archived=True),
    Entry(".*.part"),
    Entry(CONFIG, needed=CONFIG, identifies=True, archived=True),
)


class RunFolder:
    """The folder of one run, which need not exist yet."""

    def __init__(self, path: Path):
        self.path = path
        self.config, self.environment = path / CONFIG, path / ENVIRONMENT
        self.metrics, self.times, self.result = path / METRICS, path / TIMES, path / RESULT
        self.checkpoint, self.recording, self.replayed = path / CHECKPOINT, path / RECORDING, path / REPLAYED
        self.log, self.lock = path / LOG, path / LOCK

    @staticmethod
    def find(folder: Path, where: str = "**") -> list[Path]:
        """The folders of runs in a folder: at any depth, or where the pattern says."""
        return sorted(path.parent for path in folder.glob(f"{where}/{CONFIG}"))

    # What is in it

    @property
    def has_begun(self) -> bool:
        """Whether there is anything to resume from; a run without it is started from its first step."""
        return bool(self.checkpoints()) or self.is_finished

    @property
    def is_finished(self) -> bool:
        return self.result.exists()

    @property
    def replays_a_prior(self) -> bool:
        """Whether the run takes its prior from the recording of another one."""
        return self.replayed.exists()

    def read_config(self) -> Config:
        """The settings of the run; a `ConfigError` where the file is not that of one."""
        return recorded(read(self.config))

    def result_of(self, config: Config, data_digest: str) -> dict[str, Any] | None:
        """The result of this very run on these very data, if it is here."""
        try:
            found = parse_json(self.result.read_bytes())
            same = (found["identity"], found["data_digest"]) == (config.identity, data_digest)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if same and self.config.exists() else None

    def needed_to_resume(self) -> list[str]:
        """The files that a worker has to fetch in order to resume the run elsewhere, as paths within the folder."""
        patterns = [entry.needed for entry in ENTRIES if entry.needed]
        return [path.relative_to(self.path).as_posix() for pattern in patterns for path in self.path.glob(pattern)]

    @staticmethod
    def sending_order(name: str) -> tuple[Any, ...]:
        """A key to sort files by that are sent one after the other, so that what has arrived is a run at any moment.

        >>> sorted(["checkpoint/a", "result.json", "metrics.jsonl", "config.toml"], key=RunFolder.sending_order)
        ['config.toml', 'checkpoint/a', 'metrics.jsonl', 'result.json']
        """
        first = any(entry.identifies and entry.name == name for entry in ENTRIES)
        return name == RESULT, not first, "/" not in name, name

    def archived(self) -> list[Path]:
        """The small files that are kept with the results on record."""
        paths = [self.path / entry.name for entry in ENTRIES if entry.archived]
        return [path for path in paths if path.exists()]

    # Whose it is

    def check_same(self, config: Config, extends: Callable[[Config], bool], *, resume: bool) -> None:
        """Refuse a folder that holds another run, or this one if it is not to be resumed.

        `extends` says whether the run adds epochs to one with the given settings, which it may if it is resumed.
        """
        checkpoints = self.checkpoints()
        if self.config.exists():
            there = self.read_config()
            changed = differences(there, config)
            if changed and not (resume and checkpoints and extends(there)):
                problem = f"{self.path} holds another run ({'; '.join(changed)})"
                raise RunError(problem, "choose another folder with --out")
        if checkpoints and not resume:
            raise RunError(f"there is a run in {self.path}", "resume it: --resume; or start it again: --again")

    def check_checkpoint(
        self, said: Mapping[str, Any] | None, config: Config, extends: Callable[[Config], bool], replayed: str | None
    ) -> None:
        """Refuse a folder whose files are not those that its checkpoint (`said`; None: an old one) was written beside.

        `replayed` is the run whose prior this one replays.
        """
        remedy = "put it back as it was, or choose another folder with --out"
        if not self.config.exists():
            raise RunError(f"{self.config} is missing, which says what the checkpoints beside it are of", remedy)
        there = recorded(said["config"]) if said else config
        changed = differences(there, config)
        if changed and not extends(there):
            raise RunError(f"{self.config} is not that of the checkpoints beside it ({'; '.join(changed)})", remedy)
        if said and said["plays"] is not None and _read_json(self.replayed) != {"prior": said["plays"]}:
            problem = f"{self.replayed} is missing or not what it was: this run took its prior from {said['plays']}"
            raise RunError(problem, f"put back {json.dumps({'prior': said['plays']})}, or delete {self.path}")
        if self.replays_a_prior and replayed is None:
            raise RunError(f"{self.path} took its prior from another run of its sweep", "resume that sweep")

    def locked(self) -> AbstractContextManager[None]:
        """Keeps other processes out for the time of a `with`; the folder is made."""
        return locked(self.path)

    # Deleting

    def delete(self) -> None:
        """Delete the run, and nothing that does not belong to one; the lock is held."""
        if self.config.exists():
            self.read_config()  # refuses a file that only has the name
        elif any(path.name not in (LOCK, LOG) and path.suffix != ".part" for path in self.path.iterdir()):
            raise RunError(f"{self.path} is not a run's folder", "--again deletes runs only; choose another --out")
        for path in [path for entry in ENTRIES for path in self.path.glob(entry.name)]:
            try:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            except OSError as error:
                raise FileError(f"cannot delete {path}: {reason(error)}", "delete it by hand") from error

    def delete_partial_files(self) -> None:
        """Delete what a process has left that was killed while it wrote; the lock is held."""
        for path in (*self.path.glob(".*.part"), *self.path.glob(f"{CHECKPOINT}/.*.part")):
            path.unlink(missing_ok=True)

    def delete_checkpoints(self) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def delete_recording(self) -> None:
        shutil.rmtree(self.recording, ignore_errors=True)

    # Writing

    def begin(self, config: Config, environment: Mapping[str, Any], replayed: str | None) -> None:
        """Write what says which run this is; `replayed` is the run whose prior it replays, if any."""
        if config.source is not None and (found := recalled(config.network, config.source)).in_file:
            _write(self.path / NETWORK, found.text)
        self.write_config(config)
        self.write_environment(environment)
        if replayed is None:
            self.replayed.unlink(missing_ok=True)
        else:
            _write(self.replayed, json.dumps({"prior": replayed}) + "\n")

    def write_config(self, config: Config) -> None:
        _write(self.config, to_toml(config))

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        _write(self.environment, json.dumps(environment, indent=2) + "\n")

    def write_epochs(self, metrics: list[dict[str, Any]], times: list[dict[str, Any]]) -> None:
        """Write the lines of all epochs so far: the metrics of each model, and where the time went."""
        for path, rows in ((self.metrics, metrics), (self.times, times)):
            _write(path, "".join(json.dumps(row) + "\n" for row in rows))

    def write_result(self, result: Mapping[str, Any]) -> None:
        _write(self.result, json.dumps(result, indent=2) + "\n")

    # Checkpoints

    def checkpoints(self) -> list[Path]:
        """The newest first."""
        return checkpoint.found(self.checkpoint)

    def newest_checkpoint(self, warn: Callable[[str], None]) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Arrays and state of the newest checkpoint that is not damaged; None if there is none at all."""
        return checkpoint.newest(self.checkpoint, warn)

    def whole_checkpoints(self) -> Iterator[tuple[dict[str, np.ndarray], dict[str, Any]]]:
        """Arrays and state of each checkpoint that is not damaged, the newest first."""
        for path in self.checkpoints():
            try:
                yield checkpoint.read(path)
            except checkpoint.DAMAGED:
                continue

    def recorded_cadences(self) -> list[int] | None:
        """The cadences of the recording, as the newest checkpoint states them; None: it says nothing of them."""
        cadences: list[int] | None = ((checkpoint.header(self.checkpoint) or {}).get("run") or {}).get("cadences")
        return cadences

    def save_checkpoint(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any], *, keep: int) -> None:
        checkpoint.save(self.checkpoint, arrays, state, keep=keep)

    def save_stopped_lane(self, lane: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> str:
        """Keep the last good state of a lane that has stopped; the name of the folder that it is in."""
        name = f"{STOPPED_LANE}{lane}"
        checkpoint.save(self.path / name, arrays, state)
        return name


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process per folder, which is made; the operating system frees the lock of a process that dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        raise RunError(
            f"another process is training in {folder}", "wait for it, or choose another folder with --out"
        ) from None
    except OSError as error:
        remedy = "choose a folder that you may write to with --out"
        raise FileError(f"cannot write to {folder}: {reason(error)}", remedy) from error
    try:
        yield
    finally:
        lock.release()


def _write(path: Path, text: str) -> None:
    with write_whole(path) as file:
        file.write(text.encode())


def _read_json(path: Path) -> Any:
    """What a file holds; None for one that is missing or damaged."""
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
