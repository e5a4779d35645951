"""The matrices that trained networks compute with: the one place that says what a lane's W is made of.

Only the rows that are asked for are read from a checkpoint, so one lane of many costs little.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from imlp.couplings import Branch
from imlp.files import parse_json
from imlp.networks import Layer
from imlp.train.config import Config

EVERY_ROW = slice(None)


def made_of(layer: Layer, own: Mapping[str, np.ndarray], branch: Branch | None) -> tuple[np.ndarray, np.ndarray | None]:
    """`W` and `b` that a lane's layer computes with, where `own` are the lane's numbers: `U`, or made of parts."""
    W, b = own[f"{layer.name}.weight"], own.get(f"{layer.name}.bias")
    if branch is None or layer.name not in branch.layers:
        return W, b
    from imlp.reference import layer_verbs  # it takes SciPy

    names = {part: f"{layer.name}.{part}" for part in branch.coupling.parts(layer.spec)}
    parts = {part: own[name].astype(np.float64) for part, name in names.items() if name in own}
    made_W, made_b = branch.coupling.call("made", layer_verbs, layer.spec, parts)
    return made_W.astype(W.dtype), None if made_b is None else made_b.astype(W.dtype)


def prior_matrix(layer: Layer, own: Mapping[str, np.ndarray], rows: slice = EVERY_ROW) -> np.ndarray:
    """Rows of `W_P = matrix(w)` as a dense array; `own` has each part of `w` by its name."""
    from imlp.reference import matrix  # it takes SciPy

    W_P: Any = matrix(layer.spec, layer.spec.unnamed(dict(own)))
    dense: np.ndarray = W_P[rows].toarray()
    return dense


class SavedWeights:
    """The matrices of a checkpoint, of the prior and of each lane that is in it."""

    def __init__(self, config: Config, file: Any):
        self.config, self.file = config, file
        state = parse_json((file.metadata() or {})["state"])
        self.epoch, self.lanes = int(state["epoch"]), [int(lane) for lane in state["active"]]
        self.network = config.make_network(tuple(state["image"]), state["classes"])

    def of_lane(self, lane: int, layer: Layer, rows: slice) -> np.ndarray:
        """Rows of the matrix of one of `lanes`."""
        index, branch = self.lanes.index(lane), self.config.lanes[lane].branch(self.network)
        key = f"lanes/{layer.name}.weight"  # (lanes, M_out, M_in)
        if branch is None or layer.name not in branch.layers:
            alone: np.ndarray = self.file.get_slice(key)[index : index + 1, rows][0]
            return alone
        names = [f"{layer.name}.{part}" for part in branch.coupling.parts(layer.spec)]
        there = set(self.file.keys())
        own = {name: self.file.get_tensor(f"lanes/{name}")[index] for name in names if f"lanes/{name}" in there}
        return made_of(layer, own, branch)[0][rows]

    def of_prior(self, layer: Layer, rows: slice) -> np.ndarray:
        """Rows of the matrix of the prior, which was trained only where a lane needs it."""
        own = {part: self.file.get_tensor(f"prior/{layer.name}.{part}") for part in layer.spec.parameters}
        return prior_matrix(layer, {part: array.astype(np.float64) for part, array in own.items()}, rows)


@contextmanager
def open_weights(path: Path, config: Config) -> Iterator[SavedWeights]:
    """The weights in a checkpoint; one that is damaged raises one of `checkpoint.DAMAGED`, here or when it is read."""
    with safe_open(path, framework="numpy") as file:
        yield SavedWeights(config, file)
