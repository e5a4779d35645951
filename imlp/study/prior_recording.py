"""The prior's path on record, for lanes that do not fit into memory beside the others.

The prior never looks at a lane, so its weights are the same in every run of a seed. A run that records writes them
after every step at which some lane mixes, and after every epoch; a run that plays reads them instead of training.
One file an epoch, `(moments, parameters)`.
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

FOLDER = "prior-path"  # in the folder of the run that records
PLAYS = "plays.json"  # in the folder of a run that plays: the run that records


class PriorPath:
    """The path of the prior in `run`; `needed` are the numbers of steps after which lanes mix, epochs apart."""

    def __init__(self, run: Path, network: Network, needed: Iterable[int], *, steps: int, dtype: str, plays: bool):
        self.run, self.folder, self.plays = run, run / FOLDER, plays
        self.steps, self.dtype, self.needed = steps, np.dtype(dtype), set(needed)
        self.cadences = self._recorded() or sorted(self.needed)  # a record is finished as it was begun
        self.shapes = network.shapes(dense=False)
        self.size = sum(map(prod, self.shapes.values()))
        self.file: tuple[Path, np.ndarray] | None = None
        self.moments = lru_cache(2)(self._moments)

    def _moments(self, epoch: int) -> dict[int, int]:
        """The steps of the epoch (from 1) whose weights are kept, and where: the last one always."""
        before = epoch * self.steps
        due = [s for s in range(1, self.steps + 1) if any((before + s) % every == 0 for every in self.cadences)]
        return {step: row for row, step in enumerate(sorted({*due, self.steps}))}

    def bytes(self, epochs: int) -> int:
        """The room that a whole path takes."""
        return sum(len(self.moments(epoch)) for epoch in range(epochs)) * self.size * self.dtype.itemsize

    def complete(self, epochs: int) -> bool:
        """Whether every epoch is there, with the steps that these cadences need."""
        recorded = self._recorded()
        enough = recorded is not None and (1 in recorded or self.needed <= set(recorded))
        return enough and all(self._path(epoch).exists() for epoch in range(epochs))

    def begin(self) -> None:
        """Make the folder, so that a run which is stopped at once goes on with recording."""
        make_folder(self.folder)
        with write_whole(self.folder / "cadences.json") as file:
            file.write(json.dumps(self.cadences).encode())

    def _recorded(self) -> list[int] | None:
        """The cadences of the record that is there."""
        try:
            found: list[int] = parse_json((self.folder / "cadences.json").read_bytes())
            return found
        except (OSError, ValueError):
            return None

    def record(self, epoch: int, step: int, parameters: dict[str, np.ndarray]) -> None:
        """Keep the weights after step `step` of the epoch, if they are needed."""
        row = self.moments(epoch).get(step)
        if row is None:
            return
        values = self._open(epoch)
        values[row] = np.concatenate([parameters[name].ravel() for name in self.shapes])
        if step == self.steps:
            self._close(epoch, values)

    def play(self, epoch: int, step: int) -> dict[str, np.ndarray]:
        """The weights after the step; nothing for a step after which no lane mixes."""
        row = self.moments(epoch).get(step)
        if row is None:
            return {}
        path, parameters, start = self._path(epoch), {}, 0
        if self.file is None or self.file[0] != path:
            try:
                self.file = path, np.load(path, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError) as error:
                remedy = "delete the folder of this run and start it anew"
                raise RunError(f"the prior's path is not in {path}: {reason(error)}", remedy) from error
        for name, shape in self.shapes.items():
            parameters[name] = np.array(self.file[1][row, start : start + prod(shape)]).reshape(shape)
            start += prod(shape)
        return parameters

    def train_loss(self, epoch: int) -> float:
        """What the prior's training loss was, by the run that trained it."""
        rows = map(parse_json, (self.run / "metrics.jsonl").read_text().splitlines())
        return next(row["train_loss"] for row in rows if row["epoch"] == epoch + 1 and row["lane"] == "prior")

    def sync(self) -> None:
        """Make what is recorded durable: a checkpoint is about to say that it is there."""
        if self.file is not None and isinstance(self.file[1], np.memmap) and not self.plays:
            self.file[1].flush()

    def _path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch + 1:04d}.npy"

    def _open(self, epoch: int) -> Any:
        """The file of an epoch under way; its first column is NaN where nothing has been written."""
        path, shape = self._path(epoch).with_suffix(".unfinished"), (len(self.moments(epoch)), self.size)
        if self.file is None or self.file[0] != path:
            try:
                if path.exists():
                    allocate(path)
                    values = np.load(path, mmap_mode="r+", allow_pickle=False)
                else:
                    with whole_file(path) as new:
                        values = np.lib.format.open_memmap(new, mode="w+", dtype=self.dtype, shape=shape)
                        allocate(new)
                        values[:, 0] = np.nan
            except (OSError, ValueError) as error:
                raise FileError(f"cannot write {shown(path)}: {reason(error)}", "make room on the disk") from error
            self.file = path, values
        return self.file[1]

    def _close(self, epoch: int, values: Any) -> None:
        """Give the epoch's file its name, if the run was not killed in between and lost some of it."""
        values.flush()
        whole = not np.isnan(values[:, 0]).any()
        self.file = None
        if whole:
            os.replace(self._path(epoch).with_suffix(".unfinished"), self._path(epoch))
