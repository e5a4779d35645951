"""Pins accel to the reference on given layers: the largest difference of each verb, gradients included.

This is what `python cli.py verify` prints, and what a training run asks of its own network before it starts.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from imlp import init, reference
from imlp.backend import backend
from imlp.spec import Spec

# Largest difference that rounding explains, relative to the largest number of the result. Sums of up to a few thousand
# terms in a type with unit round-off u differ by some tens of u; the rest is margin.
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 0.05, "float16": 0.01}

VERBS = ("matrix", "bias", "apply", "gradients", "interpolate", "add", "project")


def layer_errors(spec: Spec, *, dtype: str = "float32", device: str = "cpu", seed: int = 0) -> dict[str, float]:
    """For each verb the largest difference between accel and reference, relative to the largest number.

    >>> from imlp.spec import Shared
    >>> max(layer_errors(Shared(2, 3, 4)).values()) < TOLERANCE["float32"]
    True
    """
    accel: Any = backend("accel")
    import torch

    rng = np.random.default_rng(seed)
    weight = init.prior_weight(spec, rng=rng)
    bias = None if spec.bias_shape is None else rng.standard_normal(spec.bias_shape)
    dense = init.dense_weight(spec, rng=rng)
    x, dy = (rng.standard_normal((2, size)) for size in reversed(spec.matrix_shape))

    def on_device(array: np.ndarray | None) -> Any:
        return None if array is None else torch.tensor(array, dtype=getattr(torch, dtype), device=device)

    def rounded(array: np.ndarray | None) -> Any:
        """What the device really holds, so that only the computing is compared."""
        return None if array is None else accel.to_numpy(on_device(array)).astype(np.float64)

    w, b, W, xs, dys = map(rounded, (weight, bias, dense, x, dy))
    checks: dict[str, Callable[[], list[tuple[Any, Any]]]] = {
        "matrix": lambda: [(accel.matrix(spec, on_device(weight)), reference.matrix(spec, w))],
        "bias": lambda: [(accel.expand_bias(spec, on_device(bias)), reference.expand_bias(spec, b))],
        "apply": lambda: [
            (accel.apply(spec, *map(on_device, (weight, bias, x))), reference.apply(spec, w, b, xs)),
        ],
        "gradients": lambda: list(
            zip(_gradients(accel, spec, w, b, xs, dys, on_device), _adjoints(spec, w, xs, dys), strict=True)
        ),
        "interpolate": lambda: [
            (accel.interpolate(on_device(dense), spec, on_device(weight), 0.3), reference.interpolate(W, spec, w, 0.3))
        ],
        "add": lambda: [
            (
                accel.interpolate(on_device(dense), spec, on_device(weight), 1, mode="add"),
                reference.interpolate(W, spec, w, 1, mode="add"),
            )
        ],
        "project": lambda: (
            [] if weight is None else [(accel.project(on_device(dense), spec), reference.project(W, spec))]
        ),
    }
    return {
        verb: max((_difference(accel.to_numpy(fast), reference.to_numpy(slow)) for fast, slow in check()), default=0.0)
        for verb, check in checks.items()
    }


def _difference(fast: np.ndarray, slow: np.ndarray) -> float:
    """Relative to the largest number; infinite where the shapes or the finite numbers are not the same."""
    if fast.shape != slow.shape or not np.isfinite(fast).all():
        return float("inf")
    return float(np.abs(fast - slow).max(initial=0) / max(np.abs(slow).max(initial=0), 1e-30))


def _gradients(accel: Any, spec: Spec, *numbers: Any) -> list[Any]:
    """Autograd's gradients of `apply`: for weight and bias (where there are any) and input."""
    import torch

    *arrays, dy, on_device = numbers
    leaves = [on_device(array) for array in arrays]
    wanted = [leaf.requires_grad_() for leaf in leaves if leaf is not None]
    return list(torch.autograd.grad(accel.apply(spec, *leaves), wanted, on_device(dy)))


def _adjoints(spec: Spec, weight: Any, x: np.ndarray, dy: np.ndarray) -> list[np.ndarray]:
    """The same from the matrix: `dw` sums `dy^T x` over the entries that each number fills, `dx = dy W_P`."""
    dx = dy @ reference.matrix(spec, weight)
    if spec.weight_shape is None or spec.bias_shape is None:
        return [dx]
    n, outputs = int(np.prod(spec.weight_shape)), spec.bias_shape[0]
    entries = reference.matrix(spec, np.arange(1, n + 1).reshape(spec.weight_shape)).tocoo()
    terms = np.einsum("nk,nk->k", dy[:, entries.row], x[:, entries.col])
    dw = np.bincount(entries.data.astype(int) - 1, weights=terms, minlength=n).reshape(spec.weight_shape)
    channel = reference.expand_bias(spec, np.arange(outputs)).astype(int)
    db = np.bincount(channel, weights=dy.sum(0), minlength=outputs)
    return [dw, db, dx]
