"""`W_L`: a convolution's geometry with a kernel of its own at each output position (not in the paper).

    W_L[(o, y, x), (c, y s + i d - p, x s + j d - p)] = w[(y, x), o, c, i, j]

and every other entry is zero. Each number stands in one entry: the matrix is as local as `W_F`, and shares nothing.
With the same kernel at all positions it is `W_F`: convolutions lie inside it, and it lies inside the dense matrices.
"""

import numpy as np
from scipy import sparse

from imlp.reference.convolution import meetings
from imlp.spec import Local


def matrix(spec: Local, w: np.ndarray) -> sparse.csr_array:
    """`W_L (o h_out w_out, c h_in w_in)`.

    >>> matrix(Local((1, 1, 3), 1, kernel=(1, 2)), np.array([1.0, 2.0, 3.0, 4.0]).reshape(2, 1, 1, 1, 2)).toarray()
    array([[1., 2., 0.],
           [0., 3., 4.]])
    """
    (c_in, h_in, w_in), (c_out, h_out, w_out), g = spec.in_shape, spec.out_shape, spec.groups
    i, y, v = (index[:, None] for index in meetings(spec, axis=0))  # (n_y, 1): tap, output row, input row
    j, x, u = (index[None, :] for index in meetings(spec, axis=1))  # (1, n_x): tap, output and input column

    o = np.arange(c_out)[:, None, None, None]  # output channel
    q = np.arange(c_in // g)[None, :, None, None]  # input channel within its group
    c = o // (c_out // g) * (c_in // g) + q  # input channel

    row = (o * h_out + y) * w_out + x  # (o, 1, n_y, n_x)
    column = (c * h_in + v) * w_in + u  # (o, c/g, n_y, n_x)
    entries = np.broadcast_arrays(row, column, w[y * w_out + x, o, q, i, j])
    rows, columns, values = (entry.ravel() for entry in entries)
    return sparse.csr_array((values, (rows, columns)), shape=spec.matrix_shape)
