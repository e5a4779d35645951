"""Adam (Kingma and Ba, algorithm 1), in place.

m <- beta1 m + (1 - beta1) g            v <- beta2 v + (1 - beta2) g^2
p <- p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)          t = 1, 2, ...

`t` counts from where Adam last started again for the parameter. A weight decay `d` adds `d p` to `g`.
"""

import numpy as np

from imlp.model import Model


def adam(model: Model, grads: dict[str, np.ndarray], *, lr: float, betas: tuple[float, float], eps: float) -> None:
    """One step on every parameter of the model."""
    (beta1, beta2), model.step = betas, model.step + 1
    for name, g in grads.items():
        p, m, v = model.parameters[name], model.first_moments[name], model.second_moments[name]
        t = model.step if name not in model.restarts else _per_lane(model, model.step - model.restarts[name], p)
        if model.branches:
            decays = np.array([branch.decay(name) if branch is not None else 0.0 for branch in model.branches])
            g = g + _per_lane(model, decays, p) * p
        m *= beta1
        m += (1 - beta1) * g
        v *= beta2
        v += (1 - beta2) * g**2
        p -= lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)


def _per_lane(model: Model, numbers: np.ndarray, beside: np.ndarray) -> np.ndarray:
    """One number per lane, in a shape that meets those of a parameter."""
    return numbers.reshape(-1, *[1] * (beside.ndim - 1)) if model.lanes is not None else numbers[0]
