"""Adam, in place: torch's fused kernel, one pass over parameter, gradient and moments.

It is called for a layer as soon as its gradient is there, while that is still in the cache.
"""

import torch
from torch import Tensor

from imlp.model import Model


def adam(
    model: Model, grads: dict[str, Tensor], *, t: Tensor, lr: float, betas: tuple[float, float], eps: float
) -> None:
    """Step `t` (counted from 1, a float32 scalar on the model's device) on the parameters that `grads` names."""
    names = list(grads)
    parameters = [model.parameters[name] for name in names]
    torch._fused_adam_(
        parameters,
        [_stored_as(p, g) for p, g in zip(parameters, grads.values(), strict=True)],
        [model.first_moments[name] for name in names],
        [model.second_moments[name] for name in names],
        [],
        [t] * len(names),
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=0.0,
        eps=eps,
        amsgrad=False,
        maximize=False,
    )


def _stored_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The fused kernel walks through memory, whatever the strides: they have to be the parameter's."""
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)
