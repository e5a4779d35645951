"""The dense layers of a model beside the layers of its prior, and the numbers that a layer computes with.

Those may be made of other parameters: by `torch.nn.utils.parametrize` whenever they are read, by the older
`weight_norm`, `spectral_norm` and `prune` before each forward pass, so that they are those of the last one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

from torch import Tensor, finfo, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from imlp.errors import ImlpError, ModuleError
from imlp.nn.choice import Layers, choose
from imlp.nn.dense import Dense
from imlp.nn.geometry import LAYER_CLASSES, computed_with, spec_of
from imlp.nn.watch import copied, undisturbed
from imlp.spec import Shared, Spec

MADE_OF = "give the module that was densified"
MAKERS = WeightNorm | SpectralNorm | BasePruningMethod  # torch's older hooks that make a weight before a pass
NEWER = "use torch.nn.utils.parametrize and torch.nn.utils.parametrizations, or make it a parameter"


class Pair(NamedTuple):
    """A dense layer, and the prior's layer of the same name (None: there is no prior)."""

    dense: Dense
    prior: nn.Module | None


def pairs(model: nn.Module, prior: nn.Module | None, layers: Layers = None) -> dict[str, Pair]:
    """The chosen dense layers of the model with those of the prior, each checked against the other."""
    model, prior = unwrapped(model), None if prior is None else unwrapped(prior)
    dense = {name: layer for name, layer in model.named_modules() if isinstance(layer, Dense)}
    if not dense:
        raise ModuleError("the model has no dense layers", "make it with imlp.nn.densify(prior, input_shape)")
    beside = {} if prior is None else dict(prior.named_modules())
    chosen_pairs = {}
    for name in choose({name: beside.get(name, layer) for name, layer in dense.items()}, layers, dense):
        small, layer = beside.get(name), dense[name]
        if prior is not None:
            if small is None or isinstance(small, Dense):
                what = "no layer" if small is None else "a dense layer"
                raise ModuleError(f"the prior has {what} {name or 'there'}", MADE_OF)
            with of_layer(name):
                _check_geometry(small, layer)
        chosen_pairs[name] = Pair(layer, small)
    return chosen_pairs


@contextmanager
def of_layer(name: str) -> Iterator[None]:
    """Say in a refusal which layer it is about."""
    try:
        yield
    except ModuleError as error:
        raise ModuleError(f"layer {name}: {error.problem}" if name else error.problem, error.remedy) from error


def _check_geometry(small: nn.Module, dense: Dense) -> None:
    """Refuse a layer of the prior whose matrix is not of the family that the dense layer was made for."""
    if not isinstance(small, LAYER_CLASSES):
        raise ModuleError(f"{type(small).__name__} is not the layer of {dense.spec}", MADE_OF)
    rows = isinstance(small, nn.Linear) and isinstance(dense.spec, Shared)  # a linear layer takes any number of them
    try:
        spec = spec_of(small, (dense.spec.rows, small.in_features) if rows else dense.in_shape)  # type: ignore
    except ImlpError as error:
        raise ModuleError(f"the prior's {small} is not the layer of {dense.spec}: {error.problem}", MADE_OF) from error
    if spec != dense.spec:
        raise ModuleError(f"the prior has {spec}, but the model {dense.spec}", MADE_OF)
    for part in ("weight", "bias"):
        current(small, part)  # which refuses what it cannot compute


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside what `torch.compile` and DistributedDataParallel put around it."""
    if not isinstance(module, nn.Module):
        raise ModuleError(f"the model is {module!r:.60}", "give a torch.nn.Module")
    parallel = isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel)
    inner = getattr(module, "module" if parallel else "_orig_mod", None)
    return unwrapped(inner) if isinstance(inner, nn.Module) else module


def prior_numbers(layer: nn.Module, spec: Spec, *, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a structured layer, with the shapes of its spec and the type and device of `like`."""
    if isinstance(layer, nn.AvgPool2d):
        mean = 1 / (layer.divisor_override or prod(spec.kernel))  # type: ignore[attr-defined]
        return like.new_full(spec.weight_shape or (), mean), None
    weight, bias = (current(layer, part) for part in ("weight", "bias"))
    if weight is None or weight.numel() != prod(spec.weight_shape or ()):
        raise ModuleError(f"{type(layer).__name__} is not the layer of {spec}", MADE_OF)
    return weight.reshape(spec.weight_shape or ()).to(like), None if bias is None else bias.to(like)


def is_computed(layer: nn.Module, part: str) -> bool:
    if is_parametrized(layer, part) or computed_with(layer, part) is not None:  # not read: that could move its buffers
        return True
    return part not in layer._parameters and part not in layer._buffers and getattr(layer, part, None) is not None


def current(layer: nn.Module, part: str) -> Tensor | None:
    """The `weight` or `bias` that a layer would compute with now; nothing of the layer is changed."""
    held = computed_with(layer, part)
    if held is None and is_parametrized(layer, part):
        held = _parametrised(layer, part)
    elif held is None:
        held = _before_a_pass(layer, part) if is_computed(layer, part) else getattr(layer, part, None)
    return None if held is None else held.detach()


def _parametrised(layer: nn.Module, part: str) -> Tensor:
    """Computed in evaluation mode and with copies of its buffers: spectral_norm would move them."""
    made: ParametrizationList = layer.parametrizations[part]  # type: ignore[index, assignment]
    with undisturbed(made):
        return functional_call(made, {name: buffer.clone() for name, buffer in made.named_buffers()}, ())


def _before_a_pass(layer: nn.Module, part: str) -> Tensor:
    """What the hooks of torch's older functions put there, in a copy and in evaluation mode."""
    layer = copied(layer).eval()
    makers = [hook for hook in layer._forward_pre_hooks.values() if isinstance(hook, MAKERS)]
    if not any(part in (getattr(hook, "name", ""), getattr(hook, "_tensor_name", "")) for hook in makers):
        raise ModuleError(f"the {part} of {type(layer).__name__} is computed in a way that imlp does not know", NEWER)
    for hook in makers:
        hook(layer, ())
    return getattr(layer, part)


def put(layer: nn.Module, part: str, value: Tensor) -> None:
    """Make `value` the weight or bias that a layer computes with, by `right_inverse` if it is parametrised."""
    if not is_computed(layer, part):
        getattr(layer, part).copy_(value)
        return
    shown = f"the {part} of {type(layer).__name__}"
    if not is_parametrized(layer, part):
        raise ModuleError(f"{shown} is computed before each forward pass, and cannot be set", NEWER)
    by = ", ".join(type(each).__name__ for each in layer.parametrizations[part])  # type: ignore[index]
    try:
        setattr(layer, part, value.to(current(layer, part)))
    except (NotImplementedError, RuntimeError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ModuleError(f"{shown} is computed by {by}, and cannot be set: {reason}", "remove it first") from error
    made = current(layer, part)
    assert made is not None
    if not (made - value).abs().max() <= 64 * finfo(made.dtype).eps * value.abs().max():
        raise ModuleError(f"{shown} is computed by {by}, and cannot be what it should be", "remove it first")


def ties(module: nn.Module) -> list[list[str]]:
    """Names of parameters that share memory, group by group: one object at two places, or two tensors of one memory."""
    spans = []
    for name, layer in module.named_modules(remove_duplicate=False):
        tensors: dict[str, Tensor | None] = dict(layer.named_parameters(recurse=False, remove_duplicate=False))
        tensors |= {part: current(layer, part) for part in ("weight", "bias") if is_parametrized(layer, part)}
        spans += [(*_memory(each), f"{name}.{part}".lstrip(".")) for part, each in tensors.items() if each is not None]
    groups: list[list[str]] = []
    place, last = "", 0
    for device, start, end, name in sorted(spans):
        if device == place and start < last:
            groups[-1].append(name)
        else:
            groups.append([name])
        place, last = device, max(end, last if device == place else 0)
    return [group for group in groups if len(group) > 1]


def tie_of(layer: str, groups: list[list[str]]) -> list[str]:
    """The names of a number of this layer that another has, too; none if it shares nothing."""
    inside = f"{layer}." if layer else ""
    shared = [group for group in groups if 0 < sum(name.startswith(inside) for name in group) < len(group)]
    return min(shared, key=lambda group: not any(name.endswith("weight") for name in group), default=[])


def _memory(tensor: Tensor) -> tuple[str, int, int]:
    """Device, first byte and the one after the last; the object itself where there is no memory."""
    try:
        start = tensor.data_ptr()
    except RuntimeError:
        start = 0
    if not start or not tensor.numel():
        return "", id(tensor), id(tensor) + 1
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return str(tensor.device), start, start + (reach + 1) * tensor.element_size()
