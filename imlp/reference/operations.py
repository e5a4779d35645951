"""The tree of operations that a network is, run forward, with the way back beside it.

`HANDLERS` has one function for each kind of operation. It returns the output and, as in `layers`, a function from
`dy` to `dx` and the gradients of parameters, here by their full names.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from imlp.couplings import Blend, Branching, prior_weight
from imlp.model import Model
from imlp.networks import Activation, Layer, Mean, Norm, Operation, Residual
from imlp.reference import layer_verbs
from imlp.reference import layers as ops

Watch = Callable[[str, np.ndarray], None]
Result = tuple[np.ndarray, ops.Backward]

ACTIVATIONS = {"gelu": ops.gelu, "relu": ops.relu}


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
            dx, of_operation = backward(dx)
            gradients |= of_operation
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
    """Lanes that make the layer of parts; the others have what the dense layer computes."""
    y_U, back_U = dense
    y, lanes, names = y_U.copy(), [], set[str]()
    for index in range(len(model.branches)):
        lane, at = model.lane(index), ... if model.lanes is None else index
        branch = lane.branch_of(layer.name)
        if branch is not None:
            way: Any = _blended if isinstance(branch.coupling, Blend) else _made
            x_lane = x[at] if x.ndim == 3 else x
            y_lane, back_lane = way(lane, layer, branch.coupling, x_lane, y_U[at])
            y = np.empty_like(y_lane) if model.lanes is None else y
            y[at] = y_lane
            lanes.append((at, back_lane))
            names |= {*lane.parts_of(layer.name, branch.coupling)} - {"weight", "bias"}

    def backward(dy: np.ndarray) -> tuple[np.ndarray, ops.Gradients]:
        dy_U = dy.copy()
        of_lanes = [(at, *back_lane(dy[at])) for at, back_lane in lanes]
        for at, dy_lane, _, _ in of_lanes:
            dy_U[at] = dy_lane
        dx, gradients = back_U(dy_U)
        gradients |= {part: np.zeros(model.parameters[f"{layer.name}.{part}"].shape) for part in sorted(names)}
        for at, _, dx_lane, own_lane in of_lanes:
            dx[at] += dx_lane
            for part, gradient in own_lane.items():
                gradients[part][at] = gradient
        return dx, gradients

    return y, backward


def _blended(lane: Model, layer: Layer, coupling: Blend, x: np.ndarray, y_U: np.ndarray) -> tuple[np.ndarray, Any]:
    """`y = y_W + y_U` or, with a share, `g y_W + (1 - g) y_U`; back to `dy_U`, `dx` of the prior's part, and gradients.

    So `dy_W = g dy`, `dy_U = (1 - g) dy` and `dg = sum(dy (y_W - y_U))`.
    """
    parts = lane.parts_of(layer.name, coupling)
    y_W, back_W = ops.structured(x, layer.spec, prior_weight(layer.spec, parts), parts.get("prior.bias"))
    g = coupling.call("share", parts)

    def back(dy: np.ndarray) -> tuple[np.ndarray, np.ndarray, ops.Gradients]:
        dx, of_prior = back_W(dy if g is None else g * dy)
        gradients = {f"prior.{part}": gradient for part, gradient in of_prior.items()}
        if g is not None:
            gradients |= coupling.call("pulled_back_share", parts, (dy * (y_W - y_U)).sum())
        return dy if g is None else (1 - g) * dy, dx, gradients

    y = np.empty_like(y_W)  # stored as the prior's: sums over it round alike
    y[...] = y_W + y_U if g is None else g * y_W + (1 - g) * y_U
    return y, back


def _made(lane: Model, layer: Layer, coupling: Branching, x: np.ndarray, y_U: np.ndarray) -> tuple[np.ndarray, Any]:
    """The layer through the matrix that is made of its parts; nothing of it goes through `U` alone."""
    parts = lane.parts_of(layer.name, coupling)
    y, back_W = ops.linear(x, *coupling.call("made", layer_verbs, layer.spec, parts))

    def back(dy: np.ndarray) -> tuple[np.ndarray, np.ndarray, ops.Gradients]:
        dx, of_matrix = back_W(dy)
        gradients = coupling.call("pulled_back", layer_verbs, layer.spec, parts, of_matrix["weight"], of_matrix["bias"])
        return 0 * dy, dx, gradients

    return y, back


def _norm(model: Model, norm: Norm, x: np.ndarray, watch: Watch | None) -> Result:
    weight, bias = (model.parameters.get(f"{norm.name}.{part}") for part in ("weight", "bias"))
    return _named(norm.name, ops.layer_norm(x, norm.features, weight, bias))


def _activation(model: Model, activation: Activation, x: np.ndarray, watch: Watch | None) -> Result:
    return ACTIVATIONS[activation.name](x)


def _mean(model: Model, mean: Mean, x: np.ndarray, watch: Watch | None) -> Result:
    return ops.mean(x, mean.positions, mean.channels_first)


def _residual(model: Model, residual: Residual, x: np.ndarray, watch: Watch | None) -> Result:
    body, body_back = run(model, residual.body, x, watch)
    beside, beside_back = run(model, [residual.shortcut] if residual.shortcut else [], x, watch)

    def back(dy: np.ndarray) -> tuple[np.ndarray, ops.Gradients]:
        (dx, gradients), (dx_beside, gradients_beside) = body_back(dy), beside_back(dy)
        return dx_beside + dx, gradients | gradients_beside

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
        dx, gradients = backward(dy)
        return dx, {f"{name}.{part}": gradient for part, gradient in gradients.items()}

    return y, back
