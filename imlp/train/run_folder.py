"""A run's folder: what its files are called, what each one is for, and how they are written, checked and deleted.

No other module names these files. `ENTRIES` is the one list of what belongs to a run; everything else in the folder is
the user's, and is never touched.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from imlp.errors import FileError, ImlpError, OutsideError, RunError
from imlp.files import check_new, parse_json, read_bytes, reason, write_json, write_whole
from imlp.plugins import named_before
from imlp.train import checkpoint
from imlp.train.config import Config, differences, read, recorded, to_toml

CONFIG, ENVIRONMENT, METRICS, TIMES, RESULT = "config.toml", "env.json", "metrics.jsonl", "times.jsonl", "result.json"
CHECKPOINT = "checkpoint"
NETWORK = "network.py"  # the text of a network from outside the package; only run if the user names it
COUPLING = "coupling"  # .py: the same of a coupling; a second one is coupling2.py
PICTURE, TENSORBOARD, LOG, LOCK = "run.png", "tensorboard", "error.log", ".lock"
FORMATS = {"safetensors": ".safetensors", "npz": ".npz", "torch": ".pt2", "onnx": ".onnx"}  # of exported networks
ANOTHER_FOLDER = "choose another folder with --out"


@dataclass(frozen=True)
class Entry:
    """A file of a run, or a folder with what it `holds`: whole names, in which `#` is a number and `*` anything."""

    name: str
    holds: tuple[str, ...] = ()
    needed: bool = False  # to resume: a worker on another machine fetches it first
    archived: bool = False  # it is small, and kept with the results on record


ENTRIES = (  # in the order in which they are deleted: whatever is left at any moment is a run, or nothing
    Entry(RESULT, archived=True),
    Entry(CHECKPOINT, ("epoch#-step#.safetensors",), needed=True),
    Entry(ENVIRONMENT, needed=True, archived=True),
    Entry(METRICS, needed=True, archived=True),
    Entry(TIMES, needed=True, archived=True),
    Entry(PICTURE),
    Entry("line#.png"),
    Entry(TENSORBOARD, ("events.out.tfevents.*",)),
    *(Entry(f"{model}{suffix}") for model in ("lane#", "prior") for suffix in FORMATS.values()),
    Entry(LOG),
    Entry(NETWORK, needed=True, archived=True),
    Entry(f"{COUPLING}.py", needed=True, archived=True),
    Entry(f"{COUPLING}#.py", needed=True, archived=True),
    Entry(CONFIG, needed=True, archived=True),
)


class ForeignError(RunError):
    """A `config.toml` that is not that of a run."""


class RunFolder:
    """The folder of one run, which need not exist yet."""

    def __init__(self, path: Path):
        self.path = path
        self.config, self.environment = path / CONFIG, path / ENVIRONMENT
        self.metrics, self.times, self.result = path / METRICS, path / TIMES, path / RESULT
        self.checkpoint, self.log, self.lock = path / CHECKPOINT, path / LOG, path / LOCK

    @staticmethod
    def find(folder: Path, where: str = "**") -> list[Path]:
        """The folders of runs in a folder: at any depth, or where the pattern says."""
        return sorted(path.parent for path in folder.glob(f"{where}/{CONFIG}"))

    # What is in it

    def checkpoints(self) -> list[Path]:
        """The newest first."""
        return checkpoint.saved_files(self.checkpoint)

    def read_config(self) -> Config:
        """The settings of the run; a `ForeignError` where the file is not that of one."""
        try:
            return recorded(read(self.config))
        except ImlpError as error:
            what = "" if isinstance(error, OutsideError) else " is not that of a run"
            raise ForeignError(f"{self.config}{what}: {error.problem}", error.remedy) from error

    def result_of(self, config: Config, data_digest: str) -> dict[str, Any] | None:
        """This run's result, if it finished on the same data."""
        try:
            result = parse_json(read_bytes(self.result))
            same = (result["identity"], result["data_digest"]) == (config.identity, data_digest)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return result if same and self.config.exists() else None

    def needed_to_resume(self) -> list[str]:
        """The files that a worker has to fetch in order to resume the run elsewhere, as paths within the folder."""
        files = self._own_files((entry for entry in ENTRIES if entry.needed), partial=False)
        return [path.relative_to(self.path).as_posix() for path in files]

    @staticmethod
    def sending_order(name: str) -> tuple[Any, ...]:
        """A key to sort files by that are sent one after the other, so that what has arrived is a run at any moment.

        >>> sorted(["checkpoint/a", "result.json", "metrics.jsonl", "config.toml"], key=RunFolder.sending_order)
        ['config.toml', 'checkpoint/a', 'metrics.jsonl', 'result.json']
        """
        identifies = name in (CONFIG, ENVIRONMENT, NETWORK)  # checkpoints are refused without these
        return name == RESULT, not identifies, "/" not in name, name

    def archived(self) -> list[Path]:
        """The small files that are kept with the results on record."""
        return self._own_files((entry for entry in ENTRIES if entry.archived), partial=False)

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
                raise RunError(f"{self.path} holds another run ({'; '.join(changed)})", ANOTHER_FOLDER)
        elif not checkpoints:
            check_new(self.result, self.environment, self.metrics, self.times, remedy=ANOTHER_FOLDER)
        if checkpoints and not resume:
            raise RunError(f"there is a run in {self.path}", "resume it: --resume; or start it again: --again")

    def check_checkpoint(self, written_by: Any, config: Config, extends: Callable[[Config], bool]) -> None:
        """Refuse a folder whose files are not those that its checkpoint was written beside."""
        remedy = "put it back as it was, or choose another folder with --out"
        if not self.config.exists():
            raise RunError(f"{self.config} is missing, which says what the checkpoints beside it are of", remedy)
        if not isinstance(written_by, dict) or not isinstance(written_by.get("config"), dict):
            problem = f"the checkpoints of {self.path} do not say which run they are of"
            raise RunError(problem, "train it again: --again")
        there = recorded(written_by["config"])
        changed = differences(there, config)
        if changed and not extends(there):
            raise RunError(f"{self.config} is not that of the checkpoints beside it ({'; '.join(changed)})", remedy)

    # Deleting

    def delete(self) -> None:
        """Delete the run, and nothing that does not belong to one; the lock is held."""
        if self.config.exists():
            self.read_config()  # refuses a file that only has the name
        elif {*self.path.iterdir()} - {self.lock, self.log, *self._own_files(partial=True)}:
            raise RunError(f"{self.path} is not a run's folder", "--again deletes runs only; choose another --out")
        try:
            for path in self._own_files():
                path.unlink()
            for entry in (entry for entry in ENTRIES if entry.holds):
                for path in _named(self.path, (entry.name,)):
                    if not any(path.iterdir()):
                        path.rmdir()
        except OSError as error:
            raise FileError(f"cannot delete {error.filename}: {reason(error)}", "delete it by hand") from error

    def delete_partial_files(self) -> None:
        """Delete what a process has left that was killed while it wrote; the lock is held."""
        for path in self._own_files(partial=True):
            path.unlink(missing_ok=True)

    def _own_files(self, entries: Iterable[Entry] = ENTRIES, *, partial: bool | None = None) -> list[Path]:
        """Every file of the run by the names in `entries`, in that order; links are named, and not followed.

        `partial` selects those that a process has left that was killed while it wrote, or (False) the others.
        """
        paths = []
        for entry in entries:
            for path in _named(self.path, (entry.name,)):
                is_folder = path.is_dir() and not path.is_symlink()
                paths += _named(path, entry.holds) if is_folder else [path]
        return [path for path in paths if partial in (None, path.suffix == ".part")]

    def refuse_links(self) -> None:
        """Refuse a folder, perhaps somebody else's, whose files are links: what is written goes nowhere else."""
        refuse_links(self._own_files())

    def delete_checkpoints(self) -> None:
        for path in self._own_files():
            if path.parent == self.checkpoint:
                path.unlink(missing_ok=True)
        with suppress(OSError):  # there is something of the user's in it, or no such folder
            self.checkpoint.rmdir()

    # Writing

    def begin(self, config: Config, environment: Mapping[str, Any]) -> None:
        """Write what says which run this is."""
        if config.source is not None and (outside := named_before(config.network, config.source)).in_file:
            _write_copy(self.path / NETWORK, outside.text)
        rules = [lane.rule.outside for lane in config.lanes]
        texts = dict.fromkeys(outside.text for outside in rules if outside is not None and outside.in_file)
        for n, text in enumerate(texts, start=1):
            _write_copy(self.path / f"{COUPLING}{n if n > 1 else ''}.py", text)
        self.write_config(config)
        write_json(self.environment, environment)

    def write_config(self, config: Config) -> None:
        _write(self.config, to_toml(config))

    def write_epochs(self, metrics: list[dict[str, Any]], times: list[dict[str, Any]]) -> None:
        """Write the lines of all epochs so far: the metrics of each model, and where the time went."""
        for path, rows in ((self.metrics, metrics), (self.times, times)):
            _write(path, "".join(json.dumps(row) + "\n" for row in rows))

    def write_result(self, result: Mapping[str, Any]) -> None:
        write_json(self.result, result)


def refuse_links(paths: Iterable[Path]) -> None:
    """Refuse to write through symbolic links that the user has not named."""
    for path in paths:
        if path.is_symlink():
            raise FileError(f"{path} is a symbolic link, which is not followed", "delete it, or name another --out")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process per folder, which is made; the operating system frees the lock of a process that dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links([folder / LOCK])
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        remedy = "wait for it, or choose another folder with --out"
        raise RunError(f"another process is training in {folder}", remedy) from None
    except OSError as error:
        remedy = "choose a folder that you may write to with --out"
        raise FileError(f"cannot write to {folder}: {reason(error)}", remedy) from error
    try:
        yield
    finally:
        lock.release()


def _named(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """What a folder has by these names of an `Entry`, and what a process has left that was killed while it wrote it."""
    pattern = "|".join(re.escape(name).replace(r"\#", r"\d+").replace(r"\*", ".+") for name in names)
    whole = re.compile(rf"(?:{pattern})|\.(?:{pattern})(?:\.\d+)?\.part", re.ASCII)
    return sorted(path for path in folder.glob("*") if names and whole.fullmatch(path.name))


def _write_copy(path: Path, text: str) -> None:
    """Write the text of code from outside; the user may train beside that file, or beside another of this name."""
    if path.exists() and read_bytes(path) != text.encode():
        check_new(path, remedy=ANOTHER_FOLDER)
    _write(path, text)


def _write(path: Path, text: str) -> None:
    with write_whole(path) as file:
        file.write(text.encode())
