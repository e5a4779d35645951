"""The coupling `relax`: a lane that is the prior, as the last one of a stack."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from imlp.couplings.moves import Branch
from imlp.errors import ArrayError
from imlp.model import Arrays, Model, shapes_of


def with_prior_as_lane(
    prior: Model,
    lanes: Model | None,
    branches: Sequence[Branch | None],
    *,
    matrix: Callable[..., Any],
    expand_bias: Callable[..., Any],
    zeros: Callable[..., Any],
    joined: Callable[[Any, Any], Any],
) -> Model:
    """A stack with one lane more, which is the prior: trunk, head and norms; Adam starts again for it.

    `branches` are those of all its lanes. Everything else is the backend's: its verbs, `zeros(shape)`, and
    `joined(stack or None, lane)`, which may not change a number of the stack.
    """
    network = prior.network
    specs, own = {layer.name: layer.spec for layer in network.layers}, {}
    for name, shape in shapes_of(network, dense=True, branches=branches).items():
        layer, _, part = name.rpartition(".")
        spec = specs.get(layer)
        if spec is not None and all(f"{layer}.{number}" in prior.parameters for number in spec.parameters):
            if part == "weight":
                own[name] = matrix(spec, _small(prior, layer, spec))
            else:
                own[name] = expand_bias(spec, prior.parameters[name]) if name in prior.parameters else zeros(shape)
        elif name in prior.parameters and tuple(prior.parameters[name].shape) == shape:
            own[name] = prior.parameters[name]
        elif layer.removesuffix(".prior") in specs and name not in network.shapes(dense=True):
            own[name] = zeros(shape)  # what the branches of other lanes have
        else:
            problem = f"{network.name} has {name}, and its prior nothing like it: it cannot become the prior"
            raise ArrayError(problem, "relax a network whose prior has all of its layers")
    before = lanes or Model(network, True, 0, {}, {}, {}, prior.step)

    def group(there: Arrays, added: Arrays) -> Arrays:
        return {name: joined(there.get(name), array) for name, array in added.items()}

    nothing = {name: zeros(tuple(array.shape)) for name, array in own.items()}
    buffers = {name: prior.buffers[name] for name in network.buffers(dense=True)}
    n = (before.lanes or 0) + 1
    made = Model(
        network, True, n, group(before.parameters, own), group(before.first_moments, nothing),
        group(before.second_moments, nothing), before.step, group(before.buffers, buffers),
    )  # fmt: skip
    made.branches = tuple(branches)
    for name in own:
        earlier = before.restarts.get(name, np.zeros(n - 1, np.int64))
        made.restarts[name] = np.append(earlier, before.step)
    return made


def _small(prior: Model, layer: str, spec: Any) -> Any:
    """Its weight in the noun's own shape: torch gives a convolution of one dimension another."""
    return spec.unnamed(
        {part: prior.parameters[f"{layer}.{part}"].reshape(own.shape) for part, own in spec.parameters.items()}
    )
