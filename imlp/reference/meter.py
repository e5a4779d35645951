"""The bias meter: how much inductive bias a layer really holds, and which.

    |W|^2 = |Pi W|^2 + |M * W - Pi W|^2 + |W - M * W|^2        distance = |project(W) - w| / |w|
            shared     local              outside

`Pi W = matrix(project(W))` is the part of `W` in the prior's subspace. `M` is 1 where a prior's matrix can differ from
zero, so `M * W` is local but free to differ from place to place. `Pi W`, `M * W - Pi W` and `W - M * W` are orthogonal,
and each part is given as a share of `|W|^2`: a prior layer is all shared, and a matrix of independent random numbers
holds as much of each as `measure_random` says. The distance is that of the shared part from the prior's own weight `w`,
of which only the numbers that its matrix shows are counted: a kernel tap that never meets the image has no effect.
The paper sets alpha and never measures its effect on the weights.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from imlp import checks
from imlp.reference.verbs import linear_map, matrix, project
from imlp.spec import Spec
from imlp.spec.base import PARTS, flat, random_parts, split


def measure(dense: Any, spec: Spec, weight: Any = None) -> dict[str, np.ndarray]:
    """`shared`, `local` and `outside` of one matrix `(M_out, M_in)`, or of each lane of a stack: they add up to 1.

    Given the prior's weight, also `distance`.

    >>> from imlp.spec import Shared
    >>> found = measure([[1.0, 0.0], [0.0, 3.0]], Shared(2, 1, 1), [[4.0]])  # Pi W = 2 I
    >>> {part: float(share) for part, share in found.items()}
    {'shared': 0.8, 'local': 0.2, 'outside': 0.0, 'distance': 0.5}
    """
    dense = checks.numbers(dense, "W")
    checks.can_be_measured(spec)
    if dense.ndim == 3:
        lanes = [measure(lane, spec, weight) for lane in dense]
        return {key: np.array([lane[key] for lane in lanes]) for key in lanes[0]}
    nearest = project(dense, spec)
    shared = matrix(spec, nearest)  # Pi W
    inside = support(spec) * dense  # M * W
    squares = [np.square(shared.data).sum(), np.square((inside - shared).data).sum(), np.square(dense - inside).sum()]
    parts = {part: np.array(square / np.square(dense).sum()) for part, square in zip(PARTS, squares, strict=True)}
    if weight is None:
        return parts
    prior_weight = linear_map(spec).seen(flat(checks.arrays_fit(spec, weight)))
    scale = np.linalg.norm(prior_weight) if linear_map(spec).rank else 1.0  # without entries no two priors differ
    return {**parts, "distance": np.array(np.linalg.norm(flat(spec.named(nearest)) - prior_weight) / scale)}


def measure_random(spec: Spec) -> dict[str, float]:
    """The expected parts of a matrix of independent random numbers: the fewer numbers a prior has, the less is shared.

    >>> from imlp.spec import Conv
    >>> measure_random(Conv((1, 2, 2), 1, kernel=1))  # one number, in 4 of 16 entries
    {'shared': 0.0625, 'local': 0.1875, 'outside': 0.75}
    """
    checks.can_be_measured(spec)
    return random_parts(linear_map(spec).rank, support(spec).nnz, spec.matrix_shape)


@lru_cache(maxsize=64)
def support(spec: Spec) -> sparse.csr_array:
    """`M (M_out, M_in)`: the pattern of the matrix of random numbers, among which nothing cancels.

    >>> from imlp.spec import Shared
    >>> support(Shared(2, 1, 1)).toarray()
    array([[1., 0.],
           [0., 1.]])
    """
    numbers = np.random.default_rng(0).uniform(0.5, 1.5, spec.n_weights)
    return (matrix(spec, spec.unnamed(split(spec, numbers))) != 0).astype(np.float64)
