"""The verbs on whole networks, on torch: forward, backward, one training step, one interpolation step of algorithm 1.

As the reference, but in place, on any device, and without waiting for it: nothing in a step reads a number back.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from imlp.accel import layers as ops
from imlp.accel.adam import adam
from imlp.accel.products import way
from imlp.accel.verbs import check_tensor, expand_bias, interpolate, to_numpy
from imlp.errors import ArrayError, BackendError
from imlp.init import network_parameters
from imlp.model import Model, alphas_by_layer, batch_fits, exported, lanes_fit, loaded, refuse_non_finite, runs
from imlp.networks import Network, Step

Watch = Callable[[str, Tensor], None]
Receive = Callable[[dict[str, Tensor]], None]


def init(
    network: Network, *, dense: bool, seed: int, lanes: int | None = None, dtype: Any = None, device: Any = None
) -> Model:
    """The prior (`dense=False`), one I-MLP, or `lanes` of them that start from the same numbers.

    `dtype` is float32 unless given, `device` the cpu.

    >>> from imlp import networks
    >>> init(networks.mixer(), dense=True, seed=0, lanes=3).parameters["embed.bias"].shape
    torch.Size([3, 2048])
    """
    lanes_fit(dense, lanes)
    dtype = _dtype(torch.float32 if dtype is None else dtype)
    parameters = {}
    for name, value in network_parameters(network, dense=dense, seed=seed).items():
        parameter = torch.from_numpy(value).to(device or "cpu", dtype)
        parameters[name] = parameter if lanes is None else parameter.repeat(lanes, *[1] * value.ndim)
    return _laid_out(Model.start(network, dense, lanes, parameters, torch.zeros_like))


@torch.inference_mode()
def forward(model: Model, x: Tensor, *, watch: Watch | None = None) -> Tensor:
    """Logits `(N, classes)`, or `(L, N, classes)`, of images `x (N, M_in)`; `watch` sees each operation's result."""
    _check(model, x)
    for residual, steps in model.network.sections(dense=model.dense):
        start = x
        for step in steps:
            x = _step(model, step, x, record=False)[0]
            if watch is not None:
                watch(step.name, x)
        x = start + x if residual else x
    return x


@torch.no_grad()
def loss_and_grads(model: Model, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean cross entropy, a number or `(L,)`, and its gradient at every parameter by name."""
    _check(model, x, y)
    grads: dict[str, Tensor] = {}
    return _loss_and_backward(model, x, y, grads.update, reuse=False), grads


@torch.no_grad()
def train_step(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    lr: float = 1e-4,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    compile: bool = False,
    check: bool = False,
) -> Tensor:
    """One step of Adam on one batch, in place; gives the loss before it, a number or `(L,)`, still on its device.

    `check` refuses a loss that is not finite before anything is changed, for which the device has to be waited for.
    `compile` has torch compile forward and backward into one graph, which takes a C++ compiler (or a GPU) and up to a
    minute in the first step.
    """
    _check(model, x, y)
    t = torch.full((), float(model.step + 1), dtype=torch.float32, device=x.device)

    def accept(loss: Tensor) -> None:
        if check:
            refuse_non_finite(model, x, to_numpy(loss), forward, to_numpy)

    def update(grads: dict[str, Tensor]) -> None:
        adam(model, grads, t=t, lr=lr, betas=betas, eps=eps)

    if compile:
        loss, grads = _compiled(model.network, model.dense, model.lanes)(model.parameters, x, y)
        accept(loss)
        update(grads)
    else:
        loss = _loss_and_backward(model, x, y, update, reuse=True, accept=accept)
    model.step += 1
    return loss


def evaluate(model: Model, x: Tensor, y: Tensor, *, batch: int = 1000) -> tuple[Tensor, Tensor]:
    """How many images are classified correctly, and the sum of their losses: numbers, or one a lane."""
    _check(model, x, y)
    shape = () if model.lanes is None else (model.lanes,)
    correct = torch.zeros(shape, dtype=torch.int64, device=x.device)
    wide = torch.float32 if x.device.type == "mps" else torch.float64  # mps has no float64
    total = torch.zeros(shape, dtype=wide, device=x.device)
    for images, labels in zip(x.split(batch), y.split(batch), strict=True):
        logits = forward(model, images)
        correct += (logits.argmax(-1) == labels).sum(-1)
        total += ops.cross_entropy(logits, labels)[0].sum(-1)
    return correct, total


@torch.no_grad()
def inject(
    model: Model,
    prior: Model,
    alpha: Any,
    *,
    mode: str = "interpolate",
    layers: Iterable[str] | None = None,
    biases: bool = True,
    head: bool = False,
) -> Model:
    """The interpolation step of algorithm 1 on a whole network: `W <- (1 - alpha) W + alpha W_P`, layer by layer.

    `alpha` is a number, one a lane, or a mapping from layer names to either; None leaves a lane untouched. `layers`
    are those of the network's description unless given. Adam's moments and learned norms stay as they are. `head`
    mixes the head as well, which the paper does not.
    """
    for name, alphas in alphas_by_layer(model, prior, alpha, mode=mode, layers=layers, head=head).items():
        spec = model.network.layer(name).spec
        W, b = (_with_lanes(model, f"{name}.{part}") for part in ("weight", "bias"))  # (L, M_out, M_in), (L, M_out)
        w, b_p = prior.parameters[f"{name}.weight"], expand_bias(spec, prior.parameters[f"{name}.bias"])
        for lanes, given in runs(alphas):
            interpolate(W[lanes], spec, w, given, mode=mode)
            for b_lane, a in zip(b[lanes], given if biases else (), strict=biases):
                b_lane.mul_(1 - a if mode == "interpolate" else 1).add_(b_p, alpha=a)
    return model


def select(model: Model, lanes: Sequence[int]) -> Model:
    """A new model of exactly these lanes, moments included."""
    return model.select(lanes)


def export(model: Model) -> dict[str, Any]:
    """Everything that it takes to go on exactly, as NumPy arrays: parameters, Adam's moments, the step."""
    return exported(model, to_numpy)


def load(network: Network, arrays: Mapping[str, Any], *, dense: bool, dtype: Any = None, device: Any = None) -> Model:
    """The model that `export` wrote, of whichever backend; `dtype` is that of the arrays unless given."""
    kind = None if dtype is None else _dtype(dtype)

    def convert(array: Any) -> Tensor:
        return torch.tensor(array, dtype=kind, device=device or "cpu")

    return _laid_out(loaded(network, arrays, dense=dense, convert=convert))


def _laid_out(model: Model) -> Model:
    """Weights and moments of convolutions that run as products, stored as those want them."""
    for layer in () if model.dense else model.network.layers:
        name = f"{layer.name}.weight"
        if name in model.parameters and (found := way(layer.spec, model.parameters[name].device)):
            for group in (model.parameters, model.first, model.second):
                group[name] = found.stored(group[name])
    return model


def _loss_and_backward(
    model: Model, x: Tensor, y: Tensor, receive: Receive, *, reuse: bool, accept: Callable[[Tensor], None] | None = None
) -> Tensor:
    """The loss; `receive` is given each step's gradients on the way back, when its parameters are no longer needed.

    `accept` sees the loss before that. With `reuse` the gradients of weights of one shape share one place, so that
    they must be used at once.
    """
    tape = []
    first = True
    for residual, steps in model.network.sections(dense=model.dense):
        start, backwards = x, []
        for step in steps:
            x, backward = _step(model, step, x, first=first, reuse=reuse)
            if step.op == "linear" or not first:  # what comes before the first layer has no parameters
                backwards.append((step.name, backward))
                first = False
        x = start + x if residual else x
        tape.append((residual, backwards))
    losses, dlogits = ops.cross_entropy(x, y)  # (..., N), (..., N, classes)
    loss = losses.mean(-1)
    if accept is not None:
        accept(loss)
    dx: Any = dlogits / len(y)
    for residual, backwards in reversed(tape):
        end = dx
        for name, backward in reversed(backwards):
            dx, own = backward(dx)
            if own:
                receive({f"{name}.{part}": gradient for part, gradient in own.items()})
        dx = end + dx if residual and dx is not None else dx
    return loss


@lru_cache(maxsize=16)
def _compiled(network: Network, dense: bool, lanes: int | None) -> Callable[..., Any]:
    def run(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Any:
        grads: dict[str, Tensor] = {}
        loss = _loss_and_backward(Model(network, dense, lanes, parameters, {}, {}), x, y, grads.update, reuse=False)
        return loss, grads

    compiled = torch.compile(run, fullgraph=True)

    def run_compiled(*arguments: Any) -> Any:
        try:
            return compiled(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            raise BackendError(
                f"torch could not compile the step: {reason}", "install a C++ compiler, or use compile=False"
            ) from error

    return run_compiled


def _step(
    model: Model, step: Step, x: Tensor, *, first: bool = False, reuse: bool = False, record: bool = True
) -> tuple[Tensor, Any]:
    weight: Any = model.parameters.get(f"{step.name}.weight")
    bias: Any = model.parameters.get(f"{step.name}.bias")
    match step.op:
        case "linear" if model.dense:
            room = _kept(model.scratch, str(weight.shape), lambda: torch.empty_like(weight)) if reuse else None
            return ops.linear(x, weight, bias, first=first, room=room)
        case "linear":
            spec, found = step.of.spec, way(step.of.spec, x.device)
            scratch = model.scratch if reuse else {}
            products = None if found is None else _kept(scratch, step.name, lambda: found(spec, like=weight))
            return ops.structured(x, spec, weight, bias, products=products, first=first, record=record)
        case "norm":
            return ops.layer_norm(x, step.of.features, weight, bias)
        case "gelu":
            return ops.gelu(x)
        case "mean":
            return ops.mean(x, step.of)
    raise TypeError(f"{step.op!r} is not an operation of a network")


def _kept(scratch: dict[str, Any], name: str, make: Callable[[], Any]) -> Any:
    """What `make` makes the first time: room that is kept from step to step."""
    if name not in scratch:
        scratch[name] = make()
    return scratch[name]


def _with_lanes(model: Model, name: str) -> Tensor:
    """A view of a parameter that has a lane axis even where the model has none."""
    tensor = model.parameters[name]
    return tensor[None] if model.lanes is None else tensor


def _check(model: Model, x: Tensor, *labels: Tensor) -> None:
    check_tensor(x, "images")
    for y in labels:
        check_tensor(y, "labels")
    batch_fits(model, x.shape, *(y.shape for y in labels))
    beside = model.parameters["head.bias"]
    if x.dtype != beside.dtype or x.device != beside.device:
        raise ArrayError(
            f"images of {x.dtype} on {x.device} for a model of {beside.dtype} on {beside.device}",
            f"convert them with .to({str(beside.device)!r}, {beside.dtype})",
        )
    for y in labels:
        if y.dtype != torch.int64 or y.device != x.device:
            remedy = f"convert them with .to({str(x.device)!r}, torch.int64)"
            raise ArrayError(f"labels of {y.dtype} on {y.device}", remedy)


def _dtype(dtype: Any) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ArrayError(f"dtype is {dtype!r}", "use float32 or float64")
    return found
