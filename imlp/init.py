"""Initial weights, drawn by NumPy so that both backends start from the same numbers.

As PyTorch's `Linear` and `Conv2d` draw them: uniform within `1 / sqrt(fan_in)`, weights and biases alike.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from imlp.couplings import Branch
from imlp.errors import ArrayError
from imlp.model import shapes_of
from imlp.networks import Network
from imlp.spec import Shape, Spec


def uniform(shape: Shape, fan_in: int, *, rng: np.random.Generator) -> np.ndarray:
    bound = fan_in**-0.5
    return rng.uniform(-bound, bound, size=shape)


def prior_weight(spec: Spec, *, rng: np.random.Generator) -> Any:
    """The small weight of a structured layer, a mapping if there are several; None for a permutation."""
    return spec.unnamed({name: uniform(p.shape, p.fan_in, rng=rng) for name, p in spec.parameters.items()})


def network_parameters(
    network: Network, *, dense: bool, seed: int, branches: Sequence[Branch | None] = ()
) -> dict[str, np.ndarray]:
    """Every parameter of the prior, or of one I-MLP (`dense`), by name.

    The two draw from separate streams, so neither's numbers depend on the other's size. A learned norm starts
    with scale 1 and shift 0. Branches start with the prior's own numbers; a coupling's own
    differ between lanes, so `Model.start` sets them.
    """
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or seed.__index__() < 0:
        raise ArrayError(f"seed is {seed!r}", "give a whole number of at least 0")
    rng = np.random.default_rng([seed.__index__(), *(b"i-mlp" if dense else b"prior")])
    parameters: dict[str, np.ndarray] = {}
    specs = {layer.name: layer.spec for layer in (*network.layers, network.head)}
    for name, shape in network.shapes(dense=dense).items():
        layer, part = name.rpartition(".")[::2]
        if layer in specs:
            fan_in = specs[layer].matrix_shape[1] if dense else specs[layer].fan_in(part)
            parameters[name] = uniform(shape, fan_in, rng=rng)
        else:
            parameters[name] = np.ones(shape) if part == "weight" else np.zeros(shape)
    if any(branches):
        prior = network_parameters(network, dense=False, seed=seed)
        for name, shape in shapes_of(network, dense=dense, branches=branches).items():
            if name not in parameters:
                parameters[name] = prior[name.replace(".prior.", ".")] if ".prior." in name else np.zeros(shape)
    return parameters
