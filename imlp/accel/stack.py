"""How a model's lanes are stored, taken apart and put together again, so that none can change another's rounding."""

import torch
from torch import Tensor

from imlp.accel.products import products_for
from imlp.model import Model

ALIGNMENT = 64  # bytes: where MKL promises that its rounding does not depend on an operand's place


def laid_out(model: Model) -> Model:
    """Weights and states of convolutions that run as products, stored in the layout those need; every lane aligned."""
    for layer in () if model.dense or model.network.is_module else model.network.layers:
        name = f"{layer.name}.weight"
        if name in model.parameters and (products := products_for(layer.spec, model.parameters[name].device)):
            for group in (model.parameters, *model.state.values()):
                group[name] = products.stored(group[name])
    if model.lanes is not None:
        model.parameters = {name: aligned(stack) for name, stack in model.parameters.items()}
    return model


def aligned(stack: Tensor) -> Tensor:
    """The same numbers with each lane on a boundary of ALIGNMENT bytes: the rounding of a product may depend on it."""
    size, step = stack[0].numel(), ALIGNMENT // stack.element_size()
    if size % step == 0:
        return stack
    room = stack.new_zeros((len(stack), -(-size // step) * step))
    return room[:, :size].view(stack.shape).copy_(stack)


def one_by_one(model: Model) -> list[Model]:
    """Each lane as a separate model, which shares its numbers and the room for gradients; or the model itself."""
    return [model.lane(index) for index in range(model.lanes or 1)]


def joined(model: Model, each: list[Tensor]) -> Tensor:
    """The results of all lanes along a leading axis, or that of a model without lanes."""
    return each[0] if model.lanes is None else torch.stack(each)
