"""The bias meter without the matrix: a number of the weight that fills `n` entries adds `n` times its square."""

import torch
from torch import Tensor

from imlp.accel.verbs import check_tensor, check_weight, entries_filled, project
from imlp.errors import ArrayError
from imlp.spec import Spec


@torch.no_grad()
def measure(dense: Tensor, spec: Spec, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Share and distance of one matrix `(M_out, M_in)`, or of each lane of a stack, on their device.

    >>> from imlp.spec import Shared
    >>> measure(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), Shared(2, 1, 1), torch.tensor([[4.0]]))
    (tensor(0.8000), tensor(0.5000))
    """
    check_tensor(dense, "W")
    if dense.ndim == 3:  # one by one: a sum over a stack may round differently for another number of lanes
        share, distance = zip(*(measure(lane, spec, weight) for lane in dense), strict=True)
        return torch.stack(share), torch.stack(distance)
    found = project(dense, spec)
    check_weight(spec, weight, beside=dense)
    if found is None or weight is None:
        raise ArrayError(f"{spec} has no weight to be measured by", "measure a layer that has one")
    own = tuple(range(-weight.ndim, 0))
    kept = (found.square() * entries_filled(spec, dense.dtype, dense.device)).sum(own)
    whole = torch.linalg.vector_norm(dense, dim=(-2, -1)).square()
    return kept / whole, torch.linalg.vector_norm(found - weight, dim=own) / torch.linalg.vector_norm(weight)
