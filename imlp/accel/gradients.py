"""What happens to the gradients of a network before the optimizer's step; the decay is torch's."""

import torch
from torch import Tensor


def clipped(grads: dict[str, Tensor], most: float) -> dict[str, Tensor]:
    """The gradients scaled down to this norm of all of them together, if it is larger."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(grads.values()))))
    scale = (most / (norm + 1e-6)).clamp(max=1)
    return {name: gradient * scale for name, gradient in grads.items()}
