"""The dense layers of a model beside the layers of its prior, by name; and the small numbers of a prior's layer."""

from math import prod
from typing import Any, NamedTuple

from torch import Tensor, nn

from imlp.accel import adjoint_bias
from imlp.errors import ModuleError
from imlp.nn.choice import Layers, choose
from imlp.nn.dense import Dense
from imlp.spec import Spec


class Pair(NamedTuple):
    """A dense layer, and the prior's layer of the same name (None: there is no prior)."""

    dense: Dense
    own: nn.Module | None


def pairs(model: nn.Module, prior: nn.Module | None, layers: Layers = None) -> dict[str, Pair]:
    """The chosen dense layers of the model with those of the prior, each checked against the other."""
    model, prior = unwrapped(model), None if prior is None else unwrapped(prior)
    dense: dict[str, nn.Module] = {name: own for name, own in model.named_modules() if isinstance(own, Dense)}
    if not dense:
        raise ModuleError("the model has no dense layers", "make it with imlp.nn.densify(prior, input_shape)")
    beside = {} if prior is None else dict(prior.named_modules())
    found = {}
    for name in choose(dense, layers, dense):
        own, layer = beside.get(name), dense[name]
        assert isinstance(layer, Dense)
        if prior is not None:
            if own is None or isinstance(own, Dense):
                what = "no layer" if own is None else "a dense layer"
                raise ModuleError(f"the prior has {what} {name or 'there'}", "give the module that was densified")
            prior_numbers(own, layer.spec, like=layer.weight)
        found[name] = Pair(layer, own)
    return found


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside what `torch.compile` and DistributedDataParallel put around it."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def prior_numbers(own: nn.Module, spec: Spec, *, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a structured layer, with the shapes of its spec and the type and device of `like`."""
    if isinstance(own, nn.AvgPool2d):
        return averages(own, spec, like), None
    weight, bias = (getattr(own, part, None) for part in ("weight", "bias"))
    fits = isinstance(weight, Tensor) and weight.numel() == prod(spec.weight_shape or ())
    if not fits or weight is None:
        raise ModuleError(f"{type(own).__name__} is not the layer of {spec}", "give the module that was densified")
    small = weight.detach().reshape(spec.weight_shape or ())
    return small.to(like), None if bias is None else bias.detach().to(like)


def averages(pool: nn.AvgPool2d, spec: Any, like: Tensor) -> Tensor:
    """The kernel that takes means."""
    return like.new_full(spec.weight_shape, 1 / (pool.divisor_override or prod(spec.kernels)))


def project_bias(bias: Tensor, spec: Spec) -> Tensor:
    """The small bias that is nearest to a dense one `(M_out,)`: the mean over the entries that each number fills.

    >>> import torch
    >>> from imlp.spec import Shared
    >>> project_bias(torch.tensor([1.0, 2.0, 3.0, 4.0]), Shared(2, 1, 2))
    tensor([2., 3.])
    """
    filled = bias.numel() // prod(spec.bias_shape or (1,))
    return adjoint_bias(spec, bias) / filled
