"""Adam (Kingma and Ba, algorithm 1), in place.

m <- beta1 m + (1 - beta1) g            v <- beta2 v + (1 - beta2) g^2
p <- p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)          t = 1, 2, ...

`t` counts from where Adam last started again for the parameter.
"""

import numpy as np

from imlp.model import Model
from imlp.optimizers import Adam
from imlp.reference.gradients import per_lane


def adam(model: Model, grads: dict[str, np.ndarray], settings: Adam) -> None:
    """The next step on the parameters that `grads` names; the model does not count it."""
    lr, beta1, beta2, eps = settings.lr, settings.beta1, settings.beta2, settings.eps
    for name, g in grads.items():
        p, m, v = model.parameters[name], model.state["first"][name], model.state["second"][name]
        t = model.step + 1 if name not in model.restarts else per_lane(model, model.step + 1 - model.restarts[name], p)
        m *= beta1
        m += (1 - beta1) * g
        v *= beta2
        v += (1 - beta2) * g**2
        p -= lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)
