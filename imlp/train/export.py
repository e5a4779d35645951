"""Trained networks read from their checkpoints: what a matrix is made of, and exports for others.

An export is plain arrays, or a plain `torch.nn.Module` that does not need this package. It takes images as
`(N, channels, height, width)`, black 0 and white 1: the standardisation of the training data is folded into the first
layer, `W (x - mean) / std + b = (W / std) x + (b - W (mean / std))`. A PyTorch model of others is given a module before
it that standardises.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy
from safetensors import safe_open

from imlp.backend import backend as get_backend
from imlp.couplings import Branch, class_of
from imlp.errors import ArrayError, BackendError, RunError, install_hint
from imlp.files import check_path, write_whole
from imlp.model import BUFFER, Model, loaded
from imlp.networks import Layer, Network, walk
from imlp.plugins import imported
from imlp.spec import Shape
from imlp.train import checkpoint
from imlp.train.config import Config
from imlp.train.run_folder import RunFolder
from imlp.train.state import Arrays, part

if TYPE_CHECKING:
    import torch

FORGED = "it was not written by this run: put it back as it was, or train again"


def parameters(
    run: str | Path, lane: int | str = 0, network: str | None = None, coupling: str | None = None
) -> tuple[Network, Arrays]:
    """Network and parameters of a lane (or of the "prior") of a run, as its newest checkpoint has them.

    A lane's first layer takes images from 0 to 1. The prior's is left as it is, for standardised images, with `mean`
    and `std` beside it: a convolution pads with zeros, and zero is the mean only after standardising. So is a network
    whose first operation is not a layer.
    """
    _, state, model = trained(run, lane, network, coupling)
    made, statistics = model.network, {name: np.array(state[name]) for name in ("mean", "std")}
    if not model.dense:
        return made, {**model.parameters, **model.buffers, **statistics}
    numbers = as_one(model)
    first = made.operations(dense=True)[0]
    if made.is_module or not isinstance(first, Layer):  # what comes first in a PyTorch model is not known
        return made, {**numbers, **statistics}
    mean, std = (np.repeat(values, made.image[1] * made.image[2]) for values in statistics.values())  # (M_in,)
    W, b = numbers[f"{first.name}.weight"].astype(np.float64), numbers[f"{first.name}.bias"]
    numbers[f"{first.name}.weight"] = (W / std).astype(b.dtype)
    numbers[f"{first.name}.bias"] = (b - W @ (mean / std)).astype(b.dtype)
    return made, numbers


def trained(
    run: str | Path, lane: int | str, network: str | None = None, coupling: str | None = None
) -> tuple[Config, dict[str, Any], Model]:
    """A run's settings, what its newest checkpoint says beside the arrays, and a lane (or the "prior") as arrays."""
    folder = check_path(run)
    files = RunFolder(folder)
    if network is not None:
        imported(network)
    if coupling is not None:
        class_of(coupling)
    if not files.config.exists():
        raise RunError(f"{folder} is not a run's folder", "name the folder of a run of train")
    config = files.read_config()
    newest = checkpoint.newest(files.checkpoint)
    if newest is None:
        raise RunError(f"there is no checkpoint in {folder}", "name the folder of a run of train")
    arrays, state = newest
    made, active = config.make_network(tuple(state["image"]), state["classes"]), state["active"]
    if max(active, default=-1) >= len(config.lanes):
        raise RunError(f"the checkpoint of {folder} has lane {max(active)}, and the run {len(config.lanes)}", FORGED)
    models = [*active, *(["prior"] if config.needs_prior else [])]
    if lane not in models:
        known = ", ".join(map(str, models))
        raise RunError(f"{folder} has no trained lane {lane!r}", f"it has {known or 'none: all have stopped'}")
    try:
        model = _model(config, made, arrays, None if lane == "prior" else active)
    except ArrayError as error:  # anybody can compute a checksum
        raise RunError(f"the checkpoint of {folder} is not of {error.problem}", FORGED) from error
    return config, state, model if lane == "prior" else model.lane(active.index(lane))


def _model(config: Config, network: Network, arrays: Arrays, lanes: list[int] | None) -> Model:
    """All lanes of a checkpoint, or its prior (None); an `ArrayError` for arrays that are not those of the network."""
    branches = [config.lanes[lane].branch(network) for lane in lanes or ()]
    numbers = part(arrays, "prior/" if lanes is None else "lanes/")
    model = loaded(network, numbers, dense=lanes is not None, convert=np.asarray, branches=branches)
    for name, array in model.parameters.items():
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            problem = f"{network.name}: array {name} is of {array.dtype}, or not finite"
            raise ArrayError(problem, "give floating-point numbers")
    return model


def as_one(lane: Model) -> Arrays:
    """The numbers of a lane; layers that are made of parts as the matrices that they are."""
    network, branch = lane.network, lane.branches[0] if lane.branches else None
    numbers = {name: lane.parameters[name] for name in network.shapes(dense=True)} | lane.buffers
    for layer in branch.layers if branch else ():
        W, b = made_of(network.layer(layer), lane.parameters, branch)
        numbers |= {f"{layer}.weight": W} if b is None else {f"{layer}.weight": W, f"{layer}.bias": b}
    return numbers


def made_of(layer: Layer, numbers: Arrays, branch: Branch | None) -> tuple[np.ndarray, np.ndarray | None]:
    """`W` and `b` that a lane's layer computes with, where `numbers` are the lane's: `U`, or made of parts."""
    W, b = numbers[f"{layer.name}.weight"], numbers.get(f"{layer.name}.bias")
    if branch is None or layer.name not in branch.layers:
        return W, b
    from imlp.reference import layer_verbs  # it takes SciPy

    names = {part: f"{layer.name}.{part}" for part in branch.coupling.parts(layer.spec)}
    parts = {part: numbers[name].astype(np.float64) for part, name in names.items() if name in numbers}
    made_W, made_b = branch.coupling.call("made", layer_verbs, layer.spec, parts)
    return made_W.astype(W.dtype), None if made_b is None else made_b.astype(W.dtype)


def prior_matrix(layer: Layer, weights: Arrays) -> np.ndarray:
    """`W_P = matrix(w)` as a dense array in float64; `weights` has each part of `w` by its name."""
    from imlp.reference import matrix

    small = layer.spec.unnamed({part: w.astype(np.float64) for part, w in weights.items()})
    return matrix(layer.spec, small, layout="dense")


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
        weights, there = {}, set(self.file.keys())
        for number, parameter in layer.spec.parameters.items():
            name = f"{layer.name}.{number}"  # that of a pooling is not trained
            saved = self.file.get_tensor(f"prior/{name}" if f"prior/{name}" in there else f"prior/{BUFFER}{name}")
            weights[number] = saved.reshape(parameter.shape)  # torch has another for convolutions of one dimension
        return prior_matrix(layer, weights)[rows]


@contextmanager
def open_weights(path: Path, config: Config) -> Iterator[SavedWeights]:
    """The weights in a checkpoint; one that is damaged raises one of `checkpoint.DAMAGED`, here or when it is read."""
    with safe_open(path, framework="numpy") as file:
        yield SavedWeights(config, file)


def load(
    run: str | Path, lane: int | str = 0, network: str | None = None, coupling: str | None = None
) -> "torch.nn.Module":
    """A trained lane, or the "prior", as a plain `torch.nn.Module`: images from 0 to 1 in, logits out.

    It is an MLP of `Linear` layers, of which the prior's hold its matrices; of a PyTorch model it is that model, as a
    lane with `imlp.nn.Dense` layers. `network` names the code of a network from outside the package (`FILE.py:NAME`),
    which is only run if it is named, and so does `coupling`.
    """
    return _module(*parameters(run, lane, network, coupling), dense=lane != "prior")


def _module(network: Any, numbers: Arrays, *, dense: bool) -> "torch.nn.Module":
    get_backend("accel")  # it names what is missing
    if network.is_module:
        return network.trained(numbers, dense=dense)
    from imlp.train.modules import trained_module

    operations = network.operations(dense=dense)
    if not dense:  # the matrix and the repeated bias of each layer instead of its small ones
        from imlp.reference import expand_bias

        numbers, dtype = dict(numbers), numbers["head.bias"].dtype
        for layer in (leaf for leaf in walk(operations) if isinstance(leaf, Layer)):
            W = prior_matrix(layer, {part: numbers.pop(f"{layer.name}.{part}") for part in layer.spec.parameters})
            b = expand_bias(layer.spec, numbers.get(f"{layer.name}.bias"))
            numbers |= {f"{layer.name}.weight": W.astype(dtype), f"{layer.name}.bias": b.astype(dtype)}
    return trained_module(operations, numbers)


def write(
    run: str | Path,
    path: Path,
    lane: int | str,
    format: str,
    network: str | None = None,
    coupling: str | None = None,
) -> None:
    """Write a lane, whole or not at all."""
    made, numbers = parameters(run, lane, network, coupling)
    contiguous = {name: np.asarray(array, order="C") for name, array in numbers.items()}
    content = io.BytesIO()
    if format == "npz":
        np.savez(content, allow_pickle=False, **contiguous)
    elif format == "safetensors":
        content.write(safetensors.numpy.save(contiguous, metadata={"network": made.name, "image": str(made.image)}))
    else:
        _write_program(_module(made, numbers, dense=lane != "prior"), made.image, format, content)
    with write_whole(path) as file:  # from memory: a writer that itself meets a full disk may end the whole process
        file.write(content.getbuffer())


def _write_program(module: "torch.nn.Module", image: Shape, format: str, content: io.BytesIO) -> None:
    """As a program of torch or of ONNX, for batches of any size."""
    import torch

    example = torch.zeros(2, *image, dtype=next(module.parameters()).dtype)
    batch = {0: torch.export.Dim("batch")}
    if format == "torch":
        torch.export.save(torch.export.export(module, (example,), dynamic_shapes=(batch,)), content)
        return
    try:
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise BackendError("ONNX needs onnx and onnxscript", install_hint("onnx")) from error
    program = torch.onnx.export(
        module.float(), (example.float(),), dynamo=True, input_names=["images"], output_names=["logits"],
        dynamic_shapes=(batch,), verbose=False,
    )  # fmt: skip
    assert program is not None
    content.write(program.model_proto.SerializeToString())
