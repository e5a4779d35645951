"""Stochastic gradient descent, in place.

v <- momentum v + g            p <- p - lr v, or, with Nesterov's momentum, p - lr (g + momentum v)
"""

import numpy as np

from imlp.model import Model
from imlp.optimizers import SGD


def sgd(model: Model, grads: dict[str, np.ndarray], settings: SGD) -> None:
    """The next step on the parameters that `grads` names; the model does not count it."""
    for name, g in grads.items():
        p, v = model.parameters[name], model.state["velocity"][name]
        if settings.momentum:
            v *= settings.momentum
            v += g
            g = g + settings.momentum * v if settings.nesterov else v
        p -= settings.lr * g
