"""The bias meter without the matrix: only the entries of `W` that a prior fills are looked at one by one.

A number of the weight that fills `n` entries adds `n` times its square to what is shared; what is outside is the rest
of `|W|^2`. All sums are in float64, block by block: in float32 those over millions of entries lose three digits.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from imlp import checks
from imlp.accel import entries
from imlp.accel.chain import has_diagonals
from imlp.accel.verbs import arrays_of, check_tensor, project, rank, seen
from imlp.accel.views import entries_filled, views
from imlp.spec import Spec
from imlp.spec.base import PARTS, random_parts

BLOCK = 2**18  # numbers that are converted at once: few enough to stay in the cache


@torch.no_grad()
def measure(dense: Tensor, spec: Spec, weight: Any = None) -> dict[str, Tensor]:
    """`shared`, `local` and `outside` of one matrix `(M_out, M_in)`, or of each lane of a stack, on their device.

    Given the prior's weight, also `distance`.

    >>> from imlp.spec import Shared
    >>> measure(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), Shared(2, 1, 1))
    {'shared': tensor(0.8000), 'local': tensor(0.2000), 'outside': tensor(0.)}
    """
    check_tensor(dense, "W")
    checks.can_be_measured(spec)
    if dense.ndim == 3:  # one by one: a sum over a stack may round differently for another number of lanes
        lanes = [measure(lane, spec, weight) for lane in dense]
        return {key: torch.stack([lane[key] for lane in lanes]) for key in lanes[0]}
    dense = dense.resolve_neg()
    arrays = {} if weight is None else arrays_of(spec, weight, beside=dense)
    found = spec.named(project(dense, spec))
    wide = torch.float32 if dense.device.type == "mps" else torch.float64
    if has_diagonals(spec):
        (numbers,) = found.values()
        shared = (numbers.to(wide).square() * entries_filled(spec, wide, dense.device)).sum()
        filled = views(dense, spec, numbers)
    else:
        place, values = entries.filled(spec, found, like=dense)
        shared = _square(values, wide)
        filled = iter([(dense.view(-1)[place], values)])
    whole = inside = local = torch.zeros((), dtype=wide, device=dense.device)
    for block in dense.view(-1).split(BLOCK):
        whole = whole + _square(block, wide)
    for block, numbers in (pair for whole_pair in filled for pair in _blocks(*whole_pair)):
        inside, local = inside + _square(block, wide), local + _square(block - numbers, wide)
    squares = shared, local, (whole - inside).clamp(min=0)
    parts = {part: (square / whole).to(dense.dtype) for part, square in zip(PARTS, squares, strict=True)}
    if weight is None:
        return parts
    arrays = seen(spec, arrays)
    nearest, prior_weight = entries.flat(found), entries.flat(arrays)
    if has_diagonals(spec):  # added up in the order of its memory: flat, the last bit would differ from runs on record
        ((nearest,), (prior_weight,)) = found.values(), arrays.values()
    distance = torch.linalg.vector_norm(nearest - prior_weight, dim=tuple(range(prior_weight.ndim)))
    scale = torch.linalg.vector_norm(prior_weight) if rank(spec) else 1.0  # without entries no two priors differ
    return {**parts, "distance": distance / scale}


def measure_random(spec: Spec) -> dict[str, float]:
    """The expected parts of a matrix of independent random numbers, from the prior's geometry alone if it is known.

    >>> from imlp.spec import Conv
    >>> measure_random(Conv((1, 2, 2), 1, kernel=1))  # one number, in 4 of 16 entries
    {'shared': 0.0625, 'local': 0.1875, 'outside': 0.75}
    """
    checks.can_be_measured(spec)
    nnz = spec.nnz if has_diagonals(spec) else len(entries.host_map(spec).rows)
    return random_parts(rank(spec), nnz, spec.matrix_shape)


def _blocks(entries: Tensor, numbers: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Entries and the numbers that belong there, in parts of at most `BLOCK`."""
    if entries.numel() <= BLOCK:
        yield entries, numbers
        return
    axis = max(range(entries.ndim), key=entries.shape.__getitem__)
    for halves in zip(entries.tensor_split(2, axis), numbers.tensor_split(2, axis), strict=True):
        yield from _blocks(*halves)


def _square(numbers: Tensor, wide: torch.dtype) -> Tensor:
    flat = numbers.to(wide).reshape(-1)
    return flat.dot(flat)
