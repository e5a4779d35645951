"""Stochastic gradient descent, in place: torch's fused kernel."""

import torch
from torch import Tensor

from imlp.accel.adam import by_decay
from imlp.model import Model
from imlp.optimizers import SGD


def sgd(model: Model, grads: dict[str, Tensor], settings: SGD) -> None:
    """The next step of a model without lanes, on the parameters that `grads` names; the model does not count it."""
    for decay, names, parameters, gradients in by_decay(model, grads, settings):
        torch._fused_sgd_(
            parameters,
            gradients,
            [model.state["velocity"][name] for name in names] if settings.momentum else [],
            weight_decay=decay,
            momentum=settings.momentum,
            lr=settings.lr,
            dampening=0.0,
            nesterov=settings.nesterov,
            maximize=False,
            is_first_step=False,
        )
