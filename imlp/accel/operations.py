"""The tree of operations that a network is, run forward for one lane, with the way back beside it.

`HANDLERS` has one function for each kind of operation. As in the reference it returns the output and the way back,
which here hands each operation's gradients over at once instead of collecting them. Nothing is computed for the
gradient at the images: an operation is `first` if none before it has parameters.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from imlp.accel import layer_verbs
from imlp.accel import layers as ops
from imlp.accel.products import products_for
from imlp.couplings import Blend, Branching, prior_weight
from imlp.model import Model
from imlp.networks import Activation, Layer, Mean, Norm, Operation, Residual, is_trained

Receive = Callable[[dict[str, Tensor]], None]
Back = Callable[[Any, Receive], Any]  # from `dy` to `dx`, or None where that is not needed
Seen = list[tuple[str, Tensor]]

ACTIVATIONS = {"gelu": ops.gelu, "relu": ops.relu}


@dataclass(frozen=True)
class Pass:
    """One pass of a batch through a model without lanes.

    With `reuse` the gradients of weights of one shape share one place, so they must be used at once. Without `record`
    there is no way back. `seen` is given each operation's name and result.
    """

    model: Model
    reuse: bool = False
    record: bool = True
    seen: Seen | None = None


def run(now: Pass, operations: Iterable[Operation], x: Tensor, *, first: bool) -> tuple[Tensor, Back]:
    backs: list[Back] = []
    for operation in operations:
        x, back = HANDLERS[type(operation)](now, operation, x, first)
        if now.seen is not None and not isinstance(operation, Residual):
            now.seen.append((operation.name, x))
        if first and not is_trained(operation):
            continue  # nobody needs the gradient before it
        first = False
        if now.record:
            backs.append(back)

    def back_through(dx: Any, receive: Receive) -> Any:
        for back in reversed(backs):
            dx = back(dx, receive)
        return dx

    return x, back_through


def _layer(now: Pass, layer: Layer, x: Tensor, first: bool) -> tuple[Tensor, Back]:
    """The only place where the weight of a layer is used: `W` in the I-MLP, `w` in the prior."""
    model, spec = now.model, layer.spec
    bias: Any = model.parameters.get(f"{layer.name}.bias")
    if model.dense:
        W, branch = model.parameters[f"{layer.name}.weight"], model.branch_of(layer.name)
        if branch is not None and not isinstance(branch.coupling, Blend):
            return _named(layer.name, *_made(now, layer, x, first, branch.coupling))
        room = _kept(model.scratch, str(W.shape), lambda: torch.empty_like(W)) if now.reuse else None
        dense = ops.linear(x, W, bias, first=first, room=room)
        if branch is not None:
            dense = _blended(now, layer, x, first, dense, branch.coupling)  # type: ignore[arg-type]
        return _named(layer.name, *dense)
    w, scratch = model.weight_of(layer.name, spec), model.scratch if now.reuse else {}
    found: Any = products_for(spec, x.device)
    products = None if found is None else _kept(scratch, layer.name, lambda: found(spec, like=w))
    options: dict[str, Any] = {"products": products, "first": first, "record": now.record}
    return _named(layer.name, *ops.structured(x, spec, w, bias, **options))


def _blended(
    now: Pass, layer: Layer, x: Tensor, first: bool, dense: tuple[Tensor, ops.Backward], coupling: Blend
) -> tuple[Tensor, ops.Backward]:
    """`W = matrix(w) + U`, or with a share `g matrix(w) + (1 - g) U`: both results are added, not the matrices."""
    parts, (y_u, back_u) = now.model.parts_of(layer.name, coupling), dense
    w, b = prior_weight(layer.spec, parts), parts.get("prior.bias")
    y_w, back_w = ops.structured(x, layer.spec, w, b, first=first, record=now.record)
    g = coupling.call("share", parts)

    def backward(dy: Tensor) -> ops.Back:
        dx_w, own_w = back_w(dy if g is None else g * dy)
        dx_u, gradients = back_u(dy if g is None else (1 - g) * dy)
        gradients |= {f"prior.{part}": gradient for part, gradient in own_w.items()}
        if g is not None:
            gradients |= coupling.call("pulled_back_share", parts, (dy * (y_w - y_u)).sum())
        return None if dx_u is None or dx_w is None else dx_w + dx_u, gradients

    return y_w + y_u if g is None else g * y_w + (1 - g) * y_u, backward


def _made(now: Pass, layer: Layer, x: Tensor, first: bool, coupling: Branching) -> tuple[Tensor, ops.Backward]:
    parts, spec = now.model.parts_of(layer.name, coupling), layer.spec
    y, back = ops.linear(x, *coupling.call("made", layer_verbs, spec, parts), first=first)

    def backward(dy: Tensor) -> ops.Back:
        dx, of_matrix = back(dy)
        return dx, coupling.call("pulled_back", layer_verbs, spec, parts, of_matrix["weight"], of_matrix["bias"])

    return y, backward


def _norm(now: Pass, norm: Norm, x: Tensor, first: bool) -> tuple[Tensor, Back]:
    weight, bias = (now.model.parameters.get(f"{norm.name}.{part}") for part in ("weight", "bias"))
    return _named(norm.name, *ops.layer_norm(x, norm.features, weight, bias))


def _activation(now: Pass, activation: Activation, x: Tensor, first: bool) -> tuple[Tensor, Back]:
    return _named(activation.name, *ACTIVATIONS[activation.name](x))


def _mean(now: Pass, mean: Mean, x: Tensor, first: bool) -> tuple[Tensor, Back]:
    return _named(mean.name, *ops.mean(x, mean.positions, mean.channels_first))


def _residual(now: Pass, residual: Residual, x: Tensor, first: bool) -> tuple[Tensor, Back]:
    """`y = shortcut(x) + body(x)`, so `dx` is the sum of what comes back through either."""
    body, body_back = run(now, residual.body, x, first=first)
    beside, beside_back = run(now, [residual.shortcut] if residual.shortcut else [], x, first=first)

    def back(dy: Tensor, receive: Receive) -> Any:
        dx, dx_beside = body_back(dy, receive), beside_back(dy, receive)
        return None if first else dx_beside + dx

    return beside + body, back


HANDLERS: dict[type, Callable[..., tuple[Tensor, Back]]] = {
    Layer: _layer,
    Norm: _norm,
    Activation: _activation,
    Mean: _mean,
    Residual: _residual,
}


def _named(name: str, y: Tensor, backward: ops.Backward) -> tuple[Tensor, Back]:
    def back(dy: Tensor, receive: Receive) -> Any:
        dx, gradients = backward(dy)
        if gradients:
            receive({f"{name}.{part}": gradient for part, gradient in gradients.items()})
        return dx

    return y, back


def _kept(scratch: dict[str, Any], name: str, make: Callable[[], Any]) -> Any:
    """What `make` makes the first time: room that is kept from step to step."""
    if name not in scratch:
        scratch[name] = make()
    return scratch[name]
