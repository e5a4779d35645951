"""Networks as data: what layers there are, in what order, and which of them are interpolated.

`language` holds what a network is described with, `paper` the paper's four networks.

>>> network = cnn()
>>> network.n_parameters(dense=False), network.n_parameters(dense=True), network.layers[1].spec.out_shape
(757982, 8405002, (4, 16, 16))
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

from imlp.errors import known
from imlp.networks.language import Block, Image, Layer, Network, Norm, Operation, check_layers
from imlp.networks.paper import cnn, mixer, mlp1, mlp2

__all__ = [
    "NETWORKS",
    "Block",
    "Image",
    "Layer",
    "Network",
    "Norm",
    "Operation",
    "check_layers",
    "cnn",
    "make",
    "mixer",
    "mlp1",
    "mlp2",
]

NETWORKS: dict[str, Callable[..., Network]] = {"cnn": cnn, "mixer": mixer, "mlp1": mlp1, "mlp2": mlp2}


def make(name: str, **options: Any) -> Network:
    """The network called `name`, with the paper's sizes where nothing else is given.

    >>> make("mixer", image=(3, 8, 8), patch=4, channels=6).n_parameters(dense=False)
    612
    """
    build = NETWORKS[known(name, NETWORKS, "network")]
    for option in options:
        known(option, signature(build).parameters, f"option of {name}")
    return build(**options)
