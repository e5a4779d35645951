"""A trained network for others: plain arrays, or a plain `torch.nn.Module` that does not need this package.

What comes out takes images as `(N, channels, height, width)`, black 0 and white 1: the standardisation of the training
data is folded into the first layer, `W (x - mean) / std + b = (W / std) x + (b - W (mean / std))`.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors.numpy

from imlp.errors import BackendError, ConfigError, ImlpError, RunError, install_hint
from imlp.files import check_path, write_whole
from imlp.networks import Network
from imlp.train.run_folder import RunFolder

if TYPE_CHECKING:
    import torch

FORMATS = {"safetensors": ".safetensors", "npz": ".npz", "torch": ".pt2", "onnx": ".onnx"}


def parameters(run: str | Path, lane: int | str = 0) -> tuple[Network, dict[str, np.ndarray]]:
    """Network and parameters of a lane (or of the "prior") of a run, as its newest checkpoint has them.

    A lane's first layer takes images from 0 to 1. The prior's is left as it is, for standardised images, with `mean`
    and `std` beside it: a convolution pads with zeros, and zero is the mean only after standardising.
    """
    folder = check_path(run)
    files = RunFolder(folder)
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
    network = config.make_network(tuple(state["image"]), state["classes"])
    if lane == "prior":
        return network, {**_own(arrays, "prior/"), **{name: np.array(state[name]) for name in ("mean", "std")}}
    if lane not in state["active"]:
        known = ", ".join(map(str, [*state["active"], "prior"]))
        raise RunError(f"{folder} has no trained lane {lane!r}", f"it has {known}")
    index = state["active"].index(lane)
    own = {name: array[index] for name, array in _own(arrays, "lanes/").items()}
    first = network.layers[0].name
    pixels = network.image[1] * network.image[2]
    mean, std = (np.repeat(np.array(state[name]), pixels) for name in ("mean", "std"))  # (M_in,)
    W, b = own[f"{first}.weight"].astype(np.float64), own[f"{first}.bias"]
    own[f"{first}.weight"] = (W / std).astype(b.dtype)
    own[f"{first}.bias"] = (b - W @ (mean / std)).astype(b.dtype)
    return network, own


def _own(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The parameters of a group, without Adam's moments."""
    chosen = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return {name: array for name, array in chosen.items() if not name.startswith("adam.")}


def load(run: str | Path, lane: int = 0) -> "torch.nn.Module":
    """A trained lane as a plain `torch.nn.Module`, an MLP of `Linear` layers; images from 0 to 1 in, logits out."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise BackendError("a torch module needs torch", install_hint("accel")) from error

    if isinstance(lane, str):
        raise ConfigError(f"lane is {lane!r}", "give a lane's number; the prior can be exported as arrays")
    network, own = parameters(run, lane)
    module = torch.fx.symbolic_trace(_module(network)).to(torch.tensor(own["head.bias"]).dtype)
    module.load_state_dict({name: torch.tensor(own[_parameter(name)]) for name in module.state_dict()})
    return module.eval()


def write(run: str | Path, path: Path, lane: int | str, format: str) -> None:
    """Write a lane, whole or not at all."""
    if format in ("safetensors", "npz"):
        network, own = parameters(run, lane)
        contiguous = {name: np.asarray(array, order="C") for name, array in own.items()}
        if format == "npz":
            np.savez(content := io.BytesIO(), allow_pickle=False, **contiguous)
            _write(path, content.getbuffer())
        else:
            metadata = {"network": network.name, "image": str(network.image)}
            _write(path, safetensors.numpy.save(contiguous, metadata=metadata))
        return
    module = load(run, lane)  # type: ignore[arg-type]
    import torch

    dtype = next(module.parameters()).dtype
    example = torch.zeros(2, *parameters(run, lane)[0].image, dtype=dtype)
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


def _parameter(name: str) -> str:
    """`block1_token1.weight` of the module is `block1.token1.weight` of the network."""
    layer, _, part = name.rpartition(".")
    return f"{layer.replace('_', '.')}.{part}"


def _module(network: Network) -> "torch.nn.Module":
    """The dense network from torch's own parts; traced, nothing of this class is left in it."""
    from torch import Tensor, nn

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for _, steps in network.sections(dense=True):
                for step in steps:
                    if step.op == "linear":
                        m_out, m_in = step.details.spec.matrix_shape
                        self.add_module(step.name.replace(".", "_"), nn.Linear(m_in, m_out))
                    elif step.op == "norm":
                        norm = nn.LayerNorm(step.details.features, elementwise_affine=step.details.learned)
                        self.add_module(step.name.replace(".", "_"), norm)

        def forward(self, images: Tensor) -> Tensor:
            x = images.flatten(1)
            for residual, steps in network.sections(dense=True):
                start = x
                for step in steps:
                    part = getattr(self, step.name.replace(".", "_"), None)
                    match step.op:
                        case "linear":
                            x = part(x)  # type: ignore[misc]
                        case "norm":
                            x = part(x.unflatten(-1, (-1, step.details.features))).flatten(-2)  # type: ignore[misc]
                        case "gelu":
                            x = nn.functional.gelu(x)
                        case "mean":
                            x = x.unflatten(-1, (step.details, -1)).mean(-2)
                x = start + x if residual else x
            return x

    return Dense()
