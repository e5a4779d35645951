"""The operations of a network, each forward beside its backward.

Each returns its output and a function that turns `dy`, the loss's gradient there, into `dx` and the gradients of the
operation's own parameters by name. Leading lane axes pass through: `...` stands for `(L,)` or nothing.
"""

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np

from imlp.reference.verbs import adjoint, adjoint_bias, expand_bias, linear_map, matrix
from imlp.spec import Spec
from imlp.spec.base import flat

Gradients = dict[str, np.ndarray]
Backward = Callable[[np.ndarray], tuple[np.ndarray, Gradients]]


def linear(x: np.ndarray, W: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Backward]:
    """A dense layer, `y = x W^T + b`, with `x (..., N, M_in)`, `W (..., M_out, M_in)`, `b (..., M_out)`.

    >>> y, backward = linear(np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]]), np.array([0.5]))
    >>> y, backward(np.array([[1.0]]))[0]
    (array([[13.5]]), array([[3., 5.]]))
    """

    def backward(dy: np.ndarray) -> tuple[np.ndarray, Gradients]:
        return dy @ W, {"weight": dy.mT @ x, "bias": dy.sum(axis=-2)}

    return x @ W.mT + b[..., None, :], backward


def structured(x: np.ndarray, spec: Spec, w: Any, b: np.ndarray | None) -> tuple[np.ndarray, Backward]:
    """A prior layer through its matrix, `y = x W_P^T + b_P`.

    `W_P` holds number `k` of `w` at several places, so `dw_k` is the sum of `dW_P = dy^T x` over them. (All of
    `dW_P` and then the sum: one product by BLAS is faster than the entries one by one.) `w` is an array, or a mapping
    of several; `b` may be None.
    """
    arrays = spec.named(w)
    W_P: Any = linear_map(spec).matrix(flat(arrays)) if spec.linear else matrix(spec, w)
    if 8 * W_P.nnz > W_P.shape[0] * W_P.shape[1]:
        W_P = W_P.toarray()  # from here on BLAS is faster than a sparse product

    def backward(dy: np.ndarray) -> tuple[np.ndarray, Gradients]:
        dW_P = dy.T @ x  # (M_out, M_in)
        db = {} if b is None else {"bias": adjoint_bias(spec, dy.sum(axis=0))}
        return (W_P.T @ dy.T).T, spec.named(adjoint(spec, dW_P)) | db

    return (W_P @ x.T).T + expand_bias(spec, b), backward


def layer_norm(
    x: np.ndarray, features: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> tuple[np.ndarray, Backward]:
    """`y = (x - mean) / sqrt(var + eps)` over each run of `features` numbers; then `weight y + bias`, if learned.

    With `d` the gradient at the normalised `z`:  `dx = (d - mean(d) - z mean(d z)) / sqrt(var + eps)`.
    """
    runs = x.reshape(*x.shape[:-1], -1, features)  # (..., N, R, features)
    centred = runs - runs.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
    z = centred / deviation
    scale, shift = (1.0, 0.0) if weight is None else (weight[..., None, None, :], bias[..., None, None, :])
    y = scale * z + shift  # of images, which all lanes share, the lanes' own scales make lanes

    def backward(dy: np.ndarray) -> tuple[np.ndarray, Gradients]:
        dy = dy.reshape(*dy.shape[:-1], -1, features)
        d = scale * dy
        dx = (d - d.mean(axis=-1, keepdims=True) - z * (d * z).mean(axis=-1, keepdims=True)) / deviation
        gradients = {} if weight is None else {"weight": (dy * z).sum(axis=(-3, -2)), "bias": dy.sum(axis=(-3, -2))}
        return dx.reshape(*dx.shape[:-2], -1), gradients

    return y.reshape(*y.shape[:-2], -1), backward


def gelu(x: np.ndarray) -> tuple[np.ndarray, Backward]:
    """`y = x Phi(x)`, with `Phi(x) = (1 + erf(x / sqrt 2)) / 2`; and `y' = Phi(x) + x phi(x)`.

    >>> gelu(np.array([0.0, 1.0]))[0].round(4)
    array([0.    , 0.8413])
    """
    from scipy.special import erf  # a tenth of a second that only those who train need

    Phi = (1 + erf(x / sqrt(2))) / 2

    def backward(dy: np.ndarray) -> tuple[np.ndarray, Gradients]:
        phi = np.exp(-(x**2) / 2) / sqrt(2 * pi)
        return dy * (Phi + x * phi), {}

    return x * Phi, backward


def relu(x: np.ndarray) -> tuple[np.ndarray, Backward]:
    """`y = max(x, 0)`, with slope 0 at 0.

    >>> relu(np.array([-2.0, 3.0]))[0]
    array([0., 3.])
    """
    return np.maximum(x, 0), lambda dy: (dy * (x > 0), {})


def mean(x: np.ndarray, positions: int, channels_first: bool = False) -> tuple[np.ndarray, Backward]:
    """The mean over positions: `(..., N, P C)` to `(..., N, C)`, or of `(..., N, C P)` with `channels_first`.

    >>> mean(np.array([[1.0, 2.0, 3.0, 4.0]]), positions=2)[0]
    array([[2., 3.]])
    """
    split, axis = ((-1, positions), -1) if channels_first else ((positions, -1), -2)
    parts = x.reshape(*x.shape[:-1], *split)  # (..., N, C, P) or (..., N, P, C)

    def backward(dy: np.ndarray) -> tuple[np.ndarray, Gradients]:
        return np.repeat(np.expand_dims(dy / positions, axis), positions, axis).reshape(x.shape), {}

    return parts.mean(axis=axis), backward


def cross_entropy(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`-log softmax(logits)[y]` of each image, `(..., N)`; and its gradient at the logits, `softmax - onehot(y)`.

    Given shares of the classes, `y (N, classes)`: `-sum_k y_k log softmax(logits)_k`, and `softmax - y`.

    >>> cross_entropy(np.array([[0.0, 0.0]]), np.array([1]))
    (array([0.69314718]), array([[ 0.5, -0.5]]))
    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    if y.ndim == 2:
        return -np.ascontiguousarray((y * log_softmax).sum(axis=-1)), np.exp(log_softmax) - y
    n = np.arange(len(y))
    gradient = np.exp(log_softmax)
    gradient[..., n, y] -= 1
    return -np.ascontiguousarray(log_softmax[..., n, y]), gradient  # in order: a sum rounds alike for any lanes
