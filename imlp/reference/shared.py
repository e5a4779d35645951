"""`W~`: one small layer shared by the rows of a matrix is block diagonal (appendix B.2).

    y_r = x_r w^T  for r = 1 .. R        W~ = diag(w, w, ..., w) = I_R kron w

Errata: the paper calls it a Toeplitz matrix, meaning block diagonal with equal blocks; and `w` need not be square
(the patch embedding and any expansion are rectangular).
"""

import numpy as np
from scipy import sparse

from imlp.spec import Shared


def matrix(spec: Shared, w: np.ndarray) -> sparse.csr_array:
    """`W~ (R C_out, R C_in)`.

    >>> matrix(Shared(rows=2, in_features=2, out_features=1), np.array([[3.0, 5.0]])).toarray()
    array([[3., 5., 0., 0.],
           [0., 0., 3., 5.]])
    """
    C_out, C_in = w.shape
    r = np.arange(spec.rows)[:, None, None]
    o = np.arange(C_out)[None, :, None]
    k = np.arange(C_in)[None, None, :]
    entries = np.broadcast_arrays(r * C_out + o, r * C_in + k, w)
    rows, columns, values = (entry.ravel() for entry in entries)
    return sparse.csr_array((values, (rows, columns)), shape=spec.matrix_shape)
