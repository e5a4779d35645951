"""The verbs on any spec, through its matrix.

apply        y = x W_P^T + b
interpolate  W <- (1 - alpha) W + alpha W_P        (algorithm 1; W + alpha W_P is RepMLPNet's injection)
adjoint      <matrix(w), D> = <w, adjoint(D)>      (the chain rule: dw = adjoint(dW_P))
project      argmin_w |W - matrix(w)|^2            (not in the paper: how much of W is a prior layer)
"""

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from scipy import sparse

from imlp import checks
from imlp.reference import chain, convolution, patchify, shared, transpose
from imlp.spec import Chain, Conv, Patchify, Shared, Spec, Transpose


def matrix(spec: Spec, weight: Any = None, *, layout: str | None = None) -> Any:
    """`W_P (M_out, M_in)` in float64: a `scipy.sparse.csr_array`, or an ndarray with `layout="dense"`.

    >>> matrix(Shared(2, 1, 1), [[7.0]]).toarray()
    array([[7., 0.],
           [0., 7.]])
    """
    checks.layout_known(layout)
    weight = None if weight is None else checks.numbers(weight, "weight")
    checks.weight_fits(spec, None if weight is None else weight.shape)
    w_p = _matrix(spec, weight)
    return w_p.toarray() if layout == "dense" else w_p


def _matrix(spec: Spec, weight: Any) -> sparse.csr_array:
    match spec:
        case Conv():
            return convolution.matrix(spec, weight)
        case Patchify():
            return patchify.matrix(spec)
        case Transpose():
            return transpose.matrix(spec)
        case Shared():
            return shared.matrix(spec, weight)
        case Chain():
            return chain.matrix([_matrix(part, weight if part.n_parameters else None) for part in spec.parts])
    raise TypeError(f"{type(spec).__name__} is not a spec of imlp.spec")


def expand_bias(spec: Spec, bias: Any) -> np.ndarray:
    """The dense layer's bias: repeated over a convolution's positions, tiled over a shared layer's rows.

    >>> expand_bias(Shared(2, 1, 2), [3.0, 5.0])
    array([3., 5., 3., 5.])
    """
    checks.is_spec(spec)
    if bias is None:
        return np.zeros(spec.matrix_shape[0])
    bias = checks.numbers(bias, "bias")
    checks.weight_fits(spec, bias.shape, "bias")
    match spec:
        case Conv():
            _, h_out, w_out = spec.out_shape
            return np.repeat(bias, h_out * w_out)
        case Shared():
            return np.tile(bias, spec.rows)
        case Chain():
            core = spec.parts.index(spec.core)  # a bias fits, so there is one
            expanded = expand_bias(spec.parts[core], bias)
            for permutation in spec.parts[core + 1 :]:
                expanded = matrix(permutation) @ expanded
            return expanded
    raise TypeError(f"{type(spec).__name__} is not a spec of imlp.spec")


def apply(spec: Spec, weight: Any, bias: Any, x: Any) -> np.ndarray:
    """`x W_P^T + b` for `x (N, M_in)`.

    >>> apply(Transpose(2, 3), None, None, np.arange(6.0)[None])
    array([[0., 3., 1., 4., 2., 5.]])
    """
    x = checks.numbers(x, "the input")
    checks.input_fits(spec, x.shape)
    return (matrix(spec, weight) @ x.T).T + expand_bias(spec, bias)


def interpolate(dense: Any, spec: Spec, weight: Any, alpha: Any, *, mode: str = "interpolate") -> np.ndarray:
    """`(1 - alpha) W + alpha W_P`, or `W + alpha W_P` with `mode="add"`, as a new array.

    `dense` is one matrix `(M_out, M_in)`, or a stack of lanes `(L, M_out, M_in)` with one alpha for all or each.

    >>> interpolate(np.ones((2, 2)), Shared(2, 1, 1), [[3.0]], alpha=0.5)
    array([[2. , 0.5],
           [0.5, 2. ]])
    """
    dense = checks.numbers(dense, "W")
    checks.dense_fits(spec, dense.shape)
    checks.mode_known(mode)
    alphas = checks.alphas(alpha, None if dense.ndim == 2 else len(dense))
    w_p = matrix(spec, weight)
    lanes = dense[None] if dense.ndim == 2 else dense
    kept = [1 - a if mode == "interpolate" else 1 for a in alphas]
    mixed = [k * w + a * w_p for k, w, a in zip(kept, lanes, alphas, strict=True)]
    return np.stack(mixed).reshape(dense.shape)


def adjoint(spec: Spec, dense: Any) -> Any:
    """The transpose of the linear map `w -> matrix(w)`: for each number of the weight, the sum of the entries it fills.

    It turns the gradient of a loss at `W_P (M_out, M_in)` into the one at `w`: `<matrix(w), D> = <w, adjoint(D)>`. A
    stack of lanes returns a stack; None for a permutation.

    >>> adjoint(Shared(2, 1, 1), [[1.0, 9.0], [9.0, 3.0]])
    array([[4.]])
    """
    dense = checks.numbers(dense, "W")
    checks.dense_fits(spec, dense.shape)
    if spec.weight_shape is None:
        return None
    places, filled_by, _ = pattern(spec)
    lanes, where, n = dense[None] if dense.ndim == 2 else dense, places.nonzero(), prod(spec.weight_shape)
    sums = np.stack([np.bincount(filled_by, weights=lane[where], minlength=n) for lane in lanes])
    return sums.reshape(*dense.shape[:-2], *spec.weight_shape)


def adjoint_bias(spec: Spec, dense_bias: Any) -> Any:
    """The same for `b -> expand_bias(b)`: from `(M_out,)`, or `(lanes, M_out)`, to the small bias.

    >>> adjoint_bias(Shared(2, 1, 2), [3.0, 5.0, 1.0, 1.0])
    array([4., 6.])
    """
    dense_bias = checks.numbers(dense_bias, "the bias")
    checks.dense_bias_fits(spec, dense_bias.shape)
    if spec.bias_shape is None:
        return None
    lanes, filled_by = np.atleast_2d(dense_bias), pattern(spec)[2]
    sums = np.stack([np.bincount(filled_by, weights=own, minlength=prod(spec.bias_shape)) for own in lanes])
    return sums.reshape(*dense_bias.shape[:-1], *spec.bias_shape)


def project(dense: Any, spec: Spec) -> np.ndarray | None:
    """The weight whose matrix is nearest to `dense`: for each number of it, the mean of the entries that it fills.

    Each entry of a prior's matrix is one number of its weight or zero, so the least-squares problem falls apart into
    one mean per number. A kernel tap that never meets the image fills no entry; it is given 0, the smallest choice.
    None for a permutation, which has nothing to fit.

    >>> project([[1.0, 9.0], [9.0, 3.0]], Shared(2, 1, 1))
    array([[2.]])
    """
    sums = adjoint(spec, dense)
    if sums is None or spec.weight_shape is None:
        return None
    counts = np.bincount(pattern(spec)[1], minlength=prod(spec.weight_shape)).reshape(spec.weight_shape)
    return sums / np.maximum(counts, 1)


@lru_cache(maxsize=64)
def pattern(spec: Spec) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """Which number fills what: `matrix` of the numbers 1, 2, ..., that numbering from 0 by entry, and the bias's.

    >>> pattern(Shared(2, 1, 1))[0].toarray()
    array([[1., 0.],
           [0., 1.]])
    """
    n = prod(spec.weight_shape or ())
    numbered = matrix(spec, np.arange(1.0, n + 1).reshape(spec.weight_shape or ()))
    bias = expand_bias(spec, np.arange(prod(spec.bias_shape or ())))
    return numbered, numbered.data.astype(int) - 1, bias.astype(int)


def place(array: Any, *, device: Any = None) -> np.ndarray:
    """The array itself: the reference computes on the CPU, whatever `device` says."""
    return np.asarray(array)


def to_numpy(array: Any) -> np.ndarray:
    """A dense ndarray, from a sparse matrix too."""
    return array.toarray() if isinstance(array, sparse.csr_array) else np.asarray(array)
