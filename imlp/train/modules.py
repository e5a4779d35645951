"""The verbs of a backend for pairs of PyTorch modules, so that the trainer can train any model.

A `Model` holds the numbers, each lane along a leading axis; the modules are only called with them. Autograd computes
the gradients and torch's fused kernel takes the steps of Adam. Each lane is computed as if it were alone, and the
random numbers of a step (dropout) depend on the seed and the step only: a run resumes exactly.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from imlp.accel import (
    adjoint,
    adjoint_bias,
    apply,
    batch,
    computing,
    describe,
    expand_bias,
    interpolate,
    interpolate_bias,
    layer_verbs,
    matrix,
    measure,
    measure_random,
    mix,
    place,
    project,
    pull,
    pull_bias,
    relax,
    to_numpy,
    weight,
)
from imlp.accel.lanes import aligned, joined, one_by_one
from imlp.accel.network import STEPS
from imlp.accel.verbs import check_tensor
from imlp.couplings import Branch, Branching, Moves, prior_weight
from imlp.errors import ArrayError, BackendError, NonFiniteError
from imlp.model import Model, batch_fits, exported, lanes_fit, loaded, refuse_non_finite, shapes_of
from imlp.model.mixing import move_lane, prepare
from imlp.nn.branches import of_parts
from imlp.optimizers import ADAM, Optimizer
from imlp.spec import Spec
from imlp.train.module_network import SEED, ModuleNetwork, stream

__all__ = [
    "adjoint", "adjoint_bias", "apply", "batch", "computing", "describe", "evaluate", "expand_bias", "export",
    "forward", "init", "interpolate", "interpolate_bias", "loss_and_grads", "matrix", "measure", "measure_random",
    "mix", "place", "project", "pull", "pull_bias", "relax", "restore", "select", "to_numpy", "train_step", "weight",
]  # fmt: skip

Watch = Callable[[str, Tensor], None]


def init(
    network: Any,
    *,
    dense: bool,
    seed: int,
    lanes: int | None = None,
    branches: Sequence[Branch | None] = (),
    dtype: Any = None,
    device: Any = None,
) -> Model:
    """The prior (`dense=False`), one dense form of it, or `lanes` of them that start from the same numbers.

    The function that makes the module draws everything that is not replaced; matrices are drawn as `nn.Linear` is.
    """
    lanes_fit(dense, lanes)
    kind, where = _dtype(dtype), torch.device(device or "cpu")
    drawn = {
        name: own.detach() for name, own in network.made(seed=seed, dense=dense).state_dict(keep_vars=True).items()
    }
    widths = {layer.name: layer.spec.matrix_shape[1] for layer in network.layers} if dense else {}
    rng = torch.Generator().manual_seed(stream(seed, "matrices"))

    def stack(name: str, shape: tuple[int, ...]) -> Tensor:
        m_in = widths.get(name.rpartition(".")[0])
        bound = 0 if m_in is None else m_in**-0.5
        if name == SEED:
            first = torch.tensor(seed)
        elif m_in is None:
            first = drawn[name].to(kind if drawn[name].is_floating_point() else drawn[name].dtype)
        elif lanes is None:
            first = torch.empty(shape, dtype=kind).uniform_(-bound, bound, generator=rng)
        else:  # no second copy of a large matrix
            whole = torch.empty(lanes, *shape, dtype=kind)
            whole[0].uniform_(-bound, bound, generator=rng)
            whole[1:] = whole[0]
            return whole.to(where)
        return (first.clone() if lanes is None else first.repeat(lanes, *[1] * first.ndim)).to(where)

    parameters = {name: stack(name, shape) for name, shape in network.shapes(dense=dense).items()}
    if any(branches):
        drawn = network.made(seed=seed, dense=False).state_dict()
        for name, shape in shapes_of(network, dense=dense, branches=branches).items():
            if name not in parameters:
                first = drawn[name.replace(".prior.", ".")] if ".prior." in name else torch.zeros(shape)
                own = first.to(where, kind).view(shape)
                parameters[name] = own.clone() if lanes is None else own.repeat(lanes, *[1] * own.ndim)
    model = Model.start(network, dense, lanes, parameters, branches)
    model.buffers = {name: stack(name, shape) for name, shape in network.buffers(dense=dense).items()}
    return _laid_out(model)


def forward(model: Model, x: Tensor, *, watch: Watch | None = None) -> Tensor:
    """Logits `(N, classes)`, or `(L, N, classes)`, in evaluation mode; `watch` sees the result of each module."""
    _check(model, x)
    seen: list[list[tuple[str, Tensor]]] = []
    each = []
    with torch.inference_mode():
        for lane in one_by_one(model):
            seen.append([])
            with _watched(_skeleton(lane), seen[-1] if watch is not None else None):
                each.append(_call(lane, lane.parameters, x, training=False))
    if watch is not None:
        for results in zip(*seen, strict=True):
            watch(results[0][0], joined(model, [result for _, result in results]))
    return joined(model, each)


def loss_and_grads(model: Model, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean cross entropy in training mode, a number or `(L,)`, and its gradient at every parameter by name."""
    _check(model, x, y)
    kept = _copied(model.buffers)
    pairs = [_loss(lane, x, y) for lane in one_by_one(model)]
    grads = [_gradients(*pair) for pair in pairs]
    _restore(model.buffers, kept)
    return joined(model, [loss.detach() for loss, _ in pairs]), {
        name: joined(model, [own[name] for own in grads]) for name in grads[0]
    }


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

    `moves` are those of `mix`, done after all updates. `check` refuses a loss that is not finite before
    anything is changed, running statistics included.
    """
    if compile:
        raise BackendError("the step of a PyTorch model is not compiled", "leave out --compile")
    _check(model, x, y)
    if moves:
        prepare(model, prior, moves)
    kept = _copied(model.buffers) if check else {}
    model.keep_state(optimizer, torch.zeros_like)
    lanes = one_by_one(model)
    pairs = [_loss(lane, x, y) for lane in lanes]
    loss = joined(model, [own.detach() for own, _ in pairs])
    if check:
        try:
            refuse_non_finite(model, x, to_numpy(loss), forward, to_numpy)
        except NonFiniteError:
            _restore(model.buffers, kept)
            raise
    for lane in lanes:
        grads = _gradients(*pairs.pop(0))
        with torch.no_grad():
            STEPS[type(optimizer)](lane, grads, optimizer)
    model.step += 1
    with torch.no_grad():
        for index, lane in enumerate(lanes if moves else ()):  # not before: autograd counts changes of the whole stack
            move_lane(layer_verbs, lane, index, prior, moves or {}, step=model.step)
    return loss


@torch.inference_mode()
def evaluate(model: Model, x: Tensor, y: Tensor, *, batch: int = 1000) -> tuple[Tensor, Tensor]:
    """How many images are classified correctly, and the sum of their losses: numbers, or one per lane."""
    _check(model, x, y)
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    counts, totals = [], []
    for lane in one_by_one(model):
        correct = torch.zeros((), dtype=torch.int64, device=x.device)
        total = torch.zeros((), dtype=wide, device=x.device)
        for images, labels in zip(x.split(batch), y.split(batch), strict=True):
            logits = _call(lane, lane.parameters, images, training=False)
            correct += (logits.argmax(1) == labels).sum()
            total += nn.functional.cross_entropy(logits, labels, reduction="none").sum()
        counts.append(correct)
        totals.append(total)
    return joined(model, counts), joined(model, totals)


def select(model: Model, lanes: Sequence[int]) -> Model:
    """A new model of exactly these lanes, moments and running statistics included."""
    return _laid_out(model.select(lanes))


def export(model: Model) -> dict[str, Any]:
    """Everything that it takes to resume exactly, as NumPy arrays: parameters, buffers, state, the step."""
    return exported(model, to_numpy)


def restore(
    network: Any,
    arrays: Mapping[str, Any],
    *,
    dense: bool,
    branches: Sequence[Branch | None] = (),
    dtype: Any = None,
    device: Any = None,
) -> Model:
    """The model that `export` wrote; `dtype` is that of the arrays unless given."""

    def convert(array: Any) -> Tensor:
        tensor = torch.tensor(array)
        wanted = _dtype(dtype) if dtype is not None and tensor.is_floating_point() else tensor.dtype
        return tensor.to(device or "cpu", wanted)

    return _laid_out(loaded(network, arrays, dense=dense, convert=convert, branches=branches))


# One lane


def _loss(lane: Model, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a model without lanes, and the parameters that it can be differentiated by."""
    leaves = {name: parameter.detach().requires_grad_() for name, parameter in lane.parameters.items()}
    with torch.enable_grad():
        return nn.functional.cross_entropy(_call(lane, leaves, x, training=True), y), leaves


def _gradients(loss: Tensor, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """By name; a parameter that the loss does not depend on has none, and stays as it is."""
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return {name: own for name, own in zip(leaves, found, strict=True) if own is not None}


def _call(lane: Model, parameters: Mapping[str, Tensor], x: Tensor, *, training: bool) -> Tensor:
    """The module on a batch of flat images, with these parameters and the lane's buffers, which it may change."""
    module = _skeleton(lane).train(training)
    buffers = {name: own for name, own in lane.buffers.items() if name != SEED}
    own = {name: parameters[name] for name in lane.network.shapes(dense=lane.dense)}
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices), _with_branches(module, lane, parameters):
        torch.manual_seed(stream(_seed(lane), f"step {lane.step}"))
        images = x.view(-1, *lane.network.image)
        logits: Tensor = torch.func.functional_call(module, {**own, **buffers}, (images,))
        return logits


@contextmanager
def _with_branches(module: nn.Module, lane: Model, parameters: Mapping[str, Tensor]) -> Iterator[None]:
    """Let the lane's layers that are made of parts compute with all of them."""
    hooks = []
    for layer in lane.network.layers if lane.branches else ():
        if (branch := lane.branch_of(layer.name)) is not None:
            parts = dataclasses.replace(lane, parameters=dict(parameters)).parts_of(layer.name, branch.coupling)
            hook = partial(_with_all_parts, layer.spec, branch.coupling, parts)
            hooks.append(module.get_submodule(layer.name).register_forward_hook(hook, with_kwargs=True))
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


def _with_all_parts(
    spec: Spec,
    coupling: Branching,
    parts: Mapping[str, Tensor],
    dense: nn.Module,
    args: tuple[Tensor, ...],
    kwargs: Mapping[str, Tensor],
    y_u: Tensor,
) -> Tensor:
    """What a layer of several parts computes, from what its dense part has: a hook, after those that it is bound to."""
    (x,) = (*args, *kwargs.values())  # a module may name its input
    x = x.reshape(-1, spec.matrix_shape[1])

    def prior() -> Tensor:
        return apply(spec, prior_weight(spec, parts), parts.get("prior.bias"), x).view(y_u.shape)

    return of_parts(coupling, spec, parts, x, y_u, prior)


def _skeleton(lane: Model) -> nn.Module:
    network: ModuleNetwork = lane.network  # type: ignore[assignment]
    return network.skeleton(dense=lane.dense, like=next(iter(lane.parameters.values())))


def _seed(lane: Model) -> int:
    """Read once: on a device it would have to be waited for. All lanes of a model have one seed and one scratch."""
    if SEED not in lane.scratch:
        lane.scratch[SEED] = int(lane.buffers[SEED])
    return int(lane.scratch[SEED])


@contextmanager
def _watched(module: nn.Module, seen: list[tuple[str, Tensor]] | None) -> Iterator[None]:
    """Note the result of each innermost module, by its name."""
    hooks = []

    def hook(name: str) -> Callable[..., None]:
        return lambda own, args, result: seen.append((name, result)) if isinstance(result, Tensor) else None  # type: ignore

    for name, own in module.named_modules() if seen is not None else ():
        if not any(own.children()):
            hooks.append(own.register_forward_hook(hook(name)))
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


def _laid_out(model: Model) -> Model:
    """With every lane aligned, as in accel."""
    if model.lanes is not None:
        model.parameters = {name: aligned(stack) for name, stack in model.parameters.items()}
    return model


def _copied(buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: own.clone() for name, own in buffers.items()}


def _restore(buffers: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> None:
    for name, own in kept.items():
        buffers[name].copy_(own)


def _check(model: Model, x: Tensor, *labels: Tensor) -> None:
    check_tensor(x, "images")
    batch_fits(model, x.shape, *(y.shape for y in labels))
    beside = next(iter(model.parameters.values()))
    if x.dtype != beside.dtype or x.device != beside.device:
        raise ArrayError(
            f"images of {x.dtype} on {x.device} for a model of {beside.dtype} on {beside.device}",
            f"convert them with .to({str(beside.device)!r}, {beside.dtype})",
        )


def _dtype(dtype: Any) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else torch.float32 if dtype is None else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ArrayError(f"dtype is {dtype!r}", "use float32 or float64")
    return found


if TYPE_CHECKING:  # mypy compares this module with the interface
    import imlp.train.modules
    from imlp.backend import Backend

    _implements: Backend[Tensor] = imlp.train.modules
