"""Which layers of a module have a dense form, found by running a copy of it: their specs, shapes and sizes.

The module is only a tree: what happens between its layers (residuals, norms, attention) is never looked at. A layer
whose dense form would not be the same function is refused by name. The copy runs without numbers where it can, on two
sizes of batch, which tell the batch from all other axes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import prod
from operator import index
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from imlp.errors import OUTSIDERS, ImlpError, ModuleError, in_a_line, known
from imlp.machine import free_memory
from imlp.nn.choice import Layers, Refused, RefusedError, choose, listed, refusal
from imlp.nn.geometry import CONVOLUTIONS, LAYER_CLASSES, plain_class, spec_of
from imlp.nn.pairs import MAKERS, current, tie_of, ties
from imlp.nn.watch import Calls, Watch, copied, undisturbed
from imlp.spec import Shape, Spec

NEVER_CALLED = "never called in the forward pass"
WRAPPERS = {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "OptimizedModule"}
LARGEST_RESULT = 100  # times the input: what a module that needs numbers is expected to hold at a time


@dataclass(frozen=True)
class Found:
    """A layer with its spec, and the shapes of one image before and after it."""

    name: str
    kind: str
    spec: Spec
    in_shape: Shape
    out_shape: Shape
    bias: bool
    windows: int = 1  # of each image, that are examples to this layer: it is the same one for all of them

    @property
    def numbers(self) -> int:
        m_out, m_in = self.spec.matrix_shape
        return m_out * (m_in + self.bias)


@dataclass(frozen=True)
class Plan:
    """The layers to be replaced, and those that stay as they are, with the reason: never called, or no dense form."""

    layers: tuple[Found, ...]
    left: dict[str, str] = field(default_factory=dict)
    pass_bytes: int = 0  # that the largest operation of a forward pass on three images holds

    @property
    def numbers(self) -> int:
        return sum(layer.numbers for layer in self.layers)

    def without(self, refused: Iterable[Refused]) -> "Plan":
        left = {one.name: f"{one.reason}{one.detail}" for one in refused}
        layers = tuple(layer for layer in self.layers if layer.name not in left)
        return replace(self, layers=layers, left=self.left | left)


def find(
    module: nn.Module,
    input_shape: Shape | Tensor,
    layers: Layers = None,
    *,
    skip: Literal["refused"] | None = None,
) -> Plan:
    """What `densify` would replace, in the order of the forward pass; nothing of the size of a matrix is allocated.

    `input_shape` is that of one image, without the batch, or an example batch. Layers without a dense form are refused
    by name, all at once, or with `skip="refused"` left as they are.

    >>> found = find(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), (3, 8, 8)).layers[0]
    >>> found.name, found.spec.matrix_shape, found.out_shape
    ('0', (144, 192), (4, 6, 6))
    """
    if skip is not None:
        known(skip, ("refused",), "skip", ModuleError)
    _refuse_what_cannot_run(module)
    candidates: dict[str, nn.Module] = {name: m for name, m in module.named_modules() if isinstance(m, LAYER_CLASSES)}
    batches = [example(module, input_shape, more) for more in (0, 1)]
    watches = _watched(module, batches)
    calls = watches[0].calls
    chosen = choose(candidates, layers, [name for name, m in candidates.items() if _by_default(m, calls[name])])
    left = {name: NEVER_CALLED for name in chosen if not calls[name] and name not in listed(layers)}
    groups, found, refused = ties(module), [], list[Refused]()
    for name in (name for name in chosen if name not in left):
        try:
            found.append(_found(name, candidates[name], len(batches[0]), watches, groups))
        except RefusedError as error:
            refused += error.layers
    if refused and (skip is None or not found):
        raise RefusedError(refused, layers)
    if not found:
        raise ModuleError("no layer of the module has a dense form", "it needs a convolution, or name other layers")
    order, pass_bytes = list(calls), max(watch.most_bytes for watch in watches)
    return Plan(tuple(sorted(found, key=lambda layer: order.index(layer.name))), left, pass_bytes).without(refused)


def _watched(module: nn.Module, batches: list[Tensor]) -> list[Watch]:
    """A pass on each batch: without numbers, or where the module needs them with numbers, unless they are too many."""
    try:
        empty = [torch.empty_like(batch, device="meta") for batch in batches]
        return [_watch(copied(module, meta=True), batch, module) for batch in empty]
    except OUTSIDERS as error:  # whatever the module's own code raises
        device, batch = a_parameter(module).device, batches[0]
        if device.type == "meta":
            raise cannot_take(batch, error) from error
        if LARGEST_RESULT * batch.nbytes > free_memory(str(device)):
            raise cannot_take(batch, error, ", or a smaller one: this one is too large to try with numbers") from error
    try:
        return [_watch(copied(module), filled(module, batch), module) for batch in batches]
    except OUTSIDERS as error:
        raise cannot_take(batch, error) from error


def _watch(module: nn.Module, batch: Tensor, original: nn.Module) -> Watch:
    """A pass of a copy; functions that it shares with the original may read the numbers of that one."""
    layers, theirs = (
        {name: layer for name, layer in each.named_modules() if isinstance(layer, LAYER_CLASSES)}
        for each in (module, original)
    )
    with undisturbed(module), torch.no_grad(), Watch(layers, theirs) as watch:
        module(batch)
    return watch


def cannot_take(batch: Tensor, error: BaseException, more: str = "") -> ImlpError:
    """What the module's own code raises, in a line."""
    if isinstance(error, ImlpError):
        return error
    problem = f"the module cannot take a batch of shape {tuple(batch.shape)}: {in_a_line(error)}"
    one, *rest = batch.shape[1:]
    such = f"without a batch: {tuple(rest)}" if one == 1 and rest else "such as (3, 224, 224) or --image 3x224x224"
    return ModuleError(problem, f"give the shape of one image as the module takes it, {such}{more}")


def example(module: nn.Module, input_shape: Shape | Tensor, more: int = 0) -> Tensor:
    """A batch of two, on the `meta` device, or the one that was given, a single example twice; with `more` examples."""
    if isinstance(input_shape, Tensor):
        if input_shape.ndim == 0 or not len(input_shape):
            raise ModuleError("the example is a batch of none", "give at least one: the first axis is the batch")
        at_least_two = input_shape if len(input_shape) > 1 else torch.cat([input_shape] * 2)
        return torch.cat([at_least_two, at_least_two[:more]])
    try:
        shape = tuple(index(size) for size in input_shape)
        if not shape or min(shape) < 1:
            raise ValueError
        return torch.empty(2 + more, *shape, dtype=a_parameter(module).dtype, device="meta")
    except (TypeError, ValueError):
        raise ModuleError(f"input_shape is {input_shape!r:.80}", "give (channels, height, width)") from None
    except RuntimeError as error:  # more numbers than torch can count
        raise ModuleError(f"input_shape is {input_shape!r:.80}: {in_a_line(error)}", "give a smaller one") from None


def filled(module: nn.Module, batch: Tensor) -> Tensor:
    """The batch with numbers: those it has, or random ones, the same in every call."""
    if not batch.is_meta:
        return batch
    numbers = torch.randn(batch.shape, generator=torch.Generator().manual_seed(0))
    return numbers.to(a_parameter(module).device, batch.dtype)


def a_parameter(module: nn.Module) -> Tensor:
    return next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))


def _by_default(layer: nn.Module, calls: Calls) -> bool:
    return isinstance(layer, CONVOLUTIONS) or (isinstance(layer, nn.Linear) and any(len(x) > 2 for x, _ in calls))


def _found(name: str, layer: nn.Module, batch: int, watches: list[Watch], groups: list[list[str]]) -> Found:
    """The layer by its calls with a batch, and with a batch of one more; windows of an image are part of the batch."""
    calls, of_one_more = (watch.calls[name] for watch in watches)
    if not calls:
        raise refusal(name, f"it is {NEVER_CALLED}")
    if others := tie_of(name, groups):
        raise refusal(name, f"its weight is shared: it is {' and '.join(others)}", remedy="give each its own, or ")
    _refuse_hooks(name, layer)
    shapes = {x for x, _ in calls}
    if len(shapes) > 1:
        several = " and ".join(str(shape[1:]) for shape in sorted(shapes))
        raise refusal(name, "it is called with different shapes", f", {several}")
    if len(calls) > 1:
        remedy = "make a layer for each use, or "
        raise refusal(name, f"it is used {len(calls)} times, with one weight", remedy=remedy)
    ((x, y),) = calls
    windows = x[0] // batch
    one_more = windows * (batch + 1)
    expected = [((one_more, *x[1:]), (one_more, *y[1:]))]
    if x[0] != windows * batch or y[0] != x[0] or len(x) != len(y) or of_one_more != expected:
        raise refusal(name, "the first axis of its input is not the batch", f" of {batch}: {x}")
    try:
        spec = spec_of(layer, x[1:])
    except ImlpError as error:
        raise refusal(name, error.problem) from None
    if prod(y[1:]) != spec.matrix_shape[0]:
        raise refusal(name, "it is called with more than its input", ", such as output_size")
    for reader in (watch.readers[name] for watch in watches if name in watch.readers):
        reason, detail = "its weight is read outside of it as well", f" (by {reader}), and a matrix would be read"
        raise refusal(name, reason, f"{detail} instead", remedy="read another parameter there, or ")
    return Found(name, plain_class(layer).__name__, spec, x[1:], y[1:], current(layer, "bias") is not None, windows)


def _refuse_what_cannot_run(module: nn.Module) -> None:
    """What is no module, is spread over processes, has no weight yet, or calls code that a copy would share."""
    if not isinstance(module, nn.Module):
        raise ModuleError(f"the module is {module!r:.60}", "give a torch.nn.Module")
    for name, part in module.named_modules():
        shown = name or "the module"
        if isinstance(part, LazyModuleMixin) and part.has_uninitialized_params():  # type: ignore[misc]
            raise ModuleError(f"{shown} is lazy: it has no weight yet", "run a batch through the module first")
        if wrappers := WRAPPERS & {kind.__name__ for kind in type(part).__mro__}:
            problem = f"{shown} is wrapped in {wrappers.pop()}, which holds on to the parameters that it was given"
            raise ModuleError(problem, "densify the module inside first, and wrap the dense form then")
        if "forward" in vars(part):
            problem = f"the forward of {shown} was replaced on the instance, and a copy would run the original's"
            undo = "remove_hook_from_module(module, recurse=True)"
            raise ModuleError(problem, f"remove it first (accelerate: {undo}), or put it into a class")


def _refuse_hooks(name: str, layer: nn.Module) -> None:
    """Hooks that the dense layer would not have; those that only compute the weight are no loss."""
    for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        if not all(isinstance(hook, MAKERS) for hook in getattr(layer, kind).values()):
            what = kind.strip("_").replace("_", " ").removesuffix("s")
            raise refusal(name, f"it has a {what}", remedy="remove the hook and add it to the dense layer, or ")
    if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in layer.parameters()):
        raise refusal(name, "a number of it has a hook", remedy="remove the hook and add it to the dense layer, or ")
