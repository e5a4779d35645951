"""The couplings that change `W`: `interpolate`, `add` and `self`, on one layer of one lane at a time.

A training step moves each layer right after its own update by Adam, convolutions a block of rows at a time, while it is
in the cache; the numbers are the same as if all layers were moved at the end.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from imlp.accel import rows
from imlp.accel.lanes import ALIGNMENT, one_by_one
from imlp.accel.pulling import pull, pull_bias
from imlp.accel.verbs import arrays_of, expand_bias, interpolate
from imlp.couplings.moves import Move, Moves
from imlp.model import Model
from imlp.model.moves import check_moves, moves_of
from imlp.spec import Conv

BLOCK = 2**19  # numbers of a matrix that are updated and moved at a time


class Mixing:
    """The moves of a model's lanes; what they need of the prior is looked up once."""

    def __init__(self, model: Model, prior: Model | None, moves: Moves, *, step: int):
        check_moves(model, prior, moves)
        self.prior, self.moves, self.step = prior, moves, step  # the steps that will have been taken by then
        self.specs = {name: model.network.layer(name).spec for name in moves}
        self.by_lane = [
            {f"{name}.weight": (name, own) for name, each in moves.items() if (own := each[lane]) and not own.is_idle}
            for lane in range(model.lanes or 1)
        ]
        self.weights: dict[str, Any] = {}
        self.biases: dict[str, Any] = {}
        self.blocks: dict[tuple[str, Move], list[range]] = {}
        restarted = [name for name, each in moves.items() if any(move and move.moments == "zero" for move in each)]
        parts = (f"{name}.{part}" for name in restarted for part in ("weight", "bias"))
        model.allow_restarts(name for name in parts if name in model.parameters)

    def update(self, adam: Callable[..., None], lane: Model, index: int, grads: dict[str, Tensor]) -> None:
        """Update what has these gradients and move its layers, a large matrix a few rows at a time."""
        moved, rest = {weight: own for weight, own in self.by_lane[index].items() if weight in grads}, dict(grads)
        for weight, (name, move) in moved.items():
            blocks = self._blocks(lane.parameters[weight], name, move)
            own = {weight: rest.pop(weight)} if len(blocks) > 1 else {}
            for block in blocks if own else ():
                adam(own, within=slice(block.start, block.stop))
                self._move_weight(lane, name, move, block)
        adam(rest)
        for weight, (name, move) in moved.items():
            if weight in rest:
                self._move_weight(lane, name, move)
            self._move_rest(lane, name, move)

    def move(self, lane: Model, index: int) -> None:
        """Move the layers of a lane, which is the one at `index` of the model."""
        for name, move in self.by_lane[index].values():
            self._move_weight(lane, name, move)
            self._move_rest(lane, name, move)

    def _blocks(self, W: Tensor, name: str, move: Move) -> list[range]:
        """The rows of a matrix that are updated and then moved while they are in the cache; all, if that cannot be."""
        found = self.blocks.get((name, move))
        if found is None:
            spec, (m_out, m_in) = self.specs[name], W.shape
            unit = 1  # rows that must be together: `self` takes means over those of an output channel
            if move.coupling == "self":
                unit = m_out // spec.out_channels if type(spec) is Conv and len(set(move.both)) == 1 else m_out
            whole_lines = m_in * W.element_size() % ALIGNMENT == 0  # a vectorised loop may round otherwise at its end
            if not (rows.usable(W, spec) and whole_lines):
                unit = m_out
            size = max(unit, BLOCK // m_in // unit * unit)
            found = [range(first, min(first + size, m_out)) for first in range(0, m_out, size)]
            self.blocks[name, move] = found
        return found

    def _move_weight(self, lane: Model, name: str, move: Move, block: range | None = None) -> None:
        """All rows of it, or a block of them."""
        W, spec = lane.parameters[f"{name}.weight"], self.specs[name]
        if move.coupling == "self":
            rows.pull(W, spec, *move.both, within=block) if block else pull(W, spec, *move.both)
            return
        own = self._prior_weight(name, like=W)
        if block:
            keep = 1 - move.alpha if move.coupling == "interpolate" else 1
            rows.interpolate(W, spec, own, keep, move.alpha, within=block)
        else:
            interpolate(W, spec, own, move.alpha, mode=move.coupling)

    def _move_rest(self, lane: Model, name: str, move: Move) -> None:
        """The bias, and what Adam knows."""
        b = lane.parameters.get(f"{name}.bias") if move.biases else None
        if b is not None and move.coupling == "self":
            pull_bias(b, self.specs[name], move.both[1])
        elif b is not None:
            b.mul_(1 - move.alpha if move.coupling == "interpolate" else 1)
            b.add_(self._prior_bias(name, like=b), alpha=move.alpha)
        if move.moments == "zero":
            lane.count_from([f"{name}.weight"] + [f"{name}.bias"] * (b is not None), self.step)

    def _prior_weight(self, name: str, like: Tensor) -> Any:
        """In the noun's own shape: torch has another for convolutions of one dimension."""
        if name not in self.weights:
            assert self.prior is not None
            spec, own = self.specs[name], self.prior.parameters
            given = {part: own[f"{name}.{part}"].reshape(p.shape) for part, p in spec.parameters.items()}
            self.weights[name] = spec.unnamed(arrays_of(spec, spec.unnamed(given), beside=like))
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
