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
        dense = ops.linear(x, model.parameters[f"{layer.name}.weight"], bias)
        return _named(layer.name, _branched(model, layer, x, dense) if model.branches else dense)
    return _named(layer.name, ops.structured(x, layer.spec, model.weight_of(layer.name, layer.spec), bias))


def _branched(model: Model, layer: Layer, x: np.ndarray, dense: Result) -> Result:
    """In lanes with a branch, `y = y_W + y_U` or, with a gate, `g y_W + (1 - g) y_U`, where `g = sigmoid(a)`.

    So `dy_W = g dy`, `dy_U = (1 - g) dy` and `da = g (1 - g) sum(dy (y_W - y_U))`.
    """
    y_U, back_U = dense
    y, parts = y_U.copy(), []
    for index in range(len(model.branches)):
        lane, at = model.lane(index), ... if model.lanes is None else index
        branch, prior = lane.branch_of(layer.name), f"{layer.name}.prior"
        if branch is not None:
            w, b = lane.weight_of(prior, layer.spec), lane.parameters.get(f"{prior}.bias")
            y_W, back_W = ops.structured(x[at] if x.ndim == 3 else x, layer.spec, w, b)
            g = ops.sigmoid(lane.parameters[f"{layer.name}.gate"]) if branch.coupling == "gate" else None
            y = np.empty_like(y_W) if model.lanes is None else y  # stored as the prior's: sums over it round alike
            y[at] = y_W + y_U[at] if g is None else g * y_W + (1 - g) * y_U[at]
            parts.append((at, y_W, back_W, g))

    def backward(dy: np.ndarray) -> tuple[np.ndarray, ops.Gradients]:
        dy_U = dy.copy()
        for at, _, _, g in parts:
            dy_U[at] = dy[at] if g is None else (1 - g) * dy[at]
        dx, own = back_U(dy_U)
        own |= {
            name.removeprefix(f"{layer.name}."): np.zeros(array.shape)
            for name, array in model.parameters.items()
            if name.startswith((f"{layer.name}.prior.", f"{layer.name}.gate"))
        }
        for at, y_W, back_W, g in parts:
            dx_W, own_W = back_W(dy[at] if g is None else g * dy[at])
            dx[at] += dx_W
            for part, gradient in own_W.items():
                own[f"prior.{part}"][at] = gradient
            if g is not None:
                own["gate"][at] = g * (1 - g) * (dy[at] * (y_W - y_U[at])).sum()
        return dx, own

    return y, backward


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
