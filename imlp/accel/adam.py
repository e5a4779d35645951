"""Adam, in place: torch's fused kernel, one pass over parameter, gradient and moments.

It is called for a layer as soon as its gradient is there, while that is still in the cache.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from imlp.model import Model
from imlp.optimizers import Adam, Optimizer


def adam(model: Model, grads: dict[str, Tensor], settings: Adam) -> None:
    """The next step of a model without lanes, on the parameters that `grads` names; the model does not count it."""
    for decay, names, parameters, gradients in by_decay(model, grads, settings):
        (torch._fused_adamw_ if settings.decoupled else torch._fused_adam_)(
            parameters,
            gradients,
            [model.state["first"][name] for name in names],
            [model.state["second"][name] for name in names],
            [],
            [_count(model, name, parameters[0].device) for name in names],
            lr=settings.lr,
            beta1=settings.beta1,
            beta2=settings.beta2,
            weight_decay=decay,
            eps=settings.eps,
            amsgrad=False,
            maximize=False,
        )


def by_decay(
    model: Model, grads: dict[str, Tensor], settings: Optimizer
) -> Iterator[tuple[float, list[str], list[Tensor], list[Tensor]]]:
    """Weight decay, names, parameters and gradients of those that have one decay in common.

    The parameters of a branch may have another weight decay than the optimizer's.
    """
    branch = model.branches[0] if model.branches else None
    groups: dict[float, list[str]] = {}
    for name in grads:
        decay = 0.0 if branch is None else branch.decay(name)
        groups.setdefault(settings.weight_decay + decay, []).append(name)
    for decay, names in groups.items():
        parameters = [model.parameters[name] for name in names]
        yield decay, names, parameters, [_stored_as(p, grads[name]) for p, name in zip(parameters, names, strict=True)]


def _count(model: Model, name: str, device: torch.device) -> Tensor:
    """Which step this is for the parameter, from 1, as the fused kernel takes it."""
    since = int(model.restarts[name][0]) if name in model.restarts else 0
    return torch.full((), float(model.step + 1 - since), dtype=torch.float32, device=device)


def _stored_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The fused kernel walks through memory, whatever the strides: they have to be the parameter's."""
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)
