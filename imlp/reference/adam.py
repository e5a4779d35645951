"""Adam (Kingma and Ba, algorithm 1), in place.

m <- beta1 m + (1 - beta1) g            v <- beta2 v + (1 - beta2) g^2
p <- p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)          t = 1, 2, ...
"""

import numpy as np

from imlp.model import Model


def adam(model: Model, grads: dict[str, np.ndarray], *, lr: float, betas: tuple[float, float], eps: float) -> None:
    """One step on every parameter of the model."""
    (beta1, beta2), model.step = betas, model.step + 1
    t = model.step
    for name, g in grads.items():
        p, m, v = model.parameters[name], model.first_moments[name], model.second_moments[name]
        m *= beta1
        m += (1 - beta1) * g
        v *= beta2
        v += (1 - beta2) * g**2
        p -= lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)
