"""Adam, in place: torch's fused kernel, one pass over parameter, gradient and moments.

It is called for a layer as soon as its gradient is there, while that is still in the cache.
"""

import torch
from torch import Tensor

from imlp.model import Model
from imlp.optimizers import Adam


def adam(model: Model, grads: dict[str, Tensor], settings: Adam) -> None:
    """The next step of a model without lanes, on the parameters that `grads` names; the model does not count it.

    Parameters of a branch may have a weight decay `d`: `d p` is added to the gradient.
    """
    branch = model.branches[0] if model.branches else None
    by_decay: dict[float, list[str]] = {}
    for name in grads:
        by_decay.setdefault(0.0 if branch is None else branch.decay(name), []).append(name)
    for decay, names in by_decay.items():
        parameters = [model.parameters[name] for name in names]
        torch._fused_adam_(
            parameters,
            [_stored_as(p, grads[name]) for p, name in zip(parameters, names, strict=True)],
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


def _count(model: Model, name: str, device: torch.device) -> Tensor:
    """Which step this is for the parameter, from 1, as the fused kernel takes it."""
    since = int(model.restarts[name][0]) if name in model.restarts else 0
    t, room = model.step + 1 - since, model.scratch.setdefault("adam", {})
    if room.get("step") != model.step:
        room.clear()
        room["step"] = model.step
    if t not in room:
        room[t] = torch.full((), float(t), dtype=torch.float32, device=device)
    found: Tensor = room[t]
    return found


def _stored_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The fused kernel walks through memory, whatever the strides: they have to be the parameter's."""
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)
