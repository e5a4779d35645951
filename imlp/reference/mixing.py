"""The couplings that change `W` (algorithm 1 and two others), on all layers of all lanes.

interpolate  W <- (1 - alpha) W + alpha W_P
add          W <- W + alpha W_P
self         W <- W - locality (W - M * W) - sharing (M * W - Pi(W))
"""

from collections.abc import Iterable
from typing import Any

from imlp.couplings.moves import Move, Moves
from imlp.model import Model
from imlp.model.moves import check_moves, moves_of
from imlp.reference.pulling import pull, pull_bias
from imlp.reference.verbs import expand_bias, interpolate
from imlp.spec import Spec


def mix(model: Model, prior: Model | None, moves: Moves) -> Model:
    """Move the layers of all lanes, in place; without a prior if all of them are moved by `self`.

    >>> from imlp import networks
    >>> from imlp.couplings.moves import Move
    >>> from imlp.reference import init
    >>> model = init(networks.cnn(width=64, strides=(1, 2, 2), image=(1, 8, 8)), dense=True, seed=0, lanes=2)
    >>> mixed = mix(model, None, {"conv2": [Move("self", 1.0), None]})
    """
    check_moves(model, prior, moves)
    for name, each in moves.items():
        spec = model.network.layer(name).spec
        for index, move in enumerate(each):
            if move is not None and not move.is_idle:
                _move(model, prior, name, spec, index, move)
    return model


def _move(model: Model, prior: Model | None, name: str, spec: Spec, index: int, move: Move) -> None:
    lane, (weight, bias) = model.lane(index), (f"{name}.weight", f"{name}.bias")
    W, b = lane.parameters[weight], lane.parameters[bias]
    if move.coupling == "self":
        locality, sharing = move.both
        W[...] = pull(W, spec, locality, sharing)
        b_moved = pull_bias(b, spec, sharing)
    else:
        assert prior is not None
        W[...] = interpolate(W, spec, prior.weight_of(name, spec), move.alpha, mode=move.coupling)
        kept = 1 - move.alpha if move.coupling == "interpolate" else 1
        b_moved = kept * b + move.alpha * expand_bias(spec, prior.parameters.get(bias))
    if move.biases:
        b[...] = b_moved
    if move.moments == "zero":
        names = [weight, bias] if move.biases else [weight]
        model.allow_restarts(names)
        model.lane(index).count_from(names, model.step)


def inject(
    model: Model,
    prior: Model,
    alpha: Any,
    *,
    mode: str = "interpolate",
    layers: Iterable[str] | None = None,
    biases: bool = True,
    head: bool = False,
) -> Model:
    """The interpolation step of algorithm 1 on a whole network: `W <- (1 - alpha) W + alpha W_P`, layer by layer.

    `alpha` is a number, one per lane, or a mapping from layer names to either; None leaves a lane untouched. `layers`
    are those of the network's description unless given. Adam's moments and learned norms stay as they are. `head`
    mixes the head as well, which the paper does not.
    """
    options: dict[str, Any] = {"mode": mode, "layers": layers, "biases": biases, "head": head}
    return mix(model, prior, moves_of(model, prior, alpha, **options))
