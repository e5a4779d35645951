"""Networks as data: what layers there are, in what order, and which of them are interpolated.

`language` holds what a network is described with, `paper` the paper's four networks, `resnet` one beyond it.

>>> network = cnn()
>>> network.n_parameters(dense=False), network.n_parameters(dense=True), network.layers[1].spec.out_shape
(757982, 8405002, (4, 16, 16))
"""

from collections.abc import Callable
from importlib.util import find_spec
from inspect import signature
from typing import Any

from imlp.errors import OutsideError, SpecError, known
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
from imlp.plugins import Outside, imported, is_outside

NETWORKS: dict[str, Callable[..., Network]] = {
    "cnn": cnn, "mixer": mixer, "mlp1": mlp1, "mlp2": mlp2, "resnet": resnet,
}  # fmt: skip


def make(name: str, **options: Any) -> Network:
    """The network called `name`, or `FILE.py:function`, with the paper's sizes where nothing else is given.

    >>> make("mixer", image=(3, 8, 8), patch=4, channels=6).n_parameters(dense=False)
    612
    """
    if is_outside(name):
        network = from_outside(imported(name), **options)
        if network is None:
            remedy = "let it take image=(channels, height, width) and classes, and return an imlp.networks.Network"
            raise OutsideError(f"{name} makes no network of imlp", remedy)
        return network
    build = NETWORKS[check_name(name)]
    parameters = signature(build).parameters
    for option, value in options.items():
        known(option, parameters, f"option of {name}")
        kinds = type(parameters[option].default), type(value)
        if bool in kinds and kinds != (bool, bool):
            remedy = "give true or false" if kinds[0] is bool else "it is neither true nor false; give it a value"
            raise SpecError(f"{option} is {value!r:.40}", remedy)
        if kinds == (int, int) and value < 1:
            raise SpecError(f"{option} is {value}", "give a whole number of at least 1")
    return build(**options)


def check_name(name: str) -> str:
    """`name` if it is a network's; an error that says how those of torchvision are named if not."""
    if name not in NETWORKS and find_spec("torchvision") is not None:
        from torchvision import models  # slow, and only for the error

        if name in models.list_models():
            raise SpecError(f"unknown network: {name!r}", f"torchvision's is named torchvision.models:{name}")
    return known(name, NETWORKS, "network")


def from_outside(outside: Outside, **options: Any) -> Network | None:
    """The network that a function of a user's file makes; None if it makes something else, perhaps a PyTorch model.

    It takes the sizes of the data, `image` and `classes`, and its own options.
    """
    if not callable(outside.value):
        problem = f"{outside.name} of {outside.place} is a {type(outside.value).__name__}"
        raise OutsideError(problem, "name a function that makes a network")
    try:
        parameters = signature(outside.value).parameters
    except (TypeError, ValueError):  # compiled
        return None
    if not {"image", "classes"} <= set(parameters):
        return None
    for option in options:
        known(option, parameters, f"option of {outside.name}")
    network = outside.call(**options)
    return network if isinstance(network, Network) else None


def is_ours(name: str) -> bool:
    """Whether a name is of a network of this package, and not one that a program has put into `NETWORKS`."""
    return name in NETWORKS and NETWORKS[name].__module__.startswith(f"{__name__}.")
