"""A dense model beside its prior: the nearest prior, how much structure the model holds, and where the two differ."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from imlp.accel import measure, measure_random, project
from imlp.errors import ModuleError
from imlp.nn.choice import Layers
from imlp.nn.find import undisturbed
from imlp.nn.pairs import pairs, prior_numbers, project_bias, unwrapped
from imlp.nn.table import Table


@torch.no_grad()
def project_(prior: nn.Module, model: nn.Module, *, layers: Layers = None, rest: bool = True) -> nn.Module:
    """Make `prior` the nearest one to a dense model, in place: layer by layer in least squares.

    With `rest`, norms, heads and whatever else both have are copied as they are.

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten())
    >>> model, other = densify(prior, (1, 4, 4), init="prior"), nn.Sequential(nn.Conv2d(1, 2, 3, padding=1))
    >>> torch.allclose(project_(other, model)[0].weight, prior[0].weight)
    True
    """
    chosen = pairs(model, prior, layers)
    for dense, own in chosen.values():
        weight = getattr(own, "weight", None)
        if weight is not None:
            found = project(dense.weight.detach(), dense.spec)
            assert found is not None
            weight.copy_(found.view(weight.shape))
        bias = getattr(own, "bias", None)
        if bias is not None and dense.bias is not None:
            bias.copy_(project_bias(dense.bias.detach(), dense.spec))
    if rest:
        replaced = tuple(f"{name}." if name else "" for name in pairs(model, prior))
        theirs = unwrapped(model).state_dict()
        for name, tensor in unwrapped(prior).state_dict().items():
            if not name.startswith(replaced) and name in theirs:
                tensor.copy_(theirs[name])
    return prior


@torch.no_grad()
def bias_meter(model: nn.Module, prior: nn.Module | None = None, *, layers: Layers = None) -> Table:
    """How much structure each dense layer holds, and which.

    `shared` is the part of `|W|^2` in the prior's subspace, `local` what else stands where a prior can be non-zero,
    `outside` the rest. Given a prior, `distance` is how far the nearest one is from the prior's own weight, relative to
    that weight's norm. `random_shared` and so on are the parts of a random matrix.
    """
    table = Table()
    for name, (dense, own) in pairs(model, prior, layers).items():
        weight = None if own is None else prior_numbers(own, dense.spec, like=dense.weight)[0]
        found = {key: float(number) for key, number in measure(dense.weight.detach(), dense.spec, weight).items()}
        of_random = {f"random_{part}": value for part, value in measure_random(dense.spec).items()}
        table[name] = {**found, **of_random}
    return table


@torch.no_grad()
def verify(model: nn.Module, prior: nn.Module, x: Tensor, *, layers: Layers = None) -> Table:
    """The largest difference between prior and dense form on a batch `x`, layer by layer and at the end.

    Both layers of a pair are given what reaches the prior's, so that no layer answers for those before it; the row
    `output` compares the whole networks. `error` is relative to the largest number, `scale`, of the prior's result.
    Both networks run in evaluation mode.
    """
    model, prior = unwrapped(model), unwrapped(prior)
    chosen, table = pairs(model, prior, layers), Table()

    def compare(name: str, own: nn.Module, args: Any, kwargs: Any, result: Tensor) -> None:
        given, dense = next(iter((*args, *kwargs.values()))), chosen[name].dense
        table[name] = _difference(dense(given.to(dense.weight)), result)

    watched = [(name, pair.own) for name, pair in chosen.items() if pair.own is not None]
    hooks = [own.register_forward_hook(partial(compare, name), with_kwargs=True) for name, own in watched]
    try:
        with undisturbed(model, prior):
            expected = prior(x)
            for hook in hooks:
                hook.remove()
            found = model(x)
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(expected, Tensor):
        raise ModuleError(
            f"the prior returns a {type(expected).__name__}", "verify compares networks that return one tensor"
        )
    return Table({**table, "output": _difference(found, expected)})


def _difference(found: Tensor, expected: Tensor) -> dict[str, Any]:
    wide = torch.float64 if expected.device.type != "mps" else torch.float32
    found, expected = found.to(expected.device, wide), expected.to(wide)
    scale = float(expected.abs().max())
    return {"error": float((found - expected).abs().max()) / max(scale, 1e-30), "scale": scale}
