"""A lane that is made of the prior, as the last one of a stack: the coupling `relax` and others of its kind."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from imlp.couplings import Branch, Replacing
from imlp.model import Arrays, Model, shapes_of
from imlp.verbs import LayerVerbs


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
    buffers = {name: prior.buffers[name] for name in network.buffers(dense=True)}
    n = (before.lanes or 0) + 1
    made = Model(network, True, n, group(before.parameters, own), step=before.step)
    made.state = {name: group(there, nothing) for name, there in before.state.items()}
    made.buffers, made.branches = group(before.buffers, buffers), tuple(branches)
    for name in own:
        earlier = before.restarts.get(name, np.zeros(n - 1, np.int64))
        made.restarts[name] = np.append(earlier, before.step)
    return made
