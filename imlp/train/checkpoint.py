"""Checkpoints: one safetensors file each, its JSON header holding the rest; the last two are kept.

While a run is under way, they hold Adam's moments as well; a run that has ended keeps a single one without them.

A file is written whole or not at all, and carries a SHA-256 of all that it holds, so that a damaged one is
noticed and the one before it is taken.
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from imlp.errors import RunError
from imlp.files import make_folder, parse_json, whole_file

Warn = Callable[[str], None]

KEPT = 2
LARGEST = 2**31
NAME = re.compile(r"epoch(\d+)-step(\d+)\.safetensors", re.ASCII)
DAMAGED = (OSError, SafetensorError, ValueError, LookupError, TypeError)  # what reading one raises then


def save(folder: Path, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any], *, keep: int = KEPT) -> Path:
    """Write arrays and state as the newest checkpoint, then delete all but the last `keep`."""
    make_folder(folder)
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    path = folder / f"epoch{state['epoch']:05d}-step{state['step']:06d}.safetensors"
    text = json.dumps(dict(state))
    with whole_file(path) as partial:
        try:
            save_file(contiguous, partial, metadata={"state": text, "sha256": _digest(contiguous, text)})
        except SafetensorError as error:
            raise OSError(str(error)) from error
    for old in saved_files(folder)[keep:]:
        old.unlink(missing_ok=True)
    return path


def saved_files(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the newest first."""
    files = (path for path in folder.glob("epoch*-step*.safetensors") if path.is_file())  # no pipe, no device
    numbered = [(int(match[1]), int(match[2]), path) for path in files if (match := NAME.fullmatch(path.name))]
    return [path for *_, path in sorted(numbered, reverse=True)]


def newest(folder: Path, warn: Warn = lambda text: None) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Arrays and state of the newest checkpoint that is whole, or None if there is none at all."""
    for path in saved_files(folder):
        try:
            return read(path)
        except DAMAGED as error:
            warn(f"the checkpoint {path} is damaged ({error}); going back to the one before it")
    if saved_files(folder):
        raise RunError(f"no checkpoint in {folder} is whole", "start the run again: with --again, or in another folder")
    return None


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and state of one checkpoint; one that is damaged raises."""
    with safe_open(path, framework="numpy") as file:
        header = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        if _digest(arrays, header["state"]) != header["sha256"]:
            raise ValueError("it does not have the checksum that was written")
        return arrays, state_of(file)


def state_of(file: Any) -> dict[str, Any]:
    """The state in the header of an open file; one of `DAMAGED` for what no run writes."""
    state: dict[str, Any] = parse_json((file.metadata() or {})["state"])
    if not isinstance(state, dict):
        raise ValueError("its state is not an object")

    def check(name: str, fits: bool) -> None:
        if not fits:
            raise ValueError(f"its {name} is {state[name]!r:.40}")

    image, active = state["image"], state["active"]
    check("image", _are_numbers(image, int, 1) and len(image) == 3)
    check("active", _are_numbers(active, int, 0) and len(set(active)) == len(active))
    for name, least in (("classes", 1), ("epoch", 0), ("step", 0)):
        check(name, _are_numbers([state[name]], int, least))
    for name in ("rows", "stopped", "times"):
        check(name, isinstance(state[name], list) and all(isinstance(row, dict) for row in state[name]))
    for name, smallest in (("mean", -LARGEST), ("std", sys.float_info.min)):
        check(name, _are_numbers(state[name], int | float, smallest) and len(state[name]) == image[0])
    return state


def _are_numbers(values: Any, kind: Any, least: float) -> bool:
    """Whether it is a list of numbers, none of them below `least` or more than an array's side can be."""
    return isinstance(values, list) and all(
        isinstance(n, kind) and not isinstance(n, bool) and least <= n < LARGEST for n in values
    )


def _digest(arrays: Mapping[str, np.ndarray], state: str) -> str:
    sha = hashlib.sha256(state.encode())
    for name in sorted(arrays):
        sha.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        sha.update(arrays[name].reshape(-1).view(np.uint8).data)
    return sha.hexdigest()
