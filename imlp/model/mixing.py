"""What couplings do to the lanes of a model with a backend's verbs: they move layers, or make a lane of the prior."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from imlp import checks
from imlp.couplings import AnyCoupling, Branch, Mixing, Move, Moves, Replacing
from imlp.couplings import coupling as coupling_of
from imlp.errors import ArrayError, known
from imlp.model import Arrays, Model, shapes_of
from imlp.networks import check_layers
from imlp.verbs import LayerVerbs


def moves_of(
    model: Model, alpha: Any, *, coupling: AnyCoupling, layers: Iterable[str] | None, biases: bool, head: bool
) -> Moves:
    """For each layer to be mixed, what is done to it in each lane; None leaves that lane's layer untouched.

    `alpha` is a number, one per lane, or a mapping from layer names to either; a layer that a mapping leaves out is
    left untouched. The head, if it is to be mixed, takes the alpha of the mapping's "head", or the common one. Moves
    are what they are.
    """
    each = [one for own in alpha.values() if isinstance(own, list) for one in own] if isinstance(alpha, Mapping) else []
    if any(isinstance(one, Move) for one in each):
        return alpha
    names = model.network.interpolated if layers is None else check_layers(model.network, layers)
    names = (*names, "head") if head else names
    if isinstance(alpha, Mapping):
        for name in alpha:
            known(name, names, "layer in alpha")
        given = {name: alpha[name] for name in names if name in alpha}
    else:
        given = dict.fromkeys(names, alpha)
    way: Any = coupling_of(coupling)  # `prepare` refuses one that has no alpha
    return {
        name: [None if a is None else Move(way, (a,), biases=biases) for a in _one_per_lane(value, model.lanes)]
        for name, value in given.items()
    }


def _one_per_lane(alpha: Any, lanes: int | None) -> list[float | None]:
    if not isinstance(alpha, (list, tuple)) and getattr(alpha, "ndim", 0) == 0:
        return [None if alpha is None else checks.alphas(alpha, None)[0]] * (lanes or 1)
    found = checks.alphas([0.0 if own is None else own for own in alpha], lanes)
    return [None if own is None else value for own, value in zip(alpha, found, strict=True)]


def prepare(model: Model, prior: Model | None, moves: Moves) -> None:
    """Refuse moves that are not one per lane, of known layers, with a prior where they need one; make room for them."""
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
            if not isinstance(move.coupling, Mixing):
                raise ArrayError(f"{move.coupling!r:.60} does not move W", "give a coupling that has an alpha")
            checks.alphas(list(move.alphas), len(move.alphas))
            if prior is None and move.coupling.needs_prior:
                raise ArrayError(f"{move.coupling.name} needs a prior", "give one")
            for parameter in _parameters(model, name, move) if move.moments == "zero" else ():
                model.restarts.setdefault(parameter, np.zeros(model.lanes or 1, np.int64))


def move_lane(verbs: LayerVerbs[Any], lane: Model, index: int, prior: Model | None, moves: Moves, *, step: int) -> None:
    """Move the layers of a lane, which is the one at `index` of its model; `step` steps have been taken by then.

    They are moved when all lanes have been updated. To move each layer right after its own update gives the same bits
    and took longer (`benchmarks/step.py` has both).
    """
    for name, each in moves.items():
        move = each[index]
        if move is None or not any(move.alphas):
            continue
        spec, bias = lane.network.layer(name).spec, f"{name}.bias"
        small = None if prior is None or not move.coupling.needs_prior else prior
        w, b_w = (None, None) if small is None else (small.weight_of(name, spec), small.parameters.get(bias))
        move_part(move, "weight", verbs, spec, lane.parameters[f"{name}.weight"], w)
        if move.biases and bias in lane.parameters:
            move_part(move, "bias", verbs, spec, lane.parameters[bias], b_w)
        if move.moments == "zero":
            lane.restart_optimizer(_parameters(lane, name, move), step)


def move_part(move: Move, part: str, verbs: LayerVerbs[Any], spec: Any, there: Any, small: Any) -> None:
    """Change the weight or the bias of a dense layer in place; `small` is the prior's."""
    moved = move.coupling.call(part, verbs, spec, there, small, *move.alphas)
    if moved is there:
        return
    if getattr(moved, "shape", None) != there.shape:
        problem = f"{move.coupling.name} makes a {part} of shape {getattr(moved, 'shape', None)}"
        raise ArrayError(problem, f"it must return one of shape {tuple(there.shape)}")
    there[...] = moved


def _parameters(model: Model, layer: str, move: Move) -> list[str]:
    """The names of the parameters that a move changes."""
    names = [f"{layer}.weight", f"{layer}.bias"] if move.biases else [f"{layer}.weight"]
    return [name for name in names if name in model.parameters]


def with_lane_of_prior(
    prior: Model,
    lanes: Model | None,
    branches: Sequence[Branch | None],
    coupling: Replacing,
    *,
    verbs: LayerVerbs[Any],
    zeros: Callable[..., Any],
    joined: Callable[[Any, Any], Any],
) -> Model:
    """A stack with one lane more, which the coupling makes of the prior; the optimizer starts again for it.

    `branches` are those of all its lanes. Everything else is the backend's: its verbs, `zeros(shape)`, and
    `joined(stack or None, lane)`, which may not change a number of the stack.
    """
    network, dense = prior.network, coupling.call("replaced", verbs, prior)
    shapes = shapes_of(network, dense=True, branches=branches)
    own = {name: dense[name] if name in dense else zeros(shape) for name, shape in shapes.items()}
    before = lanes or Model(network, True, 0, {}, step=prior.step)

    def group(there: Arrays, added: Arrays) -> Arrays:
        return {name: joined(there.get(name), array) for name, array in added.items()}

    nothing = {name: zeros(tuple(array.shape)) for name, array in own.items()}
    state = {name: group(there, nothing) for name, there in before.state.items()}
    buffers = group(before.buffers, {name: prior.buffers[name] for name in network.buffers(dense=True)})
    n = before.lanes or 0
    made = Model(network, True, n + 1, group(before.parameters, own), state, before.step, buffers)
    never = np.zeros(n, np.int64)
    made.restarts = {name: np.append(before.restarts.get(name, never), before.step) for name in own}
    made.branches = tuple(branches)
    return made
