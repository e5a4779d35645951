"""`W_L`: a convolution's geometry with its own kernel at each output position (not in the paper).

    W_L[(o, y, x), (c, y s + i d - p, x s + j d - p)] = w[(y, x), o, c, i, j]

and every other entry is zero. Each number stands in one entry: the matrix is as local as `W_F`, and shares nothing.
With the same kernel at all positions it is `W_F`: convolutions lie inside it, and it lies inside the dense matrices.
"""

import numpy as np
from scipy import sparse

from imlp.reference.convolution import filled
from imlp.spec import Local


def matrix(spec: Local, w: np.ndarray) -> sparse.csr_array:
    """`W_L (o h_out w_out, c h_in w_in)`.

    >>> matrix(Local((1, 1, 3), 1, kernel=(1, 2)), np.array([1.0, 2.0, 3.0, 4.0]).reshape(2, 1, 1, 1, 2)).toarray()
    array([[1., 2., 0.],
           [0., 3., 4.]])
    """
    w_out = spec.out_shape[2]
    return filled(spec, lambda o, q, i, j, y, x: w[y * w_out + x, o, q, i, j])
