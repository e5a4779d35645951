"""Networks as data: what layers there are, in what order, and which of them are interpolated.

`language` holds what a network is described with, `paper` the paper's four networks, `resnet` one beyond it.

>>> network = cnn()
>>> network.n_parameters(dense=False), network.n_parameters(dense=True), network.layers[1].spec.out_shape
(757982, 8405002, (4, 16, 16))
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

from imlp.errors import known
from imlp.networks.language import (
    Activation,
    DenseOnly,
    Image,
    Layer,
    Mean,
    Network,
    Norm,
    Operation,
    Residual,
    check_layers,
    is_trained,
    walk,
)
from imlp.networks.paper import cnn, mixer, mlp1, mlp2
from imlp.networks.resnet import resnet

__all__ = [
    "NETWORKS",
    "Activation",
    "DenseOnly",
    "Image",
    "Layer",
    "Mean",
    "Network",
    "Norm",
    "Operation",
    "Residual",
    "check_layers",
    "cnn",
    "is_trained",
    "make",
    "mixer",
    "mlp1",
    "mlp2",
    "resnet",
    "walk",
]

NETWORKS: dict[str, Callable[..., Network]] = {
    "cnn": cnn, "mixer": mixer, "mlp1": mlp1, "mlp2": mlp2, "resnet": resnet,
}  # fmt: skip


def make(name: str, **options: Any) -> Network:
    """The network called `name`, with the paper's sizes where nothing else is given.

    >>> make("mixer", image=(3, 8, 8), patch=4, channels=6).n_parameters(dense=False)
    612
    """
    build = NETWORKS[known(name, NETWORKS, "network")]
    for option in options:
        known(option, signature(build).parameters, f"option of {name}")
    return build(**options)
