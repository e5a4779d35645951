"""The verbs on whole networks, on torch: forward, backward, one training step, one interpolation step of algorithm 1.

As the reference, but in place, on any device, and without waiting for it: nothing in a step reads a number back. Each
lane is computed as if it were alone, so its bits do not depend on the number of lanes, nor on its place among them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from imlp.accel import layers as ops
from imlp.accel.adam import adam
from imlp.accel.lanes import joined, laid_out, one_by_one
from imlp.accel.operations import Pass, Receive, Seen, run
from imlp.accel.verbs import check_tensor, expand_bias, interpolate, to_numpy
from imlp.errors import ArrayError, BackendError
from imlp.init import network_parameters
from imlp.model import Model, batch_fits, exported, lanes_fit, loaded, mixes, refuse_non_finite
from imlp.networks import Network

Watch = Callable[[str, Tensor], None]
Backward = Callable[[Receive], None]


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
        parameter = torch.tensor(value, dtype=dtype, device=device or "cpu")
        parameters[name] = parameter if lanes is None else parameter.repeat(lanes, *[1] * value.ndim)
    return laid_out(Model.start(network, dense, lanes, parameters, torch.zeros_like))


@torch.inference_mode()
def forward(model: Model, x: Tensor, *, watch: Watch | None = None) -> Tensor:
    """Logits `(N, classes)`, or `(L, N, classes)`, of images `x (N, M_in)`; `watch` sees each operation's result."""
    _check(model, x)
    seen: list[Seen] = []
    each = []
    for lane in one_by_one(model):
        seen.append([])
        each.append(_forward(lane, x, None if watch is None else seen[-1]))
    if watch is not None:
        for results in zip(*seen, strict=True):
            watch(results[0][0], joined(model, [result for _, result in results]))
    return joined(model, each)


def _forward(model: Model, x: Tensor, seen: Seen | None = None) -> Tensor:
    """The logits of a model without lanes; `seen` is given each operation's name and result."""
    return run(Pass(model, record=False, seen=seen), model.network.operations(dense=model.dense), x, first=True)[0]


@torch.no_grad()
def loss_and_grads(model: Model, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean cross entropy, a number or `(L,)`, and its gradient at every parameter by name."""
    _check(model, x, y)
    losses, grads = [], []
    for lane in one_by_one(model):
        loss, backward = _loss_and_backward(lane, x, y, reuse=False)
        losses.append(loss)
        grads.append(_all_gradients(backward))
    return joined(model, losses), {name: joined(model, [own[name] for own in grads]) for name in grads[0]}


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
    """One step of Adam on one batch, in place; returns the loss before it, a number or `(L,)`, still on its device.

    `check` refuses a loss that is not finite before anything is changed, for which the device has to be waited for.
    `compile` has torch compile forward and backward into one graph, which takes a C++ compiler (or a GPU) and up to a
    minute in the first step.
    """
    _check(model, x, y)
    t = torch.full((), float(model.step + 1), dtype=torch.float32, device=x.device)

    lanes = one_by_one(model)
    backwards: list[Backward] = []
    if compile:
        compiled = _compiled(model.network, model.dense)
        pairs = [compiled(lane.parameters, x, y) for lane in lanes]
        losses, backwards = [loss for loss, _ in pairs], [partial(_hand_over, grads) for _, grads in pairs]
    else:
        pairs = [_loss_and_backward(lane, x, y, reuse=True) for lane in lanes]
        losses, backwards = [loss for loss, _ in pairs], [backward for _, backward in pairs]
    loss = joined(model, losses)
    if check:
        refuse_non_finite(model, x, to_numpy(loss), forward, to_numpy)
    for lane, backward in zip(lanes, backwards, strict=True):
        backward(partial(adam, lane, t=t, lr=lr, betas=betas, eps=eps))
    model.step += 1
    return loss


@torch.inference_mode()
def evaluate(model: Model, x: Tensor, y: Tensor, *, batch: int = 1000) -> tuple[Tensor, Tensor]:
    """How many images are classified correctly, and the sum of their losses: numbers, or one per lane."""
    _check(model, x, y)
    wide = torch.float32 if x.device.type == "mps" else torch.float64  # mps has no float64
    counts, totals = [], []
    for lane in one_by_one(model):
        correct = torch.zeros((), dtype=torch.int64, device=x.device)
        total = torch.zeros((), dtype=wide, device=x.device)
        for images, labels in zip(x.split(batch), y.split(batch), strict=True):
            logits = _forward(lane, images)
            correct += (logits.argmax(1) == labels).sum()
            total += ops.cross_entropy(logits, labels)[0].sum()
        counts.append(correct)
        totals.append(total)
    return joined(model, counts), joined(model, totals)


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

    `alpha` is a number, one per lane, or a mapping from layer names to either; None leaves a lane untouched. `layers`
    are those of the network's description unless given. Adam's moments and learned norms stay as they are. `head`
    mixes the head as well, which the paper does not.
    """
    for mix in mixes(model, prior, alpha, mode=mode, layers=layers, head=head):
        interpolate(mix.W, mix.spec, mix.prior_weight, mix.alphas, mode=mode)
        if biases:
            b_p = expand_bias(mix.spec, mix.prior_bias).to(mix.b)  # zeros, if the prior has none
            for b, a in zip(mix.b, mix.alphas, strict=True):
                b.mul_(1 - a if mode == "interpolate" else 1).add_(b_p, alpha=a)
    return model


def select(model: Model, lanes: Sequence[int]) -> Model:
    """A new model of exactly these lanes, moments included."""
    return laid_out(model.select(lanes))


def export(model: Model) -> dict[str, Any]:
    """Everything that it takes to resume exactly, as NumPy arrays: parameters, Adam's moments, the step."""
    return exported(model, to_numpy)


def restore(
    network: Network, arrays: Mapping[str, Any], *, dense: bool, dtype: Any = None, device: Any = None
) -> Model:
    """The model that `export` wrote, of whichever backend; `dtype` is that of the arrays unless given."""
    kind = None if dtype is None else _dtype(dtype)

    def convert(array: Any) -> Tensor:
        return torch.tensor(array, dtype=kind, device=device or "cpu")

    return laid_out(loaded(network, arrays, dense=dense, convert=convert))


def _loss_and_backward(model: Model, x: Tensor, y: Tensor, *, reuse: bool) -> tuple[Tensor, Backward]:
    """The loss, and the way back: it hands over each step's gradients when its parameters are no longer needed.

    With `reuse` the gradients of weights of one shape share one place, so they must be used at once.
    """
    logits, back = run(Pass(model, reuse=reuse), model.network.operations(dense=model.dense), x, first=True)
    losses, dlogits = ops.cross_entropy(logits, y)  # (N,), (N, classes)

    def run_back(receive: Receive) -> None:
        back(dlogits / len(y), receive)

    return losses.mean(), run_back


def _all_gradients(backward: Backward) -> dict[str, Tensor]:
    grads: dict[str, Tensor] = {}
    backward(grads.update)
    return grads


def _hand_over(grads: dict[str, Tensor], receive: Receive) -> None:
    receive(grads)


@lru_cache(maxsize=16)
def _compiled(network: Network, dense: bool) -> Callable[..., Any]:
    def step(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Any:
        loss, backward = _loss_and_backward(Model(network, dense, None, parameters, {}, {}), x, y, reuse=False)
        return loss, _all_gradients(backward)

    compiled = torch.compile(step, fullgraph=True)

    def run_compiled(*arguments: Any) -> Any:
        try:
            return compiled(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            raise BackendError(
                f"torch could not compile the step: {reason}", "install a C++ compiler, or use compile=False"
            ) from error

    return run_compiled


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
