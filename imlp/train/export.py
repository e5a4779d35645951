"""A trained network for others: plain arrays, or a plain `torch.nn.Module` that does not need this package.

What comes out takes images as `(N, channels, height, width)`, black 0 and white 1: the standardisation of the training
data is folded into the first layer, `W (x - mean) / std + b = (W / std) x + (b - W (mean / std))`. A PyTorch model of
others is given a module before it that standardises.
"""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy

from imlp.couplings import Branch, class_of
from imlp.errors import BackendError, ConfigError, ImlpError, RunError, install_hint
from imlp.files import check_path, write_whole
from imlp.model import BUFFER, STATE, shapes_of
from imlp.networks import Activation, Layer, Mean, Network, Norm, Operation, Residual, walk
from imlp.plugins import imported
from imlp.spec import Shape
from imlp.train.config import Config
from imlp.train.run_folder import RunFolder
from imlp.train.weights import made_of

if TYPE_CHECKING:
    import torch


FORGED = "it was not written by this run: put it back as it was, or train again"


def parameters(
    run: str | Path, lane: int | str = 0, network: str | None = None, coupling: str | None = None
) -> tuple[Network, dict[str, np.ndarray]]:
    """Network and parameters of a lane (or of the "prior") of a run, as its newest checkpoint has them.

    A lane's first layer takes images from 0 to 1. The prior's is left as it is, for standardised images, with `mean`
    and `std` beside it: a convolution pads with zeros, and zero is the mean only after standardising. So is a network
    whose first operation is not a layer.
    """
    folder = check_path(run)
    files = RunFolder(folder)
    if network is not None:
        imported(network)
    if coupling is not None:
        class_of(coupling)
    if not files.config.exists():
        raise RunError(f"{folder} is not a run's folder", "name the folder of a run of train")
    try:
        config = files.read_config()
    except ImlpError as error:
        raise RunError(f"{files.config} is not that of a run: {error.problem}", error.remedy) from error
    found = files.newest_checkpoint(lambda text: None)
    if found is None:
        raise RunError(f"there is no checkpoint in {folder}", "name the folder of a run of train")
    arrays, state = found
    if missing := [name for name in ("image", "classes", "mean", "std", "active") if name not in state]:
        raise RunError(f"the checkpoint of {folder} has no {missing[0]}", FORGED)
    made = config.make_network(tuple(state["image"]), state["classes"])
    _check_arrays(folder, config, made, arrays, state["active"])
    statistics = {name: np.array(state[name]) for name in ("mean", "std")}
    if lane == "prior":
        if not config.needs_prior:
            raise RunError(f"{folder} has trained no prior", "its lanes need none; name one of them")
        return made, {**_own(arrays, "prior/"), **statistics}
    if lane not in state["active"]:
        known = ", ".join(map(str, [*state["active"], *(["prior"] if config.needs_prior else [])]))
        raise RunError(f"{folder} has no trained lane {lane!r}", f"it has {known or 'none: all have stopped'}")
    index = state["active"].index(lane)
    own = {name: array[index] for name, array in _own(arrays, "lanes/").items()}
    own = _added_up(made, own, config.lanes[int(lane)].branch(made))
    first = made.operations(dense=True)[0]
    if made.is_module or not isinstance(first, Layer):  # of a PyTorch model nobody knows what comes first
        return made, {**own, **statistics}
    pixels = made.image[1] * made.image[2]
    mean, std = (np.repeat(np.array(state[name]), pixels) for name in ("mean", "std"))  # (M_in,)
    W, b = own[f"{first.name}.weight"].astype(np.float64), own[f"{first.name}.bias"]
    own[f"{first.name}.weight"] = (W / std).astype(b.dtype)
    own[f"{first.name}.bias"] = (b - W @ (mean / std)).astype(b.dtype)
    return made, own


def _check_arrays(
    folder: Path, config: Config, network: Network, arrays: dict[str, np.ndarray], active: list[int]
) -> None:
    """Refuse arrays that are not those of the network: anybody can compute a checksum."""
    if max(active, default=-1) >= len(config.lanes):
        raise RunError(f"the checkpoint of {folder} has lane {max(active)}, and the run {len(config.lanes)}", FORGED)
    branches = [config.lanes[lane].branch(network) for lane in active]
    groups: dict[str, tuple[dict[str, Shape], Shape]] = {}
    if config.needs_prior:
        groups["prior/"] = (shapes_of(network, dense=False), ())
    if active:
        groups["lanes/"] = (shapes_of(network, dense=True, branches=branches), (len(active),))
    for prefix, (shapes, stack) in groups.items():
        for name, shape in shapes.items():
            array = arrays.get(prefix + name)
            if array is None or array.shape != (*stack, *shape) or array.dtype.kind != "f":
                held = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
                raise RunError(f"the checkpoint of {folder} holds {held} as {prefix}{name}", FORGED)


def _added_up(network: Network, own: dict[str, np.ndarray], branch: Branch | None) -> dict[str, np.ndarray]:
    """A lane whose layers are made of parts as the MLP that it is."""
    found = {name: array for name, array in own.items() if name in network.shapes(dense=True) or network.is_module}
    for layer in branch.layers if branch else ():
        for part, made in zip(("weight", "bias"), made_of(network.layer(layer), own, branch), strict=True):
            if made is not None:
                found[f"{layer}.{part}"] = made
    return found


def _own(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The numbers of a group, without the optimizer's state, by the names that they have in the network."""
    chosen = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(BUFFER): array for name, array in chosen.items() if not name.startswith(STATE)}


def load(run: str | Path, lane: int = 0, network: str | None = None, coupling: str | None = None) -> "torch.nn.Module":
    """A trained lane as a plain `torch.nn.Module`: images from 0 to 1 in, logits out.

    It is an MLP of `Linear` layers; of a PyTorch model it is that model, with `imlp.nn.Dense` layers. `network` names
    the code of a network from outside the package (`FILE.py:NAME`), which is only run if it is named, and so does
    `coupling`.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise BackendError("a torch module needs torch", install_hint("accel")) from error

    if isinstance(lane, str):
        raise ConfigError(f"lane is {lane!r}", "give a lane's number; the prior can be exported as arrays")
    made, own = parameters(run, lane, network, coupling)
    if made.is_module:
        own_module: torch.nn.Module = made.trained(own, dense=True)  # type: ignore[attr-defined]
        return own_module.eval()
    attributes = _attributes(made)
    traced = torch.fx.symbolic_trace(_module(made, attributes, own.pop("mean", None), own.pop("std", None)))
    module = traced.to(torch.tensor(own["head.bias"]).dtype)
    parts = {name: name.rpartition(".")[::2] for name in own}
    given = {f"{attributes[layer]}.{part}": torch.tensor(own[name]) for name, (layer, part) in parts.items()}
    module.load_state_dict(module.state_dict() | given)
    return module.eval()


def write(
    run: str | Path,
    path: Path,
    lane: int | str,
    format: str,
    network: str | None = None,
    coupling: str | None = None,
) -> None:
    """Write a lane, whole or not at all."""
    made, own = parameters(run, lane, network, coupling)
    if format in ("safetensors", "npz"):
        contiguous = {name: np.asarray(array, order="C") for name, array in own.items()}
        if format == "npz":
            np.savez(content := io.BytesIO(), allow_pickle=False, **contiguous)
            _write(path, content.getbuffer())
        else:
            metadata = {"network": made.name, "image": str(made.image)}
            _write(path, safetensors.numpy.save(contiguous, metadata=metadata))
        return
    module = load(run, lane, network, coupling)  # type: ignore[arg-type]
    import torch

    dtype = next(module.parameters()).dtype
    example = torch.zeros(2, *made.image, dtype=dtype)
    if format == "torch":
        batch = {0: torch.export.Dim("batch")}
        program = torch.export.export(module, (example,), dynamic_shapes=(batch,))
        torch.export.save(program, content := io.BytesIO())
        _write(path, content.getbuffer())
        return
    _write_onnx(module.float(), example.float(), path)  # few runtimes compute in float64


def _write(path: Path, content: bytes | memoryview) -> None:
    """From memory: a writer that itself meets a full disk may end the whole process."""
    with write_whole(path) as file:
        file.write(content)


def _write_onnx(module: "torch.nn.Module", example: "torch.Tensor", path: Path) -> None:
    import torch

    try:
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise BackendError("ONNX needs onnx and onnxscript", install_hint("onnx")) from error
    batch = {0: torch.export.Dim("batch")}
    program = torch.onnx.export(
        module, (example,), dynamo=True, input_names=["images"], output_names=["logits"], dynamic_shapes=(batch,),
        verbose=False,
    )  # fmt: skip
    assert program is not None
    _write(path, program.model_proto.SerializeToString())


def _attributes(network: Network) -> dict[str, str]:
    """The names of layers and norms as attributes of a module: `block1.token1` becomes `block1_token1`."""
    from torch import nn

    attributes: dict[str, str] = {}
    taken = {*dir(nn.Module()), "mean", "std"}
    for leaf in walk(network.operations(dense=True)):
        if isinstance(leaf, Layer | Norm):
            name = leaf.name.replace(".", "_").replace("-", "_")
            while name in taken:
                name += "_"
            attributes[leaf.name] = name
            taken.add(name)
    return attributes


def _module(
    network: Network, attributes: dict[str, str], mean: np.ndarray | None, std: np.ndarray | None
) -> "torch.nn.Module":
    """The dense network from torch's own parts; traced, nothing of this class is left in it.

    With `mean` and `std` it standardises images first, where the first layer could not take that over.
    """
    import torch
    from torch import Tensor, nn

    activations: dict[str, Any] = {"gelu": nn.functional.gelu, "relu": nn.functional.relu, "none": lambda x: x}

    def linear(m: nn.Module, layer: Layer, x: Tensor) -> Tensor:
        return getattr(m, attributes[layer.name])(x)

    def norm(m: nn.Module, norm: Norm, x: Tensor) -> Tensor:
        runs = x.unflatten(-1, (-1, norm.features))
        return getattr(m, attributes[norm.name])(runs).flatten(-2)

    def activation(m: nn.Module, activation: Activation, x: Tensor) -> Tensor:
        return activations[activation.name](x)

    def average(m: nn.Module, mean: Mean, x: Tensor) -> Tensor:
        if mean.channels_first:
            return x.unflatten(-1, (-1, mean.positions)).mean(-1)
        return x.unflatten(-1, (mean.positions, -1)).mean(-2)

    def residual(m: nn.Module, residual: Residual, x: Tensor) -> Tensor:
        return run(m, [residual.shortcut] if residual.shortcut else [], x) + run(m, residual.body, x)

    handlers: dict[type, Any] = {
        Layer: linear, Norm: norm, Activation: activation, Mean: average, Residual: residual,
    }  # fmt: skip

    def run(m: nn.Module, operations: Iterable[Operation], x: Tensor) -> Tensor:
        for operation in operations:
            x = handlers[type(operation)](m, operation, x)
        return x

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for leaf in walk(network.operations(dense=True)):
                match leaf:
                    case Layer(name, spec):
                        m_out, m_in = spec.matrix_shape
                        own: nn.Module = nn.Linear(m_in, m_out)
                        self.add_module(attributes[name], own)
                    case Norm(name, features, learned):
                        self.add_module(attributes[name], nn.LayerNorm(features, elementwise_affine=learned))
            if mean is not None:
                self.register_buffer("mean", torch.tensor(mean)[:, None, None])
                self.register_buffer("std", torch.tensor(std)[:, None, None])

        def forward(self, images: Tensor) -> Tensor:
            own: Any = self
            x = images if mean is None else (images - own.mean) / own.std
            return run(self, network.operations(dense=True), x.flatten(1))

    return Dense()
