"""The weight that a layer computes with, also where it is made of other parameters: read, written, and who shares it.

`torch.nn.utils.parametrize` makes it whenever it is read; the older `weight_norm`, `spectral_norm` and `prune` make it
before each forward pass, so that the attribute `weight` is that of the last pass.
"""

from torch import Tensor, finfo, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from imlp.errors import ModuleError
from imlp.nn.geometry import computed_with
from imlp.nn.watch import undisturbed

NEWER = "use torch.nn.utils.parametrize and torch.nn.utils.parametrizations, or make it a parameter"


def is_computed(layer: nn.Module, part: str) -> bool:
    if is_parametrized(layer, part):  # not read here: that could move its buffers
        return True
    if computed_with(layer, part) is not None:
        return True
    return part not in layer._parameters and part not in layer._buffers and getattr(layer, part, None) is not None


def current(layer: nn.Module, part: str) -> Tensor | None:
    """The `weight` or `bias` that a layer would compute with now; nothing of the layer is changed."""
    held = computed_with(layer, part)
    if held is None and is_computed(layer, part):
        held = (_parametrised if is_parametrized(layer, part) else _before_a_pass)(layer, part)
    elif held is None:
        held = getattr(layer, part, None)
    return None if held is None else held.detach()


def _parametrised(layer: nn.Module, part: str) -> Tensor:
    """Computed in evaluation mode and with copies of its buffers: spectral_norm would move them."""
    made: ParametrizationList = layer.parametrizations[part]  # type: ignore[index, assignment]
    with undisturbed(made):
        value: Tensor = functional_call(made, {name: buffer.clone() for name, buffer in made.named_buffers()}, ())
    return value


def _before_a_pass(layer: nn.Module, part: str) -> Tensor:
    """What the hooks of torch's older functions would put there."""
    for hook in layer._forward_pre_hooks.values():
        if getattr(hook, "name", getattr(hook, "_tensor_name", None)) != part:
            continue
        made_of = ("_g", "_v") if isinstance(hook, WeightNorm) else ("_orig",)
        if any(f"{part}{end}" not in layer._parameters for end in made_of):
            continue  # made of what another hook makes
        if isinstance(hook, WeightNorm):
            return hook.compute_weight(layer)
        if isinstance(hook, SpectralNorm):
            return hook.compute_weight(layer, do_power_iteration=False)
        if isinstance(hook, BasePruningMethod):
            return hook.apply_mask(layer)
    raise ModuleError(f"the {part} of {type(layer).__name__} is computed in a way that imlp does not know", NEWER)


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
        held = dict(layer.named_parameters(recurse=False, remove_duplicate=False))
        made = {part: current(layer, part) for part in ("weight", "bias") if is_parametrized(layer, part)}
        tensors = {**held, **made}
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
