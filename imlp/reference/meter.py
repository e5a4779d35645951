"""The bias meter: how much inductive bias a layer really holds.

    share = |matrix(project(W))|^2 / |W|^2        distance = |project(W) - w| / |w|

The share of `W`'s squared norm that lies in the prior's subspace: 1 for a prior layer, `rank / (M_out M_in)` for a
matrix of independent random numbers, and how far that part is from the prior's own weight `w`. The paper sets alpha
and never measures what comes of it.
"""

from typing import Any

import numpy as np

from imlp import checks
from imlp.reference.verbs import matrix, project
from imlp.spec import Spec
from imlp.spec.linear_map import flat


def measure(dense: Any, spec: Spec, weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """Share and distance of one matrix `(M_out, M_in)`, or of each lane of a stack.

    >>> from imlp.spec import Shared
    >>> measure([[1.0, 0.0], [0.0, 3.0]], Shared(2, 1, 1), [[4.0]])  # |2 I|^2 / (1 + 9), |2 - 4| / 4
    (array(0.8), array(0.5))
    """
    dense, own = checks.numbers(dense, "W"), flat(checks.arrays_fit(spec, weight))
    found: Any = project(dense, spec)
    if dense.ndim == 2:
        share = np.square(matrix(spec, found).data).sum() / np.square(dense).sum()
        distance = np.linalg.norm(flat(spec.named(found)) - own) / np.linalg.norm(own)
        return np.array(share), np.array(distance)
    shares, distances = zip(*(measure(lane, spec, weight) for lane in dense), strict=True)
    return np.array(shares), np.array(distances)
