"""Records and replays the prior's weights, so that lanes too many for memory need it trained only once.

The prior never looks at a lane, so its weights are the same in every run of a seed. A run that records writes them
after every step at which some lane is interpolated, and after every epoch; a run that replays reads them instead of
training. One file per epoch, `(steps kept, parameters)`.
"""

import json
import os
from collections.abc import Iterable
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from imlp.errors import FileError, RunError
from imlp.files import allocate, make_folder, parse_json, reason, shown, whole_file, write_whole
from imlp.networks import Network
from imlp.train.run_folder import RunFolder

CADENCES = "cadences.json"  # in the recording's folder: the numbers of steps after which the prior is kept


class PriorRecording:
    """The recording of the prior in `run`; `needed` are the numbers of steps after which lanes are interpolated."""

    def __init__(self, run: Path, network: Network, needed: Iterable[int], *, steps: int, dtype: str, replays: bool):
        self.run, self.folder, self.replays = run, RunFolder(run).recording, replays
        self.steps, self.dtype, self.needed = steps, np.dtype(dtype), set(needed)
        self.recorded = self._recorded()
        self.cadences = sorted(self.needed) if self.recorded is None else self.recorded  # finished as it was begun
        self.shapes = network.shapes(dense=False) | network.buffers(dense=False)
        self.size = sum(map(prod, self.shapes.values()))
        self.file: tuple[Path, np.ndarray] | None = None
        self.kept_steps = lru_cache(2)(self._kept_steps)

    @property
    def replayed_run(self) -> str | None:
        """The name of the run whose prior is replayed; None: the prior is trained, and recorded."""
        return self.run.name if self.replays else None

    def _kept_steps(self, epoch: int) -> dict[int, int]:
        """The steps of the epoch (from 1) whose weights are kept, and in which row: the last one always."""
        before = epoch * self.steps
        due = [s for s in range(1, self.steps + 1) if any((before + s) % every == 0 for every in self.cadences)]
        return {step: row for row, step in enumerate(sorted({*due, self.steps}))}

    def is_kept(self, epoch: int, step: int) -> bool:
        """Whether the weights after this step of the epoch (from 1) are part of the recording."""
        return step in self.kept_steps(epoch)

    def bytes(self, epochs: int) -> int:
        """The room that the whole recording takes."""
        return sum(len(self.kept_steps(epoch)) for epoch in range(epochs)) * self.size * self.dtype.itemsize

    def complete(self, epochs: int) -> bool:
        """Whether every epoch is there, with the steps that these cadences need."""
        enough = self.recorded is not None and (1 in self.recorded or self.needed <= set(self.recorded))
        return enough and all(self._path(epoch).exists() for epoch in range(epochs))

    def begin(self) -> None:
        """Make the folder, so that a run which is stopped at once continues to record when it is resumed."""
        make_folder(self.folder)
        with write_whole(self.folder / CADENCES) as file:
            file.write(json.dumps(self.cadences).encode())

    def _recorded(self) -> list[int] | None:
        """The cadences of the recording that is there; None: there is none."""
        if not self.folder.is_dir():
            return None
        path = self.folder / CADENCES
        try:
            found = parse_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {path}: {reason(error)}", self._remedy) from error
        if not isinstance(found, list) or not all(type(every) is int and every >= 1 for every in found):
            raise RunError(f"{path} holds {found!r:.40}, which is no list of numbers of steps", self._remedy)
        return sorted(set(found))

    @property
    def _remedy(self) -> str:
        return f"put it back as it was, or delete {self.folder}: the prior is then trained again"

    def check(self, cadences: list[int] | None) -> None:
        """Refuse a recording whose cadences are not those that a checkpoint states; None: it states none."""
        if cadences is not None and cadences != self.cadences:
            raise RunError(f"{self.folder / CADENCES} holds {self.cadences}, but was {cadences}", self._remedy)

    def record(self, epoch: int, step: int, parameters: dict[str, np.ndarray]) -> None:
        """Keep the weights after this step of the epoch, if they are needed."""
        row = self.kept_steps(epoch).get(step)
        if row is None:
            return
        values = self._open(epoch)
        values[row] = np.concatenate([parameters[name].ravel() for name in self.shapes])
        if step == self.steps:
            self._close(epoch, values)

    def replay(self, epoch: int, step: int) -> dict[str, np.ndarray]:
        """The weights after this step; nothing for a step after which no lane is interpolated."""
        row = self.kept_steps(epoch).get(step)
        if row is None:
            return {}
        path, parameters, start = self._path(epoch), {}, 0
        if self.file is None or self.file[0] != path:
            try:
                self.file = path, self._fitting(np.load(path, mmap_mode="r", allow_pickle=False), epoch)
            except (OSError, ValueError) as error:
                problem = f"{path} does not hold the prior of epoch {epoch + 1}: {reason(error)}"
                raise RunError(problem, f"delete {self.folder}: the prior is then trained again") from error
        for name, shape in self.shapes.items():
            parameters[name] = np.array(self.file[1][row, start : start + prod(shape)]).reshape(shape)
            start += prod(shape)
        return parameters

    def train_loss(self, epoch: int) -> float:
        """The prior's training loss, by the run that trained it."""
        path = RunFolder(self.run).metrics
        try:
            rows = map(parse_json, path.read_text().splitlines())
            return next(row["train_loss"] for row in rows if row["epoch"] == epoch + 1 and row["lane"] == "prior")
        except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
            problem = f"{path} does not say how well the prior was trained in epoch {epoch + 1}"
            raise RunError(problem, f"delete {self.folder}: the prior is then trained again") from error

    def sync(self) -> None:
        """Make what is recorded durable: a checkpoint is about to state that it is there."""
        if self.file is not None and isinstance(self.file[1], np.memmap) and not self.replays:
            self.file[1].flush()

    def _path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch + 1:04d}.npy"

    def _open(self, epoch: int) -> Any:
        """The file of an epoch under way; its first column is NaN where nothing has been written."""
        path, shape = self._path(epoch).with_suffix(".unfinished"), (len(self.kept_steps(epoch)), self.size)
        if self.file is None or self.file[0] != path:
            try:
                values = self._begun(path, epoch)
                if values is None:
                    with whole_file(path) as new:
                        values = np.lib.format.open_memmap(new, mode="w+", dtype=self.dtype, shape=shape)
                        allocate(new)
                        values[:, 0] = np.nan
            except (OSError, ValueError) as error:
                raise FileError(f"cannot write {shown(path)}: {reason(error)}", "make room on the disk") from error
            self.file = path, values
        return self.file[1]

    def _begun(self, path: Path, epoch: int) -> Any:
        """The file that an earlier process began; None: there is none, or the process was killed while it made it."""
        try:
            return self._fitting(np.load(path, mmap_mode="r+", allow_pickle=False), epoch)
        except (FileNotFoundError, EOFError, ValueError):
            return None

    def _fitting(self, values: Any, epoch: int) -> Any:
        """The values of an epoch, if there are as many as it takes."""
        wanted = (len(self.kept_steps(epoch)), self.size)
        if values.shape != wanted or values.dtype != self.dtype:
            raise ValueError(f"it has shape {values.shape} and type {values.dtype}, not {wanted} and {self.dtype}")
        return values

    def _close(self, epoch: int, values: Any) -> None:
        """Give the epoch's file its name, if the run was not killed in between and lost some of it."""
        values.flush()
        whole = not np.isnan(values[:, 0]).any()
        self.file = None
        if whole:
            os.replace(self._path(epoch).with_suffix(".unfinished"), self._path(epoch))
