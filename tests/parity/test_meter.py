"""The bias meter: its known values, and accel against the reference."""

import numpy as np
import pytest
from conftest import needs
from hypothesis import given
from strategies import SPECS, specs

from imlp import reference

needs("accel")

from pins import Numbers, assert_same  # noqa: E402

from imlp import accel  # noqa: E402

WITH_WEIGHTS = [spec for spec in SPECS if spec.rank]


@given(spec=specs.filter(lambda spec: spec.rank > 0))
def test_the_meter_equals_the_reference(spec):
    numbers = Numbers(spec)
    weight = numbers.torch("weight")
    for name in ("dense", "lanes"):
        slow = reference.measure(getattr(numbers, name), spec, numbers.weight)
        for fast, expected in zip(accel.measure(numbers.torch(name), spec, weight), slow, strict=True):
            assert_same(fast, expected)


@pytest.mark.parametrize("spec", WITH_WEIGHTS, ids=str)
def test_a_prior_layer_is_all_bias(spec):
    numbers = Numbers(spec)
    matrix = reference.matrix(spec, numbers.weight).toarray()
    share, _ = reference.measure(matrix, spec, numbers.weight)
    assert share == pytest.approx(1)


@pytest.mark.parametrize("spec", WITH_WEIGHTS, ids=str)
def test_a_random_matrix_holds_as_much_as_the_rank_says(spec):
    """The mean over many matrices of independent normal numbers is rank / (M_out M_in)."""
    m_out, m_in = spec.matrix_shape
    dense = np.random.default_rng(0).standard_normal((200, m_out, m_in))
    shares, _ = reference.measure(dense, spec, np.ones(spec.weight_shape))
    expected = spec.rank / (m_out * m_in)
    assert shares.mean() == pytest.approx(expected, abs=5 * shares.std() / 200**0.5 + 1e-12)


@given(spec=specs)
def test_the_rank_is_that_of_the_matrices_of_unit_weights(spec):
    if spec.weight_shape is None or np.prod(spec.weight_shape) * np.prod(spec.matrix_shape) > 2e5:
        return
    units = np.eye(int(np.prod(spec.weight_shape))).reshape(-1, *spec.weight_shape)
    basis = np.stack([reference.matrix(spec, unit).toarray().ravel() for unit in units])
    assert np.linalg.matrix_rank(basis) == spec.rank
