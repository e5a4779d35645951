"""How accel is pinned to the reference: one check per verb, and all tolerances."""

from typing import Any

import numpy as np
import torch

from imlp import accel, reference
from imlp.spec import Chain, Spec
from imlp.spec.base import flat

# The only tolerances of this file. Float32 rounds each of up to a few thousand added terms by 6e-8 of its size.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
DTYPES = list(TOLERANCE)


def assert_same(fast: Any, slow: object) -> None:
    """Check that both are equal within the tolerance of accel's dtype, relative to the largest number."""
    if fast is None or slow is None:
        assert fast is None
        assert slow is None
        return
    if isinstance(slow, dict):
        assert list(fast) == list(slow)
        for name in slow:
            assert_same(fast[name], slow[name])
        return
    fast_array, slow_array = accel.to_numpy(fast), reference.to_numpy(slow)
    assert fast_array.shape == slow_array.shape
    scale = max(1.0, float(np.abs(slow_array).max(initial=0)))
    np.testing.assert_allclose(fast_array, slow_array, rtol=0, atol=TOLERANCE[fast.dtype] * scale)


class Numbers:
    """The arrays that a spec is tested with, the same for both backends (rounded to float32, exact in both types)."""

    def __init__(self, spec: Spec, dtype: torch.dtype = torch.float64, device: str = "cpu", seed: int = 0):
        rng = np.random.default_rng(seed)

        def draw(shape: tuple[int, ...] | None) -> np.ndarray | None:
            return None if shape is None else rng.standard_normal(shape).astype(np.float32).astype(np.float64)

        self.weight = spec.unnamed({name: draw(own.shape) for name, own in spec.parameters.items()})
        self.bias = draw(spec.bias_shape)
        self.x, self.y = draw((3, spec.matrix_shape[1])), draw((3, spec.matrix_shape[0]))
        self.dense, self.lanes = draw(spec.matrix_shape), draw((3, *spec.matrix_shape))
        self._to = {"dtype": dtype, "device": device}

    def torch(self, name: str) -> Any:
        return self.tensor(getattr(self, name))

    def tensor(self, array: Any) -> Any:
        """The same as a tensor; None and mappings too."""
        if isinstance(array, dict):
            return {name: self.tensor(own) for name, own in array.items()}
        return None if array is None else torch.tensor(array, **self._to)


def check_matrix(spec: Spec, numbers: Numbers) -> None:
    slow = reference.matrix(spec, numbers.weight)
    weight = numbers.torch("weight")
    assert_same(accel.matrix(spec, weight), slow)
    sparse = accel.matrix(spec, weight, layout="sparse")
    assert sparse.layout == torch.sparse_csr
    if not (isinstance(spec, Chain) and spec.fixed):
        assert sparse.values().numel() == spec.nnz
    assert_same(sparse, slow)


def check_expand_bias(spec: Spec, numbers: Numbers) -> None:
    assert_same(accel.expand_bias(spec, numbers.torch("bias")), reference.expand_bias(spec, numbers.bias))


def check_apply(spec: Spec, numbers: Numbers) -> None:
    fast = accel.apply(spec, *(numbers.torch(name) for name in ("weight", "bias", "x")))
    assert_same(fast, reference.apply(spec, numbers.weight, numbers.bias, numbers.x))


def check_interpolate(spec: Spec, numbers: Numbers) -> None:
    weight = numbers.torch("weight")
    for mode in ("interpolate", "add"):
        for alpha in (0, 0.3, 1):
            dense = numbers.torch("dense")
            fast = accel.interpolate(dense, spec, weight, alpha, add=mode == "add")
            assert fast is dense
            assert_same(fast, reference.interpolate(numbers.dense, spec, numbers.weight, alpha, add=mode == "add"))
        fast = accel.interpolate(numbers.torch("lanes"), spec, weight, [0, 0.3, 1], add=mode == "add")
        assert_same(fast, reference.interpolate(numbers.lanes, spec, numbers.weight, [0, 0.3, 1], add=mode == "add"))


def check_project(spec: Spec, numbers: Numbers) -> None:
    for name in ("dense", "lanes"):
        assert_same(accel.project(numbers.torch(name), spec), reference.project(getattr(numbers, name), spec))


def check_adjoint(spec: Spec, numbers: Numbers) -> None:
    for name in ("dense", "lanes"):
        assert_same(accel.adjoint(spec, numbers.torch(name)), reference.adjoint(spec, getattr(numbers, name)))
    for bias in (numbers.y[0], numbers.y):
        fast = accel.adjoint_bias(spec, numbers.tensor(bias))
        assert_same(fast, reference.adjoint_bias(spec, bias))


def check_measure(spec: Spec, numbers: Numbers) -> None:
    if spec.parameters and spec.linear:
        fast = accel.measure(numbers.torch("dense"), spec, numbers.torch("weight"))
        assert_same(fast, reference.measure(numbers.dense, spec, numbers.weight))
        assert accel.measure_random(spec) == reference.measure_random(spec)


CHECKS = [
    check_matrix, check_expand_bias, check_apply, check_interpolate, check_adjoint, check_project, check_measure
]  # fmt: skip


def literal_map(spec: Spec) -> np.ndarray:
    """`vec(matrix(w)) = A w`, by the definition: column `k` is the matrix of the `k`-th unit vector."""
    columns = []
    for k in range(spec.n_weights):
        unit, start, arrays = np.eye(1, spec.n_weights, k).ravel(), 0, {}
        for name, own in spec.parameters.items():
            arrays[name] = unit[start : start + np.prod(own.shape)].reshape(own.shape)
            start += np.prod(own.shape)
        columns.append(reference.matrix(spec, spec.unnamed(arrays), layout="dense").ravel())
    return np.stack(columns, axis=1)


def check_literally(spec: Spec) -> np.ndarray:
    """The reference's `matrix`, `adjoint` and `project` against that map and NumPy's least squares; returns the map."""
    A, numbers = literal_map(spec), Numbers(spec)
    D = numbers.dense.ravel()
    np.testing.assert_allclose(
        A @ flat(spec.named(numbers.weight)), reference.matrix(spec, numbers.weight, layout="dense").ravel(), atol=1e-12
    )
    np.testing.assert_allclose(flat(spec.named(reference.adjoint(spec, numbers.dense))), A.T @ D, atol=1e-12)
    nearest = np.linalg.lstsq(A, D, rcond=None)[0]
    np.testing.assert_allclose(flat(spec.named(reference.project(numbers.dense, spec))), nearest, atol=1e-8)
    return A
