"""`T`: transposing a matrix is a permutation of its numbers (appendix B.1.2, after Cate and Twigg).

For a matrix of `H` rows and `W` columns stored row by row, row `k` of `T` has its one at column

    pi(k) = W k mod (H W - 1)   if k != H W - 1,      pi(H W - 1) = H W - 1

Erratum: a matrix of one number would be `mod 0`; the second case covers it.
"""

import numpy as np
from scipy import sparse

from imlp.spec import Transpose


def matrix(spec: Transpose) -> sparse.csr_array:
    """`T (H W, H W)`.

    >>> matrix(Transpose(2, 3)) @ np.arange(6)  # 0 1 2 over 3 4 5
    array([0., 3., 1., 4., 2., 5.])
    """
    H, W = spec.rows, spec.cols
    last = H * W - 1
    k = np.arange(H * W)
    pi = np.append(W * k[:last] % last if last else k[:0], last)
    return sparse.csr_array((np.ones(k.size), (k, pi)), shape=spec.matrix_shape)
