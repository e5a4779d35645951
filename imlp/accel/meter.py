"""The bias meter without the matrix: a number of the weight that fills `n` entries adds `n` times its square."""

from typing import Any

import torch
from torch import Tensor

from imlp.accel import entries
from imlp.accel.chain import has_diagonals
from imlp.accel.verbs import arrays_of, check_tensor, project
from imlp.accel.views import entries_filled
from imlp.errors import ArrayError
from imlp.spec import Spec


@torch.no_grad()
def measure(dense: Tensor, spec: Spec, weight: Any) -> tuple[Tensor, Tensor]:
    """Share and distance of one matrix `(M_out, M_in)`, or of each lane of a stack, on their device.

    >>> from imlp.spec import Shared
    >>> measure(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), Shared(2, 1, 1), torch.tensor([[4.0]]))
    (tensor(0.8000), tensor(0.5000))
    """
    check_tensor(dense, "W")
    if dense.ndim == 3:  # one by one: a sum over a stack may round differently for another number of lanes
        share, distance = zip(*(measure(lane, spec, weight) for lane in dense), strict=True)
        return torch.stack(share), torch.stack(distance)
    arrays = arrays_of(spec, weight, beside=dense)
    if not arrays:
        raise ArrayError(f"{spec} has no weight to be measured by", "measure a layer that has one")
    found = spec.named(project(dense, spec))
    if not has_diagonals(spec):
        numbers, own = entries.flat(found), entries.flat(arrays)
        kept = entries.filled(spec, found, like=dense)[1].square().sum()
    else:
        (numbers,), (own,) = found.values(), arrays.values()
        kept = (numbers.square() * entries_filled(spec, dense.dtype, dense.device)).sum(tuple(range(-own.ndim, 0)))
    whole = torch.linalg.vector_norm(dense, dim=(-2, -1)).square()
    distance = torch.linalg.vector_norm(numbers - own, dim=tuple(range(-own.ndim, 0)))
    return kept / whole, distance / torch.linalg.vector_norm(own)
