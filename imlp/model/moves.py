"""What a mixing step does to each layer of each lane, checked, before a backend computes it."""

from collections.abc import Iterable, Mapping
from typing import Any

from imlp import checks
from imlp.couplings.moves import MIXING, WITHOUT_PRIOR, Move, Moves
from imlp.errors import AlphaError, ArrayError, known
from imlp.model import Model
from imlp.networks import check_layers


def moves_of(
    model: Model, prior: Model, alpha: Any, *, mode: str, layers: Iterable[str] | None, biases: bool, head: bool
) -> dict[str, list[Move | None]]:
    """What an interpolation step of algorithm 1 does to each layer of each lane."""
    by_layer = alphas_by_layer(model, prior, alpha, mode=mode, layers=layers, head=head)
    return {
        name: [None if a is None else Move(mode, a, biases=biases) for a in alphas] for name, alphas in by_layer.items()
    }


def check_moves(model: Model, prior: Model | None, moves: Moves) -> None:
    """Refuse moves that are not one per lane, of known layers and couplings, with a prior where they need one."""
    if not model.dense or (prior is not None and prior.dense):
        raise ArrayError("a move mixes a prior into an I-MLP", "give the I-MLP (dense) first, then the prior")
    if prior is not None and prior.network != model.network:
        raise ArrayError(f"a prior of {prior.network.name} for {model.network.name}", "make both of one network")
    for name, each in moves.items():
        model.network.layer(name)
        if len(each) != (model.lanes or 1):
            raise ArrayError(f"{len(each)} moves of {name} for {model.lanes or 1} lanes", "give one per lane")
        for move in each:
            if move is None:
                continue
            known(move.coupling, MIXING, "coupling that moves W")
            checks.alphas(list(move.both), 2)
            if prior is None and move.coupling not in WITHOUT_PRIOR:
                raise ArrayError(f"{move.coupling} needs a prior", "give one")


def alphas_by_layer(
    model: Model, prior: Model, alpha: Any, *, mode: str, layers: Iterable[str] | None, head: bool
) -> dict[str, list[float | None]]:
    """For each layer to be mixed, one alpha per lane; None leaves that lane's layer untouched.

    `alpha` is a number, one per lane, or a mapping from layer names to either; a layer that a mapping leaves out is
    left untouched. The head, if it is to be mixed, takes the alpha of the mapping's "head", or the common one.
    """
    if not model.dense or prior.dense:
        raise ArrayError("inject mixes a prior into an I-MLP", "give the I-MLP (dense) first, then the prior")
    if prior.network != model.network:
        raise ArrayError(f"a prior of {prior.network.name} for {model.network.name}", "make both of one network")
    checks.mode_known(mode)
    names = model.network.interpolated if layers is None else check_layers(model.network, layers)
    names = (*names, "head") if head else names
    if isinstance(alpha, Mapping):
        for name in alpha:
            known(name, names, "layer in alpha")
        given = {name: alpha[name] for name in names if name in alpha}
    else:
        given = dict.fromkeys(names, alpha)
    return {name: _one_per_lane(value, model.lanes) for name, value in given.items()}


def _one_per_lane(alpha: Any, lanes: int | None) -> list[float | None]:
    n = 1 if lanes is None else lanes
    several = isinstance(alpha, (list, tuple)) or getattr(alpha, "ndim", 0) == 1
    values = list(alpha) if several else [alpha] * n
    if len(values) != n or (several and lanes is None):
        remedy = "give a single one" if lanes is None else f"give one, or a list of {n}"
        raise AlphaError(
            f"{len(values)} alphas for {'a model without lanes' if lanes is None else f'{n} lanes'}", remedy
        )
    return [None if value is None else checks.alphas(value, None)[0] for value in values]
