"""The coupling `self` (not in the paper): `W` is moved towards the nearest prior layer, without a prior network.

    W <- W - locality (W - M * W) - sharing (M * W - Pi(W))        Pi(W) = matrix(project(W))

`M` is 1 at the entries that the prior can fill, 0 elsewhere. With both alphas equal this is
`(1 - alpha) W + alpha Pi(W)`, the proximal step of `lambda/2 |W - Pi(W)|^2` with `alpha = lambda / (1 + lambda)`.
"""

from typing import Any

import numpy as np

from imlp import checks
from imlp.errors import ArrayError
from imlp.reference.verbs import adjoint_bias, expand_bias, linear_map, matrix, project
from imlp.spec import Spec


def pull(dense: Any, spec: Spec, locality: Any, sharing: Any = None) -> np.ndarray:
    """`W - locality (W - M * W) - sharing (M * W - Pi(W))`, as a new array; `sharing` is as `locality` if it is None.

    `dense` is one matrix `(M_out, M_in)`, or a stack of lanes `(L, M_out, M_in)` with one alpha for all or each.

    >>> from imlp.spec import Shared
    >>> pull([[1.0, 8.0], [8.0, 3.0]], Shared(2, 1, 1), locality=0.25, sharing=0.5)
    array([[1.5, 6. ],
           [6. , 2.5]])
    """
    dense = checks.numbers(dense, "W")
    checks.dense_fits(spec, dense.shape)
    if not spec.parameters:
        raise ArrayError(f"{spec} has no weight to pull towards", "pull towards a layer that has one")
    n = None if dense.ndim == 2 else len(dense)
    both = checks.alphas(locality, n), checks.alphas(locality if sharing is None else sharing, n)
    pulled = [_pull(W, spec, *alphas) for W, *alphas in zip(dense if n else dense[None], *both, strict=True)]
    return np.stack(pulled).reshape(dense.shape)


def _pull(W: np.ndarray, spec: Spec, locality: float, sharing: float) -> np.ndarray:
    filled = linear_map(spec)
    M = np.zeros(W.shape)
    M[filled.rows, filled.columns] = 1
    Pi = matrix(spec, project(W, spec), layout="dense")
    return W - locality * (W - M * W) - sharing * (M * W - Pi)


def pull_bias(dense_bias: Any, spec: Spec, sharing: float) -> np.ndarray:
    """`(1 - sharing) b + sharing Pi(b)`: the nearest bias of the prior is one of means.

    >>> from imlp.spec import Shared
    >>> pull_bias([3.0, 5.0, 1.0, 1.0], Shared(2, 1, 2), sharing=1)
    array([2., 3., 2., 3.])
    """
    b = checks.numbers(dense_bias, "the bias")
    (sharing,) = checks.alphas(sharing, None)
    sums = adjoint_bias(spec, b)
    nearest = 0.0 if sums is None else expand_bias(spec, sums / adjoint_bias(spec, np.ones(b.shape)))
    return (1 - sharing) * b + sharing * nearest
