"""`W_F`: a convolution written as a dense layer (appendix A, after RepMLPNet).

    W_F = reshape(F * x_I, (c h_in w_in, o h_out w_out))^T        x_I = reshape(I, (c h_in w_in, c, h_in, w_in))

Every row of the identity `I` is an image with a single one in it (a *basis image*). Convolving all of them gives
all columns of `W_F`. `*` is cross-correlation, as in every deep-learning library.

Erratum: the paper's output size lacks its floor, `h_out = floor((h_in + 2p - k) / s) + 1`; see `Conv.out_shape`.
"""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from imlp.spec import Conv, Window


def matrix(spec: Conv, F: np.ndarray) -> sparse.csr_array:
    """`W_F`, evaluated sparsely: a basis image meets only the taps that reach its one pixel.

    Tap `(i, j)` of the kernel joins output `(y, x)` to pixel `(v, u) = (y s + i d - p, x s + j d - p)`, so that
    `W_F[(o, y, x), (c, v, u)] = F[o, c, i, j]`, and every other entry is zero.

    >>> matrix(Conv((1, 1, 3), 1, kernel=(1, 2)), np.array([[[[1.0, 2.0]]]])).toarray()
    array([[1., 2., 0.],
           [0., 1., 2.]])
    """
    return filled(spec, lambda o, q, i, j, y, x: F[o, q, i, j])


def filled(spec: Window, number: Callable[..., np.ndarray]) -> sparse.csr_array:
    """The matrix that has `number(o, q, i, j, y, x)` at output `(o, y, x)`, tap `(i, j)` and channel `q` of a group."""
    (c_in, h_in, w_in), (c_out, h_out, w_out), g = spec.in_shape, spec.out_shape, spec.groups
    i, y, v = (index[:, None] for index in meetings(spec, axis=0))  # (n_y, 1): tap, output row, input row
    j, x, u = (index[None, :] for index in meetings(spec, axis=1))  # (1, n_x): tap, output and input column

    o = np.arange(c_out)[:, None, None, None]  # output channel
    q = np.arange(c_in // g)[None, :, None, None]  # input channel within its group
    c = o // (c_out // g) * (c_in // g) + q  # input channel

    row = (o * h_out + y) * w_out + x  # (o, 1, n_y, n_x)
    column = (c * h_in + v) * w_in + u  # (o, c/g, n_y, n_x)
    entries = np.broadcast_arrays(row, column, number(o, q, i, j, y, x))
    rows, columns, values = (entry.ravel() for entry in entries)
    return sparse.csr_array((values, (rows, columns)), shape=spec.matrix_shape)


def meetings(spec: Window, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All `(tap, output, pixel)` of one axis with `pixel = output * stride + tap * dilation - padding` in the image."""
    tap, output = np.meshgrid(np.arange(spec.kernel[axis]), np.arange(spec.out_shape[1 + axis]), indexing="ij")
    pixel = output * spec.stride[axis] + tap * spec.dilation[axis] - spec.padding[axis]
    inside = (pixel >= 0) & (pixel < spec.in_shape[1 + axis])
    return tap[inside], output[inside], pixel[inside]


def literal_matrix(spec: Conv, F: np.ndarray) -> np.ndarray:
    """`W_F` by the formula to the letter, a dense array: for small images, and to be sure of `matrix`."""
    m_out, m_in = spec.matrix_shape
    x_I = np.eye(m_in).reshape(m_in, *spec.in_shape)
    return correlate(spec, F, x_I).reshape(m_in, m_out).T


def correlate(spec: Conv, F: np.ndarray, x: np.ndarray) -> np.ndarray:
    """`F * x` for a batch of images `(N, c, h_in, w_in)`, output `(N, o, h_out, w_out)`."""
    (p_y, p_x), (s_y, s_x), (d_y, d_x) = spec.padding, spec.stride, spec.dilation
    padded = np.pad(x, ((0, 0), (0, 0), (p_y, p_y), (p_x, p_x)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, spec.reach, axis=(2, 3))
    windows = windows[:, :, ::s_y, ::s_x, ::d_y, ::d_x]  # (N, c, h_out, w_out, k_y, k_x)
    by_group = zip(np.split(windows, spec.groups, axis=1), np.split(F, spec.groups), strict=True)
    return np.concatenate([np.einsum("ncyxij,ocij->noyx", window, f) for window, f in by_group], axis=1)
