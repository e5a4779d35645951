"""The couplings that change `W`: `interpolate`, `add` and `self`, on one layer of one lane at a time.

A training step moves them when all lanes have been updated. To move each layer right after its own update by Adam gives
the same bits and took longer where it was measured inside a step (`benchmarks/step.py` has both): by then four arrays
of its size have gone through the cache, and perhaps the processor still writes three of them back.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from imlp.accel.lanes import one_by_one
from imlp.accel.pulling import pull, pull_bias
from imlp.accel.verbs import expand_bias, interpolate
from imlp.couplings.moves import Moves
from imlp.model import Model
from imlp.model.moves import check_moves, moves_of


class Mixing:
    """The moves of a model's lanes; what they need of the prior is looked up once."""

    def __init__(self, model: Model, prior: Model | None, moves: Moves, *, step: int):
        check_moves(model, prior, moves)
        self.prior, self.moves, self.step = prior, moves, step  # the steps that will have been taken by then
        self.specs = {name: model.network.layer(name).spec for name in moves}
        self.weights: dict[str, Any] = {}
        self.biases: dict[str, Any] = {}
        restarted = [name for name, each in moves.items() if any(move and move.moments == "zero" for move in each)]
        parts = (f"{name}.{part}" for name in restarted for part in ("weight", "bias"))
        model.allow_restarts(name for name in parts if name in model.parameters)

    def move(self, lane: Model, index: int) -> None:
        """Move the layers of a lane, which is the one at `index` of the model."""
        for name, each in self.moves.items():
            move = each[index]
            if move is None or move.is_idle:
                continue
            spec, (weight, bias) = self.specs[name], (f"{name}.weight", f"{name}.bias")
            W, b = lane.parameters[weight], lane.parameters.get(bias) if move.biases else None
            if move.coupling == "self":
                locality, sharing = move.both
                pull(W, spec, locality, sharing)
                if b is not None:
                    pull_bias(b, spec, sharing)
            else:
                interpolate(W, spec, self._prior_weight(name), move.alpha, mode=move.coupling)
                if b is not None:
                    b.mul_(1 - move.alpha if move.coupling == "interpolate" else 1)
                    b.add_(self._prior_bias(name, like=b), alpha=move.alpha)
            if move.moments == "zero":
                lane.count_from([weight] if b is None else [weight, bias], self.step)

    def _prior_weight(self, name: str) -> Any:
        """In the noun's own shape: torch has another for convolutions of one dimension."""
        if name not in self.weights:
            assert self.prior is not None
            spec, own = self.specs[name], self.prior.parameters
            given = {part: own[f"{name}.{part}"].reshape(p.shape) for part, p in spec.parameters.items()}
            self.weights[name] = spec.unnamed(given)
        return self.weights[name]

    def _prior_bias(self, name: str, like: Tensor) -> Tensor:
        if name not in self.biases:
            assert self.prior is not None
            expanded = expand_bias(self.specs[name], self.prior.parameters.get(f"{name}.bias"))
            self.biases[name] = expanded.to(like)  # zeros, if the prior has none
        found: Tensor = self.biases[name]
        return found


@torch.no_grad()
def mix(model: Model, prior: Model | None, moves: Moves) -> Model:
    """Move the layers of all lanes, in place; without a prior if all of them are moved by `self`.

    >>> from imlp import networks
    >>> from imlp.accel import init
    >>> from imlp.couplings.moves import Move
    >>> model = init(networks.cnn(), dense=True, seed=0, lanes=2)
    >>> mixed = mix(model, None, {"conv2": [Move("self", 1.0), None]})
    """
    mixing = Mixing(model, prior, moves, step=model.step)
    for index, lane in enumerate(one_by_one(model)):
        mixing.move(lane, index)
    return model


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
