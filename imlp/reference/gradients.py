"""What happens to the gradients of each network before the optimizer's step.

g <- g min(1, clip / (|g| + 1e-6))          |g|: of all its parameters together
g <- g + d p, or, decoupled, p <- p - lr d p          d: the optimizer's weight decay and that of a branch
"""

import numpy as np

from imlp.model import Model
from imlp.optimizers import Optimizer


def prepared(model: Model, grads: dict[str, np.ndarray], optimizer: Optimizer) -> dict[str, np.ndarray]:
    """The gradients, clipped and with the weight decay; one that is decoupled changes the parameters."""
    if optimizer.clip:
        squares = [(g**2).reshape(model.lanes or 1, -1).sum(axis=1) for g in grads.values()]  # (L,) each
        scale = np.minimum(1, optimizer.clip / (np.sqrt(sum(squares)) + 1e-6))
        grads = {name: g * per_lane(model, scale, g) for name, g in grads.items()}
    common = model.network.shapes(dense=model.dense)  # which each lane has; of the others, only a branch's do
    for name in grads if optimizer.weight_decay or model.branches else ():
        p, decays = model.parameters[name], np.zeros(model.lanes or 1)
        for lane, branch in enumerate(model.branches or [None] * len(decays)):
            if name in common or (branch is not None and branch.has(name)):
                decays[lane] = optimizer.weight_decay + (branch.decay(name) if branch is not None else 0.0)
        decay = per_lane(model, decays, p)
        if optimizer.decoupled:
            p -= optimizer.lr * decay * p
        else:
            grads = {**grads, name: grads[name] + decay * p}
    return grads


def per_lane(model: Model, numbers: np.ndarray, beside: np.ndarray) -> np.ndarray:
    """One number per lane, in a shape that meets those of a parameter."""
    return numbers.reshape(-1, *[1] * (beside.ndim - 1)) if model.lanes is not None else numbers[0]
