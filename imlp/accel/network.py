"""The verbs on whole networks, on torch: forward, backward, one training step.

As the reference, but in place, on any device, and without waiting for it: nothing in a step reads a number back. Each
lane is computed as if it were alone, so its bits do not depend on the number of lanes, nor on its place among them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imlp.accel import layer_verbs
from imlp.accel import layers as ops
from imlp.accel.adam import adam
from imlp.accel.gradients import clipped
from imlp.accel.operations import Pass, Receive, Seen, run
from imlp.accel.sgd import sgd
from imlp.accel.stack import joined, laid_out, one_by_one
from imlp.accel.verbs import check_tensor, to_numpy
from imlp.couplings import RELAX, AnyCoupling, Branch, Moves, Replacing
from imlp.errors import ArrayError, BackendError, in_a_line
from imlp.init import network_parameters
from imlp.model import Model, batch_fits, exported, lanes_fit, loaded, refuse_non_finite
from imlp.model.mixing import move_lane, moves_of, prepare, with_lane_of_prior
from imlp.networks import Network
from imlp.optimizers import ADAM, SGD, Adam, AdamW, Optimizer

Watch = Callable[[str, Tensor], None]
Backward = Callable[[Receive], None]


STEPS: dict[type[Optimizer], Callable[..., None]] = {Adam: adam, AdamW: adam, SGD: sgd}  # how each takes a step


def init(
    network: Network,
    *,
    dense: bool,
    seed: int,
    lanes: int | None = None,
    branches: Sequence[Branch | None] = (),
    dtype: Any = None,
    device: Any = None,
) -> Model:
    """The prior (`dense=False`), one I-MLP, or `lanes` of them that start from the same numbers.

    `branches` says which of them compute their layers of two parts. `dtype` is float32 unless given, `device` the cpu.

    >>> from imlp import networks
    >>> init(networks.mixer(), dense=True, seed=0, lanes=3).parameters["embed.bias"].shape
    torch.Size([3, 2048])
    """
    lanes_fit(dense, lanes)
    dtype = _dtype(torch.float32 if dtype is None else dtype)
    if network.is_module:
        module: Any = network
        place = {"dtype": dtype, "device": device or "cpu"}
        return laid_out(module.init(dense=dense, seed=seed, lanes=lanes, branches=branches, **place))
    parameters = {}
    for name, value in network_parameters(network, dense=dense, seed=seed, branches=branches).items():
        parameter = torch.tensor(value, dtype=dtype, device=device or "cpu")
        parameters[name] = parameter if lanes is None else parameter.repeat(lanes, *[1] * value.ndim)
    return laid_out(Model.start(network, dense, lanes, parameters, branches))


@torch.inference_mode()
def forward(model: Model, x: Tensor, *, watch: Watch | None = None) -> Tensor:
    """Logits `(N, classes)`, or `(L, N, classes)`, of images `x (N, M_in)`; `watch` sees each operation's result."""
    _check(model, x)
    lanes = one_by_one(model)
    seen: list[Seen] = [[] for _ in lanes]
    each = [_forward(lane, x, None if watch is None else own) for lane, own in zip(lanes, seen, strict=True)]
    if watch is not None:
        for results in zip(*seen, strict=True):
            watch(results[0][0], joined(model, [result for _, result in results]))
    return joined(model, each)


def _forward(model: Model, x: Tensor, seen: Seen | None = None) -> Tensor:
    """The logits of a model without lanes; `seen` is given each operation's name and result."""
    network: Any = model.network
    if network.is_module:
        return network.forward(model, x, seen)
    return run(Pass(model, record=False, seen=seen), network.operations(dense=model.dense), x, first=True)[0]


@torch.no_grad()
def loss_and_grads(model: Model, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean cross entropy, a number or `(L,)`, and its gradient at every parameter by name."""
    _check(model, x, y, shares=True)
    losses, grads = [], []
    for lane in one_by_one(model):
        loss, backward = _loss_and_backward(lane, x, y, keep=False, reuse=False)
        losses.append(loss)
        grads.append(_all_gradients(backward))
    none = {name: torch.zeros_like(p[0]) for name, p in model.parameters.items()} if model.branches else {}
    each = [{**none, **gradients} for gradients in grads] if model.lanes is not None else grads
    return joined(model, losses), {name: joined(model, [gradients[name] for gradients in each]) for name in each[0]}


@torch.no_grad()
def train_step(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    optimizer: Optimizer = ADAM,
    compile: bool = False,
    check: bool = False,
    prior: Model | None = None,
    moves: Moves | None = None,
) -> Tensor:
    """One step on one batch, in place; returns the loss before it, a number or `(L,)`, still on its device.

    `moves` are those of `mix`, made when all lanes have been updated. `check` refuses a loss that is not
    finite before anything is changed, for which the device has to be waited for.
    `compile` has torch compile forward and backward into one graph, which takes a C++ compiler (or a GPU) and up to a
    minute in the first step.
    """
    _check(model, x, y, shares=True)
    if moves:
        prepare(model, prior, moves)
    model.keep_state(optimizer, torch.zeros_like)
    lanes = one_by_one(model)
    if compile:
        pairs = [_compiled(model.network, model.dense, lane.branches)(lane.parameters, x, y) for lane in lanes]
    else:
        pairs = [_loss_and_backward(lane, x, y, keep=True, reuse=not optimizer.clip) for lane in lanes]
    loss = joined(model, [one_loss for one_loss, _ in pairs])
    if check:
        refuse_non_finite(model, x, to_numpy(loss), forward, to_numpy)
    for lane, (_, backward) in zip(lanes, pairs, strict=True):
        take = partial(STEPS[type(optimizer)], lane, settings=optimizer)
        take(clipped(_all_gradients(backward), optimizer.clip)) if optimizer.clip else backward(take)
    model.step += 1
    for index, lane in enumerate(lanes if moves else ()):
        move_lane(layer_verbs, lane, index, prior, moves or {}, step=model.step)
    return loss


@torch.no_grad()
def mix(
    model: Model,
    prior: Model | None,
    alpha: Any,
    *,
    coupling: AnyCoupling = "interpolate",
    layers: Iterable[str] | None = None,
    biases: bool = True,
    head: bool = False,
) -> Model:
    """The interpolation step of algorithm 1 on a whole network, in place: `W <- (1 - alpha) W + alpha W_P` by layer.

    What `alpha` and the settings may be, the reference says.

    >>> from imlp import networks
    >>> from imlp.accel import init
    >>> network = networks.cnn(width=64, strides=(1, 2, 2), image=(1, 8, 8))
    >>> prior, model = init(network, dense=False, seed=0), init(network, dense=True, seed=0, lanes=2)
    >>> mixed = mix(model, prior, [0.5, None])
    """
    moves = moves_of(model, alpha, coupling=coupling, layers=layers, biases=biases, head=head)
    prepare(model, prior, moves)
    for index, lane in enumerate(one_by_one(model)):
        move_lane(layer_verbs, lane, index, prior, moves, step=model.step)
    return model


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


def select(model: Model, lanes: Sequence[int]) -> Model:
    """A new model of exactly these lanes, moments included."""
    return laid_out(model.select(lanes))


def relax(
    prior: Model, lanes: Model | None, branches: Sequence[Branch | None] = (), coupling: Replacing = RELAX
) -> Model:
    """The lanes, and after them a lane that is the prior: trunk, head and norms. Adam starts again for it."""
    like = next(iter(prior.parameters.values()))

    def join(stack: Tensor | None, lane: Tensor) -> Tensor:
        return lane[None].clone() if stack is None else torch.cat([stack, lane[None]])

    made = with_lane_of_prior(prior, lanes, branches, coupling, verbs=layer_verbs, zeros=like.new_zeros, joined=join)
    return laid_out(made)


@torch.no_grad()
def weight(model: Model, layer: str) -> Tensor:
    """The matrix that a layer of the I-MLP computes with, `(M_out, M_in)` or `(L, M_out, M_in)`."""
    whole: Tensor = model.parameters[f"{layer}.weight"]
    if not model.branches:
        return whole
    spec, each = model.network.layer(layer).spec, []
    for lane in one_by_one(model):
        W, branch = lane.parameters[f"{layer}.weight"], lane.branch_of(layer)
        if branch is not None:
            W = branch.coupling.call("made", layer_verbs, spec, lane.parts_of(layer, branch.coupling))[0]
        each.append(W)
    return joined(model, each)


def export(model: Model) -> dict[str, Any]:
    """Everything that it takes to resume exactly, as NumPy arrays: parameters, the optimizer's state, the step."""
    return exported(model, to_numpy)


def restore(
    network: Network,
    arrays: Mapping[str, Any],
    *,
    dense: bool,
    branches: Sequence[Branch | None] = (),
    dtype: Any = None,
    device: Any = None,
) -> Model:
    """The model that `export` wrote, of whichever backend; `dtype` is that of the arrays unless given."""
    kind = None if dtype is None else _dtype(dtype)

    def convert(array: Any) -> Tensor:
        whole = network.is_module and np.asarray(array).dtype.kind != "f"  # a module's buffers may be counts
        return torch.tensor(array, dtype=None if whole else kind, device=device or "cpu")

    return laid_out(loaded(network, arrays, dense=dense, convert=convert, branches=branches))


def _loss_and_backward(model: Model, x: Tensor, y: Tensor, *, keep: bool, reuse: bool) -> tuple[Tensor, Backward]:
    """The loss, and the way back: it hands over each step's gradients when its parameters are no longer needed.

    With `keep` a module's buffers are changed on the way back. With `reuse` the gradients of weights of one shape share
    one place, so they must be used at once.
    """
    network: Any = model.network
    if network.is_module:
        return network.loss_and_backward(model, x, y, keep=keep)
    logits, back = run(Pass(model, reuse=reuse), network.operations(dense=model.dense), x, first=True)
    losses, dlogits = ops.cross_entropy(logits, y)  # (N,), (N, classes)

    return losses.mean(), lambda receive: back(dlogits / len(y), receive)


def _all_gradients(backward: Backward) -> dict[str, Tensor]:
    grads: dict[str, Tensor] = {}
    backward(grads.update)
    return grads


@lru_cache(maxsize=16)
def _compiled(network: Network, dense: bool, branches: tuple[Branch | None, ...]) -> Callable[..., Any]:
    def step(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Any:
        model = Model(network, dense, None, parameters, branches=branches)
        loss, backward = _loss_and_backward(model, x, y, keep=False, reuse=False)
        return loss, _all_gradients(backward)

    compiled = torch.compile(step, fullgraph=True)

    def run_compiled(*arguments: Any) -> tuple[Tensor, Backward]:
        try:
            loss, grads = compiled(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            problem = f"torch could not compile the step: {in_a_line(error)}"
            raise BackendError(problem, "install a C++ compiler, or use compile=False") from error
        return loss, lambda receive: receive(grads)

    return run_compiled


def _check(model: Model, x: Tensor, *labels: Tensor, shares: bool = False) -> None:
    for given, what in ((x, "images"), *((y, "labels") for y in labels)):
        check_tensor(given, what)
    batch_fits(model, x.shape, *(y.shape for y in labels), shares=shares)
    beside = next(iter(model.parameters.values()))
    for given, what in ((x, "images"), *((y, "labels") for y in labels)):
        kind = torch.int64 if what == "labels" and given.ndim == 1 else beside.dtype
        if given.dtype != kind or given.device != beside.device:
            problem = f"{what} of {given.dtype} on {given.device} for a model of {beside.dtype} on {beside.device}"
            raise ArrayError(problem, f"convert them with .to({str(beside.device)!r}, {kind})")


def _dtype(dtype: Any) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ArrayError(f"dtype is {dtype!r}", "use float32 or float64")
    return found
