"""The verbs on any spec, through its matrix.

apply        y = x W_P^T + b
interpolate  W <- (1 - alpha) W + alpha W_P        (algorithm 1; W + alpha W_P is RepMLPNet's injection)
adjoint      <matrix(w), D> = <w, adjoint(D)>      (the chain rule: dw = adjoint(dW_P))
project      argmin_w |W - matrix(w)|^2            (not in the paper: how much of W is a prior layer)

The nouns of this package have a formula each; a noun of someone else's brings its own `matrix`.
"""

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from scipy import sparse

from imlp import checks
from imlp.reference import chain, convolution, local, patchify, shared, transpose
from imlp.spec import Chain, Conv, Local, Patchify, Shared, Spec, Transpose
from imlp.spec.base import linear_map_of, own_matrix, split
from imlp.spec.linear_map import LinearMap

FORMULAS: dict[type[Spec], Callable[..., sparse.csr_array]] = {
    Conv: convolution.matrix,
    Local: local.matrix,
    Patchify: patchify.matrix,
    Transpose: transpose.matrix,
    Shared: shared.matrix,
}


def matrix(spec: Spec, weight: Any = None, *, layout: str | None = None) -> Any:
    """`W_P (M_out, M_in)` in float64: a `scipy.sparse.csr_array`, or an ndarray with `layout="dense"`.

    >>> matrix(Shared(2, 1, 1), [[7.0]]).toarray()
    array([[7., 0.],
           [0., 7.]])
    """
    checks.layout_known(layout)
    w_p = _matrix(spec, checks.arrays_fit(spec, weight))
    return w_p.toarray() if layout == "dense" else w_p


def _matrix(spec: Spec, arrays: dict[str, np.ndarray]) -> sparse.csr_array:
    if isinstance(spec, Chain):
        return chain.matrix([_matrix(part, arrays if part.parameters else {}) for part in spec.parts])
    formula = FORMULAS.get(type(spec))  # a class derived from one of them is another noun
    return own_matrix(spec, arrays) if formula is None else formula(spec, *arrays.values())


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
    return np.asarray(bias_map(spec) @ bias)


@lru_cache(maxsize=64)
def bias_map(spec: Spec) -> sparse.csr_array:
    """The matrix `(M_out, biases)` of `b -> expand_bias(b)`; what follows a chain's core moves its bias too.

    >>> bias_map(Shared(2, 1, 1)).toarray()
    array([[1.],
           [1.]])
    """
    if isinstance(spec, Chain):
        core = spec.parts.index(spec.core)  # it has a bias, so there is one
        after = [_matrix(part, {}) for part in spec.parts[core + 1 :]]
        return reduce(lambda product, part: part @ product, after, bias_map(spec.parts[core]))
    index = np.asarray(spec.bias_index)
    (n,) = spec.bias_shape or (0,)
    return sparse.csr_array((np.ones(len(index)), (np.arange(len(index)), index)), shape=(len(index), n))


def apply(spec: Spec, weight: Any, bias: Any, x: Any) -> np.ndarray:
    """`x W_P^T + b` for `x (N, M_in)`.

    >>> apply(Transpose(2, 3), None, None, np.arange(6.0)[None])
    array([[0., 3., 1., 4., 2., 5.]])
    """
    x = checks.numbers(x, "the input")
    checks.input_fits(spec, x.shape)
    return (matrix(spec, weight) @ x.T).T + expand_bias(spec, bias)


def interpolate(dense: Any, spec: Spec, weight: Any, alpha: Any, *, add: bool = False) -> np.ndarray:
    """`(1 - alpha) W + alpha W_P`, or `W + alpha W_P` with `add`, as a new array.

    `dense` is one matrix `(M_out, M_in)`, or a stack of lanes `(L, M_out, M_in)` with one alpha for all or each.

    >>> interpolate(np.ones((2, 2)), Shared(2, 1, 1), [[3.0]], alpha=0.5)
    array([[2. , 0.5],
           [0.5, 2. ]])
    """
    dense = checks.numbers(dense, "W")
    checks.dense_fits(spec, dense.shape)
    alphas = checks.alphas(alpha, None if dense.ndim == 2 else len(dense))
    w_p = matrix(spec, weight)
    lanes = dense[None] if dense.ndim == 2 else dense
    kept = [1 if add else 1 - a for a in alphas]
    mixed = [k * w + a * w_p for k, w, a in zip(kept, lanes, alphas, strict=True)]
    return np.stack(mixed).reshape(dense.shape)


def interpolate_bias(dense_bias: Any, spec: Spec, bias: Any, alpha: float, *, add: bool = False) -> np.ndarray:
    """The same for the bias, `(1 - alpha) b + alpha b_P`, as a new array; `b_P` is 0 where `bias` is None.

    >>> interpolate_bias([1.0, 1.0, 1.0, 1.0], Shared(2, 1, 2), [3.0, 5.0], alpha=0.5)
    array([2., 3., 2., 3.])
    """
    b = checks.numbers(dense_bias, "the bias")
    checks.dense_bias_fits(spec, b.shape)
    (alpha,) = checks.alphas(alpha, None)
    return (1 if add else 1 - alpha) * b + alpha * expand_bias(spec, bias)


def adjoint(spec: Spec, dense: Any) -> Any:
    """The transpose of the linear map `w -> matrix(w)`: for each number of the weight, the sum of the entries it fills.

    It turns the gradient of a loss at `W_P (M_out, M_in)` into the one at `w`: `<matrix(w), D> = <w, adjoint(D)>`. A
    stack of lanes returns a stack; None for a layer without parameters, a mapping for one with several.

    >>> adjoint(Shared(2, 1, 1), [[1.0, 9.0], [9.0, 3.0]])
    array([[4.]])
    """
    return _from_dense(spec, dense, LinearMap.adjoint)


def adjoint_bias(spec: Spec, dense_bias: Any) -> Any:
    """The transpose of `b -> expand_bias(b)`: from `(M_out,)`, or `(lanes, M_out)`, to the small bias.

    >>> adjoint_bias(Shared(2, 1, 2), [3.0, 5.0, 1.0, 1.0])
    array([4., 6.])
    """
    dense_bias = checks.numbers(dense_bias, "the bias")
    checks.dense_bias_fits(spec, dense_bias.shape)
    return None if spec.bias_shape is None else (bias_map(spec).T @ dense_bias.T).T


def project(dense: Any, spec: Spec) -> Any:
    """The weight whose matrix is nearest to `dense`: for each number of it, the mean of the entries that it fills.

    Where each entry of a matrix is one number of its weight or zero, the least-squares problem falls apart into one
    mean per number; otherwise LSQR solves it. A kernel tap that never meets the image fills no entry; it is given 0,
    the smallest choice. None for a layer without parameters, which has nothing to fit.

    >>> project([[1.0, 9.0], [9.0, 3.0]], Shared(2, 1, 1))
    array([[2.]])
    """
    return _from_dense(spec, dense, LinearMap.project)


def _from_dense(spec: Spec, dense: Any, verb: Callable[[LinearMap, np.ndarray], np.ndarray]) -> Any:
    dense = checks.numbers(dense, "W")
    checks.dense_fits(spec, dense.shape)
    if not spec.parameters:
        return None
    weights = [verb(linear_map(spec), lane) for lane in (dense[None] if dense.ndim == 2 else dense)]
    return spec.unnamed(split(spec, np.stack(weights).reshape(*dense.shape[:-2], -1)))


@lru_cache(maxsize=64)
def linear_map(spec: Spec) -> LinearMap:
    """`w -> matrix(w)`: which number fills which entries.

    >>> linear_map(Shared(2, 1, 1)).rows, linear_map(Shared(2, 1, 1)).A.toarray()
    (array([0, 1]), array([[1.],
           [1.]]))
    """
    return linear_map_of(spec, lambda w: _matrix(spec, split(spec, w)))


def place(array: Any, *, device: Any = None) -> np.ndarray:
    """The array itself: the reference computes on the CPU, whatever `device` says."""
    return np.asarray(array)


def to_numpy(array: Any) -> np.ndarray:
    """A dense ndarray, from a sparse matrix too."""
    return array.toarray() if isinstance(array, sparse.csr_array) else np.asarray(array)
