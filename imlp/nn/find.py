"""Which layers of a module have a dense form, found by one forward pass: their specs, shapes and sizes.

The module is only a tree: what happens between its layers (residuals, norms, attention) is never looked at. A layer
whose dense form would not be the same function is refused by name.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from imlp.errors import ImlpError, ModuleError
from imlp.nn.choice import Layers, choose
from imlp.nn.same import UnevenConv
from imlp.spec import Conv, Shape, Shared, Spec

KINDS = (nn.Conv2d, nn.Conv1d, nn.Linear, nn.AvgPool2d)


@dataclass(frozen=True)
class Found:
    """A layer with its spec, and the shapes of one image before and after it."""

    name: str
    kind: str
    spec: Spec
    in_shape: Shape
    out_shape: Shape
    bias: bool

    @property
    def numbers(self) -> int:
        """How many numbers its dense form holds."""
        m_out, m_in = self.spec.matrix_shape
        return m_out * (m_in + self.bias)


@dataclass(frozen=True)
class Plan:
    """The layers to be replaced, and those that stay as they are because they are never called, with the reason."""

    layers: tuple[Found, ...]
    left: dict[str, str] = field(default_factory=dict)

    @property
    def numbers(self) -> int:
        return sum(layer.numbers for layer in self.layers)


def find(module: nn.Module, input_shape: Shape | Tensor, layers: Layers = None) -> Plan:
    """What `densify` would replace, in the order of the forward pass; nothing of the size of a matrix is allocated.

    `input_shape` is that of one image, without the batch, or an example batch of at least two.

    >>> found = find(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), (3, 8, 8)).layers[0]
    >>> found.name, found.spec.matrix_shape, found.out_shape
    ('0', (144, 192), (4, 6, 6))
    """
    _refuse_lazy(module)
    candidates: dict[str, nn.Module] = {name: own for name, own in module.named_modules() if isinstance(own, KINDS)}
    calls = _calls(module, _example(module, input_shape), candidates)
    chosen = choose(candidates, layers, [name for name, own in candidates.items() if _by_default(own, calls[name])])
    by_name = [layers] if isinstance(layers, str) else [] if layers is None or isinstance(layers, type) else layers
    left = {name: "never called in the forward pass" for name in chosen if not calls[name]}
    for name in left:
        if name in by_name:
            raise _refusal(name, "it is never called in the forward pass", "")
    _refuse_shared(module, candidates, [name for name in chosen if name not in left])
    order = {name: n for n, name in enumerate(calls.order)}
    found = [_found(name, candidates[name], calls[name], calls.batch) for name in chosen if name not in left]
    if not found:
        raise ModuleError("no layer of the module has a dense form", "it needs a convolution, or name other layers")
    return Plan(tuple(sorted(found, key=lambda layer: order[layer.name])), left)


class _Calls(dict[str, list[tuple[Shape, Shape]]]):
    """By layer: input and output shape of each call."""

    batch: int
    order: list[str]


def _calls(module: nn.Module, example: Tensor, candidates: dict[str, nn.Module]) -> _Calls:
    calls = _Calls({name: [] for name in candidates})
    calls.batch, calls.order = len(example), []

    def note(name: str, own: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        x = next(iter((*args, *kwargs.values())))
        calls[name].append((tuple(x.shape), tuple(output.shape)))
        calls.order.append(name)

    hooks = [own.register_forward_hook(partial(note, name), with_kwargs=True) for name, own in candidates.items()]
    try:
        with undisturbed(module), torch.no_grad():
            module(example)
    except ImlpError:
        raise
    except Exception as error:  # whatever the module's own code raises
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        problem = f"the module cannot take a batch of shape {tuple(example.shape)}: {reason:.200}"
        raise ModuleError(problem, "give the shape of one image as the module takes it") from error
    finally:
        for hook in hooks:
            hook.remove()
    return calls


@contextmanager
def undisturbed(*modules: nn.Module) -> Iterator[None]:
    """In evaluation mode, with the modes and torch's random numbers as they were afterwards."""
    modes = [(own, own.training) for module in modules for own in module.modules()]
    devices = {p.device.index for module in modules for p in module.parameters() if p.device.type == "cuda"}
    try:
        with torch.random.fork_rng(sorted(n for n in devices if n is not None)):
            for module in modules:
                module.eval()
            yield
    finally:
        for own, mode in modes:
            own.training = mode


def _example(module: nn.Module, input_shape: Shape | Tensor) -> Tensor:
    if isinstance(input_shape, Tensor):
        if len(input_shape) < 2:
            raise ModuleError("the example is a batch of one", "give at least two, so that the batch can be told apart")
        return input_shape
    try:
        shape = tuple(int(size) for size in input_shape)
    except (TypeError, ValueError):
        raise ModuleError(f"input_shape is {input_shape!r}", "give (channels, height, width)") from None
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    return torch.zeros(2, *shape, dtype=like.dtype, device=like.device)


def _by_default(own: nn.Module, calls: list[tuple[Shape, Shape]]) -> bool:
    """Convolutions, and linear layers that serve more than one row."""
    return isinstance(own, nn.Conv2d | nn.Conv1d) or (isinstance(own, nn.Linear) and any(len(x) > 2 for x, _ in calls))


def _found(name: str, own: nn.Module, calls: list[tuple[Shape, Shape]], batch: int) -> Found:
    shapes = {x for x, _ in calls}
    if len(shapes) > 1:
        several = " and ".join(str(shape[1:]) for shape in sorted(shapes))
        raise _refusal(name, f"it is called with different shapes, {several}", "")
    if len(calls) > 1:
        raise _refusal(name, f"it is used {len(calls)} times, with one weight", "make a layer for each use, or ")
    (x, y), *_ = calls
    plain = next(kind for kind in KINDS if isinstance(own, kind))
    for method in ("forward", "_conv_forward"):
        if getattr(type(own), method, None) is not getattr(plain, method, None):
            raise _refusal(name, f"its class {type(own).__name__} computes something else than {plain.__name__}", "")
    if x[0] != batch or y[0] != batch or len(x) != len(y):
        raise _refusal(name, f"the first axis of its input, {x}, is not the batch of {batch}", "")
    try:
        spec = _spec(own, x[1:])
    except ModuleError as error:
        raise _refusal(name, error.problem, "") from None
    return Found(name, plain.__name__, spec, x[1:], y[1:], getattr(own, "bias", None) is not None)


def _spec(own: nn.Module, in_shape: Shape) -> Spec:
    match own:
        case nn.Linear():
            return Shared(prod(in_shape[:-1]), own.in_features, own.out_features)
        case nn.Conv2d():
            if len(in_shape) != 3:
                raise ModuleError("it is called without a batch")
            return _convolution(own, in_shape)
        case nn.Conv1d():
            return _convolution(own, (in_shape[0], 1, in_shape[1]))
        case nn.AvgPool2d():
            if own.ceil_mode or (own.padding != 0 and own.padding != (0, 0) and not own.count_include_pad):
                raise ModuleError("it divides by another number at the border (ceil_mode, count_include_pad)")
            c = in_shape[0]
            return Conv(in_shape, c, kernel=own.kernel_size, stride=own.stride, padding=own.padding, groups=c)  # type: ignore
    raise TypeError(f"{type(own).__name__} has no spec")


def _convolution(own: nn.Conv1d | nn.Conv2d, image: Shape) -> Spec:
    """Its spec on `(channels, height, width)`; in one dimension the height is 1."""
    if own.padding_mode != "zeros":
        raise ModuleError(f"its padding mode is {own.padding_mode!r}, and only zeros are linear in place")
    flat = 2 - len(own.kernel_size)
    kernel, stride, dilation = ((1,) * flat + tuple(given) for given in (own.kernel_size, own.stride, own.dilation))
    geometry: dict[str, Any] = {"kernel": kernel, "dilation": dilation, "groups": own.groups}
    if own.padding == "same":
        reach = [gap * (size - 1) for size, gap in zip(kernel, dilation, strict=True)]
        before = tuple(each // 2 for each in reach)
        if any(each % 2 for each in reach):
            after = tuple(each - first for each, first in zip(reach, before, strict=True))
            return UnevenConv(image, own.out_channels, before=before, after=after, **geometry)
        padding = before
    else:
        given = (0,) * len(own.kernel_size) if own.padding == "valid" else own.padding
        padding = (0,) * flat + tuple(int(size) for size in given)
    return Conv(image, own.out_channels, stride=stride, padding=padding, **geometry)  # type: ignore[arg-type]


def _refuse_lazy(module: nn.Module) -> None:
    for name, own in module.named_modules():
        if isinstance(own, LazyModuleMixin) and own.has_uninitialized_params():  # type: ignore[misc]
            raise ModuleError(f"{name} is lazy: it has no weight yet", "run a batch through the module first")


def _refuse_shared(module: nn.Module, candidates: dict[str, nn.Module], chosen: list[str]) -> None:
    """Two names for one layer, or one weight in two places: the dense form has no such tie."""
    names: dict[int, list[str]] = {}
    for name, own in module.named_modules(remove_duplicate=False):
        for part, parameter in own.named_parameters(recurse=False, remove_duplicate=False):
            names.setdefault(id(parameter), []).append(f"{name}.{part}".lstrip("."))
    for name in chosen:
        for parameter in candidates[name].parameters(recurse=False):
            if len(others := names[id(parameter)]) > 1:
                raise _refusal(name, f"its weight is shared: it is {' and '.join(others)}", "give each its own, or ")


def _refusal(name: str, reason: str, remedy: str) -> ModuleError:
    shown = name or "the module"
    return ModuleError(f"{shown} has no dense form: {reason}", f"{remedy}leave it out: layers=['!{name}']")
