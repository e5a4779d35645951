"""The couplings that change `W` (algorithm 1 and others), on all layers of all lanes."""

from collections.abc import Iterable
from typing import Any

from imlp.couplings import AnyCoupling
from imlp.model import Model
from imlp.model.mixing import move_lane, moves_of, prepare
from imlp.reference import layer_verbs


def mix(
    model: Model,
    prior: Model | None,
    alpha: Any,
    *,
    coupling: AnyCoupling = "interpolate",
    layers: Iterable[str] | None = None,
    biases: bool = True,
    head: bool = False,
) -> Model:
    """The interpolation step of algorithm 1 on a whole network, in place: `W <- (1 - alpha) W + alpha W_P` by layer.

    `alpha` is a number, one per lane, or a mapping from layer names to either; None leaves a lane untouched. `layers`
    are those of the network's description unless given. Adam's moments and learned norms stay as they are. `head`
    mixes the head as well, which the paper does not. Where each lane has a coupling of its own, `alpha` is `Moves`,
    from layer names to a `Move` per lane. Couplings that need no prior, like `self`, are given None.

    >>> from imlp import networks
    >>> from imlp.reference import init
    >>> network = networks.cnn(width=64, strides=(1, 2, 2), image=(1, 8, 8))
    >>> prior, model = init(network, dense=False, seed=0), init(network, dense=True, seed=0, lanes=2)
    >>> mixed = mix(model, prior, [0.5, None])
    """
    moves = moves_of(model, alpha, coupling=coupling, layers=layers, biases=biases, head=head)
    prepare(model, prior, moves)
    for index in range(model.lanes or 1):
        move_lane(layer_verbs, model.lane(index), index, prior, moves, step=model.step)
    return model
