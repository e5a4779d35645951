"""The forward pass of a module, watched: which layers it calls with which shapes, and who else reads their numbers.

A copy runs, in evaluation mode, so that the module and torch's random numbers stay as they are, bit by bit; on the
`meta` device, where tensors have shapes but no numbers, it takes neither time nor memory.
"""

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from imlp.errors import OUTSIDERS, ModuleError, in_a_line
from imlp.spec import Shape

# What a dense layer answers as the layer did that it replaces
HARMLESS = {"dtype", "device", "layout", "requires_grad", "grad", "grad_fn", "get_device", "element_size"}


def copied(module: nn.Module, *, meta: bool = False, instead: Mapping[nn.Module, nn.Module] | None = None) -> nn.Module:
    """A copy of the module; with `meta`, one without numbers. It has the layers of `instead` in place of their keys.

    A weight that was computed (by `weight_norm`) is copied as it is: torch refuses to, but the layer computes it again.
    """
    memo: dict[int, Any] = {id(part): layer for part, layer in (instead or {}).items()}
    for part in module.modules():
        for tensor in (*part._parameters.values(), *part._buffers.values(), *vars(part).values()):
            if isinstance(tensor, Tensor) and meta:
                empty = torch.empty_like(tensor, device="meta", requires_grad=False)
                is_parameter = isinstance(tensor, nn.Parameter)
                memo[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
            elif isinstance(tensor, Tensor) and not tensor.is_leaf:
                memo[id(tensor)] = tensor.detach().clone()
    try:
        return copy.deepcopy(module, memo)
    except OUTSIDERS as error:  # whatever its attributes raise
        raise ModuleError(f"the module cannot be copied: {in_a_line(error)}", "take out what cannot be") from error


Calls: TypeAlias = list[tuple[Shape, Shape]]  # input and output of each


class Watch(TorchFunctionMode):
    """Notes the calls of a copy's `layers`, and which torch functions read their numbers, or `theirs`, elsewhere."""

    def __init__(self, layers: Mapping[str, nn.Module], theirs: Mapping[str, nn.Module]):
        super().__init__()
        self.calls: dict[str, Calls] = defaultdict(list)  # in the order in which they end
        self.readers: dict[str, str] = {}  # layer: function
        self.most_bytes = 0  # that a single operation reads and writes
        self._running = [""]
        self._owners: dict[int, tuple[Tensor, list[str]]] = {}
        for name, layer in (*layers.items(), *theirs.items()):
            self._own(name, layer)
        for name, layer in layers.items():  # a copy is not needed afterwards: its hooks stay
            layer.register_forward_pre_hook(partial(self._begin, name), prepend=True)
            layer.register_forward_hook(partial(self._end, name), with_kwargs=True)

    def _own(self, name: str, layer: nn.Module) -> None:
        computed = (tensor for tensor in vars(layer).values() if isinstance(tensor, Tensor))  # by weight_norm, or prune
        for tensor in (*layer.parameters(), *computed):
            names = self._owners.setdefault(id(tensor), (tensor, []))[1]
            names += [name] * (name not in names)

    def _begin(self, name: str, layer: nn.Module, args: Any) -> None:
        self._running.append(name)

    def _end(self, name: str, layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self._running.pop()
        self._own(name, layer)
        self.calls[name].append((tuple(first(args, kwargs).shape), tuple(output.shape)))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        name = func.__self__.__name__ if name == "__get__" else name
        if name in HARMLESS or name.startswith("is_"):
            return result
        read = list(tensors((args, kwargs)))
        self.most_bytes = max(self.most_bytes, sum(t.numel() * t.element_size() for t in (*read, *tensors(result))))
        for tensor in read:
            for owner in self._owners.get(id(tensor), (tensor, []))[1]:
                if self._running[-1] not in self._owners[id(tensor)][1]:
                    self.readers.setdefault(owner, name)
        return result


@contextmanager
def undisturbed(*modules: nn.Module) -> Iterator[None]:
    """In evaluation mode, with the modes and torch's random numbers as they were afterwards."""
    modes = [(part, part.training) for module in modules for part in module.modules()]
    devices = {p.device.index for module in modules for p in module.parameters() if p.device.type == "cuda"}
    try:
        with torch.random.fork_rng(sorted(n for n in devices if n is not None)):
            for module in modules:
                module.eval()
            yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def hooked(layers: Mapping[str, nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    """Call `hook(name, layer, x, y)` after each of these layers; what it returns, unless None, replaces `y`."""

    def noted(name: str, layer: nn.Module, args: Any, kwargs: Any, y: Any) -> Any:
        return hook(name, layer, first(args, kwargs), y)

    hooks = [layer.register_forward_hook(partial(noted, name), with_kwargs=True) for name, layer in layers.items()]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists, dictionaries and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors(list(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from tensors([getattr(value, field.name) for field in dataclasses.fields(value)])


def first(args: Any, kwargs: Any) -> Any:
    """The input of a layer, however it was given."""
    return next(iter((*args, *kwargs.values())))
