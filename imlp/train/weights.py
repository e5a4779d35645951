"""The matrices that trained networks compute with: the one place that says what a lane's W is made of.

Only the lanes that are asked for are read from a checkpoint.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from imlp.couplings import Branch
from imlp.model import BUFFER
from imlp.networks import Layer
from imlp.train import checkpoint
from imlp.train.config import Config


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


def prior_matrix(layer: Layer, own: Mapping[str, np.ndarray]) -> np.ndarray:
    """`W_P = matrix(w)` as a dense array in float64; `own` has each part of `w` by its name."""
    from imlp.reference import matrix

    W_P: Any = matrix(layer.spec, layer.spec.unnamed({part: w.astype(np.float64) for part, w in own.items()}))
    dense: np.ndarray = W_P.toarray()
    return dense


class SavedWeights:
    """The matrices of a checkpoint, of the prior and of each lane that is in it."""

    def __init__(self, config: Config, file: Any):
        self.config, self.file = config, file
        state = checkpoint.state_of(file)
        self.epoch, self.lanes = state["epoch"], state["active"]
        self.network = config.make_network(tuple(state["image"]), state["classes"])

    def of_lane(self, lane: int, layer: Layer, rows: slice) -> np.ndarray:
        """Rows of the matrix of one of `lanes`."""
        index, branch = self.lanes.index(lane), self.config.lanes[lane].branch(self.network)
        parts = ["weight"] if branch is None else branch.coupling.parts(layer.spec)
        names = {f"{layer.name}.{part}" for part in parts if f"lanes/{layer.name}.{part}" in self.file.keys()}  # noqa: SIM118
        numbers = {name: self.file.get_slice(f"lanes/{name}")[index : index + 1][0] for name in names}
        return made_of(layer, numbers, branch)[0][rows]

    def of_prior(self, layer: Layer, rows: slice) -> np.ndarray:
        """Rows of the matrix of the prior, which was trained only where a lane needs it."""
        own, there = {}, set(self.file.keys())
        for part, parameter in layer.spec.parameters.items():
            name = f"{layer.name}.{part}"  # that of a pooling is not trained
            saved = self.file.get_tensor(f"prior/{name}" if f"prior/{name}" in there else f"prior/{BUFFER}{name}")
            own[part] = saved.reshape(parameter.shape)  # torch has another for convolutions of one dimension
        return prior_matrix(layer, own)[rows]


@contextmanager
def open_weights(path: Path, config: Config) -> Iterator[SavedWeights]:
    """The weights in a checkpoint; one that is damaged raises one of `checkpoint.DAMAGED`, here or when it is read."""
    with safe_open(path, framework="numpy") as file:
        yield SavedWeights(config, file)
