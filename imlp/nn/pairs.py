"""The dense layers of a model beside the layers of its prior, by name; and the small numbers of a prior's layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

from torch import Tensor, nn

from imlp.errors import ImlpError, ModuleError
from imlp.nn.choice import Layers, choose
from imlp.nn.dense import Dense
from imlp.nn.geometry import plain_class, spec_of
from imlp.nn.weights import current
from imlp.spec import Shared, Spec

MADE_OF = "give the module that was densified"


class Pair(NamedTuple):
    """A dense layer, and the prior's layer of the same name (None: there is no prior)."""

    dense: Dense
    prior: nn.Module | None


def pairs(model: nn.Module, prior: nn.Module | None, layers: Layers = None) -> dict[str, Pair]:
    """The chosen dense layers of the model with those of the prior, each checked against the other."""
    model, prior = unwrapped(model), None if prior is None else unwrapped(prior)
    dense: dict[str, nn.Module] = {name: small for name, small in model.named_modules() if isinstance(small, Dense)}
    if not dense:
        raise ModuleError("the model has no dense layers", "make it with imlp.nn.densify(prior, input_shape)")
    beside = {} if prior is None else dict(prior.named_modules())
    chosen_pairs = {}
    for name in choose({name: beside.get(name, layer) for name, layer in dense.items()}, layers, dense):
        small, layer = beside.get(name), dense[name]
        assert isinstance(layer, Dense)
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
    if plain_class(small) is None:
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
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = module.module
        if not isinstance(module, nn.Module):
            raise ModuleError(f"the model is {module!r:.60}", "give a torch.nn.Module")
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def prior_numbers(layer: nn.Module, spec: Spec, *, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a structured layer, with the shapes of its spec and the type and device of `like`."""
    if isinstance(layer, nn.AvgPool2d):
        mean = 1 / (layer.divisor_override or prod(spec.kernel))  # type: ignore[attr-defined]
        return like.new_full(spec.weight_shape or (), mean), None
    weight, bias = (current(layer, part) for part in ("weight", "bias"))
    if weight is None or weight.numel() != prod(spec.weight_shape or ()):
        raise ModuleError(f"{type(layer).__name__} is not the layer of {spec}", MADE_OF)
    return weight.reshape(spec.weight_shape or ()).to(like), None if bias is None else bias.to(like)
