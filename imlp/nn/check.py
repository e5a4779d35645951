"""Whether a dense form is the function that it should be, found by running it; what differs is refused by name."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from imlp.accel import apply
from imlp.errors import OUTSIDERS, ModuleError
from imlp.machine import free_memory
from imlp.nn.choice import Refused, RefusedError
from imlp.nn.find import Plan, a_parameter, cannot_take, filled
from imlp.nn.pairs import prior_numbers
from imlp.nn.watch import copied, hooked, tensors, undisturbed

# The largest difference that rounding explains, relative to the largest number
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 0.05, torch.float16: 0.01}
TF32 = 0.01  # what convolutions in float32 on CUDA may be computed in
OPERATIONS_HELD = 4  # how many of its largest operations a forward pass may hold at a time
MARGIN = 10


@torch.no_grad()
def check_same(module: nn.Module, dense: nn.Module, plan: Plan, batch: Tensor, *, same_output: bool) -> None:
    """Refuse a dense form that is not the module with other layers.

    Each spec is given what reaches its layer in the module and has to return what the layer returns; the dense form has
    to run. All that differ are refused at once. With `same_output` the matrices have to return the same too, and so
    does the whole.
    """
    check_pass_fits(module, plan, remedy="give a smaller image, or check=False")
    x = filled(module, batch)
    wrong: list[Refused] = []
    matrices = {layer.name: dense.get_submodule(layer.name) for layer in plan.layers}
    specs = {layer.name: layer.spec for layer in plan.layers}

    def compare(name: str, layer: nn.Module, given: Tensor, output: Tensor) -> None:
        tolerance = _tolerance(output)
        weight, bias = prior_numbers(layer, specs[name], like=given)
        if same_output:
            result = matrices[name](given)
        else:
            result = apply(specs[name], weight, bias, given.flatten(1)).view_as(output)
        if relative_error([result], [output]) > tolerance:  # only then ask how large the terms of the sums are
            terms = apply(specs[name], weight.abs(), None if bias is None else bias.abs(), given.abs().flatten(1))
            difference = float((result - output).abs().max() / terms.max().clamp(min=1e-30))
            if not difference <= tolerance:
                reason = "its matrix returns something else than the layer"
                wrong.append(Refused(name, reason, f" (off by {difference:.1e})"))

    expected = _outputs(module, x, watched=specs, hook=compare)
    if wrong:
        raise RefusedError(wrong)
    outputs = _outputs(module, x, matrices)
    difference = relative_error(outputs, expected)
    tolerance = _tolerance(a_parameter(module))
    if difference <= tolerance or (not same_output and difference < inf):
        return
    # Some networks magnify rounding: what do errors of that size in these layers do to this one?
    noisy = _outputs(module, x, watched=specs, hook=_add_noise)
    allowed = max(tolerance, MARGIN * relative_error(noisy, expected))
    if difference <= allowed:
        return
    for name, made in matrices.items():
        alone = relative_error(_outputs(module, x, {name: made}), expected)
        if alone > allowed:
            reason = "what the module returns depends on more of it than its output"
            wrong.append(Refused(name, reason, f" (off by {alone:.1e})"))
    if wrong:
        raise RefusedError(wrong)
    raise ModuleError(f"the output of the dense form is off by {difference:.1e}", "choose other layers")


def check_pass_fits(module: nn.Module, plan: Plan, *, remedy: str = "give a smaller image") -> None:
    what = "a forward pass to check the dense form"
    check_fits(what, OPERATIONS_HELD * plan.pass_bytes, a_parameter(module).device, remedy)


def check_fits(what: str, need: int, device: torch.device, remedy: str) -> None:
    free = free_memory(str(device))
    if need > free:
        raise ModuleError(f"{what} takes {need / 1e6:,.0f} MB, but there are {free / 1e6:,.0f} MB", remedy)


def _add_noise(name: str, layer: nn.Module, given: Tensor, output: Tensor) -> Tensor:
    noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    return output + _tolerance(output) * output.abs().max() * noise


def _outputs(
    module: nn.Module,
    x: Tensor,
    layers: Mapping[str, nn.Module] | None = None,
    watched: Iterable[str] = (),
    hook: Any = None,
) -> list[Tensor]:
    """What a copy of the module returns, with some of its layers replaced and some watched: the tensors in it."""
    instead = {module.get_submodule(name): layer for name, layer in (layers or {}).items()}
    runs = copied(module, instead=instead)
    try:
        with undisturbed(runs), hooked({name: runs.get_submodule(name) for name in watched}, hook):
            return [tensor for tensor in tensors(runs(x)) if tensor.is_floating_point()]
    except OUTSIDERS as error:  # whatever the module's own code raises
        raise cannot_take(x, error) from error


def _tolerance(like: Tensor) -> float:
    return TF32 if like.is_cuda and like.dtype == torch.float32 else TOLERANCE.get(like.dtype, 0.05)


def relative_error(results: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest of all tensors, relative to the largest number in each; infinite if they cannot be compared."""
    results, expected = ([tensor.cpu().double() for tensor in each] for each in (results, expected))
    if [tensor.shape for tensor in results] != [tensor.shape for tensor in expected]:
        return inf
    worst = 0.0
    for one, other in zip(results, expected, strict=True):
        finite = other.isfinite()
        if not torch.equal(one.isfinite(), finite):
            return inf
        if finite.any():
            scale = other[finite].abs().max().clamp(min=1e-30)
            worst = max(worst, float((one - other)[finite].abs().max() / scale))
    return worst
