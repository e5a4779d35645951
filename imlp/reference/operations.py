"""The tree of operations that a network is, run forward, with the way back beside it.

`HANDLERS` has one function for each kind of operation. It returns the output and, as in `layers`, a function from
`dy` to `dx` and the gradients of parameters, here by their full names.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from imlp.model import Model
from imlp.networks import Activation, Layer, Mean, Norm, Operation, Residual
from imlp.reference import layers as ops

Watch = Callable[[str, np.ndarray], None]
Result = tuple[np.ndarray, ops.Backward]

ACTIVATIONS = {"gelu": ops.gelu, "relu": ops.relu, "none": ops.identity}


def run(model: Model, operations: Iterable[Operation], x: np.ndarray, watch: Watch | None = None) -> Result:
    """Operations one after the other; `watch` sees the result of each but the residual ones, whose parts it sees."""
    backwards = []
    for operation in operations:
        x, backward = HANDLERS[type(operation)](model, operation, x, watch)
        backwards.append(backward)
        if watch is not None and not isinstance(operation, Residual):
            watch(operation.name, x)

    def back(dx: np.ndarray) -> tuple[np.ndarray, ops.Gradients]:
        gradients: ops.Gradients = {}
        for backward in reversed(backwards):
            dx, own = backward(dx)
            gradients |= own
        return dx, gradients

    return x, back


def _layer(model: Model, layer: Layer, x: np.ndarray, watch: Watch | None) -> Result:
    """The only place where the weight of a layer is used: `W` in the I-MLP, `w` in the prior."""
    bias: Any = model.parameters.get(f"{layer.name}.bias")
    if model.dense:
        return _named(layer.name, ops.linear(x, model.parameters[f"{layer.name}.weight"], bias))
    return _named(layer.name, ops.structured(x, layer.spec, model.weight_of(layer.name, layer.spec), bias))


def _norm(model: Model, norm: Norm, x: np.ndarray, watch: Watch | None) -> Result:
    weight, bias = (model.parameters.get(f"{norm.name}.{part}") for part in ("weight", "bias"))
    return _named(norm.name, ops.layer_norm(x, norm.features, weight, bias))


def _activation(model: Model, activation: Activation, x: np.ndarray, watch: Watch | None) -> Result:
    return ACTIVATIONS[activation.name](x)


def _mean(model: Model, mean: Mean, x: np.ndarray, watch: Watch | None) -> Result:
    return ops.mean(x, mean.positions, mean.channels_first)


def _residual(model: Model, residual: Residual, x: np.ndarray, watch: Watch | None) -> Result:
    """`y = shortcut(x) + body(x)`, so `dx` is the sum of what comes back through either."""
    body, body_back = run(model, residual.body, x, watch)
    beside, beside_back = run(model, [residual.shortcut] if residual.shortcut else [], x, watch)

    def back(dy: np.ndarray) -> tuple[np.ndarray, ops.Gradients]:
        (dx, own), (dx_beside, own_beside) = body_back(dy), beside_back(dy)
        return dx_beside + dx, own | own_beside

    return beside + body, back


HANDLERS: dict[type, Callable[..., Result]] = {
    Layer: _layer,
    Norm: _norm,
    Activation: _activation,
    Mean: _mean,
    Residual: _residual,
}


def _named(name: str, result: Result) -> Result:
    y, backward = result

    def back(dy: np.ndarray) -> tuple[np.ndarray, ops.Gradients]:
        dx, own = backward(dy)
        return dx, {f"{name}.{part}": gradient for part, gradient in own.items()}

    return y, back
