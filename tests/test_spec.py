"""Specs check themselves, and count correctly."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from strategies import specs

from imlp import ImlpError, reference
from imlp.errors import SpecError
from imlp.spec import Chain, Conv, Patchify, Shared, Transpose


@given(spec=specs)
def test_the_matrix_has_the_shape_and_the_non_zeros_that_the_spec_says(spec):
    weight = None if spec.weight_shape is None else np.ones(spec.weight_shape)
    matrix = reference.matrix(spec, weight)
    assert matrix.shape == spec.matrix_shape
    assert matrix.nnz == spec.nnz == np.count_nonzero(matrix.toarray())


def test_the_numbers_of_the_papers_first_layer():
    spec = Conv((3, 32, 32), 1, kernel=3, padding=1)
    assert spec.matrix_shape == (1024, 3072)
    assert spec.n_parameters == 28
    assert spec.nnz == 3 * 94**2  # a kernel of 3 meets 31 + 32 + 31 of 32 positions on each axis


def test_ints_and_pairs_are_the_same_spec():
    assert Conv((3, 8, 8), 4, 3, 2, 1) == Conv([3, 8, 8], np.int64(4), (3, 3), (2, 2), (1, 1), (1, 1))


def test_a_spec_is_frozen_and_hashable():
    spec = Chain(Transpose(2, 3), Shared(3, 2, 2))
    with pytest.raises(FrozenInstanceError):
        spec.parts = ()
    assert len({spec, Chain(Transpose(2, 3), Shared(3, 2, 2))}) == 1


def test_a_chain_of_chains_is_flat():
    assert Chain(Chain(Transpose(2, 3)), Shared(3, 2, 2)).parts == (Transpose(2, 3), Shared(3, 2, 2))


def test_a_permutation_has_no_parameters():
    for spec in (Patchify(3, 4, 4, 2), Transpose(3, 4), Chain(Transpose(3, 4), Transpose(4, 3))):
        assert (spec.weight_shape, spec.bias_shape, spec.n_parameters) == (None, None, 0)
        assert spec.nnz == spec.matrix_shape[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Patchify(3, 32, 32, 5),
            r"patch 5 does not divide the height 32; use one of 1, 2, 4, 8, 16, 32",
        ),
        (lambda: Patchify(3, 32, 28, 8), r"does not divide the width 28; use one of 1, 2, 4, 7, 14, 28"),
        (
            lambda: Conv((3, 32, 32), 1, 40, padding=1),
            r"spans 40 pixels.*34; use .* 34, or a padding of at least 4",
        ),
        (lambda: Conv((3, 32, 32), 1, (3, 9), dilation=(1, 5)), r"spans 41 pixels, but the padded width"),
        (lambda: Conv((6, 8, 8), 4, groups=4), r"groups 4 does not divide the 6 input channels; use one of 1, 2"),
        (lambda: Conv((4, 8, 8), 6, groups=4), r"groups 4 does not divide the 6 output channels; use one of 1, 2"),
        (lambda: Conv((3, 8), 1), r"Conv\.in_shape is \(3, 8\); give 3 whole numbers"),
        (lambda: Conv((3, 8, 8), 0), r"Conv\.out_channels is 0; give at least 1"),
        (lambda: Conv((3, 8, 8), 1, kernel=2.5), r"Conv\.kernel is 2\.5; give a whole number"),
        (lambda: Conv((3, 8, 8), 1, padding=-1), r"Conv\.padding is -1; give at least 0"),
        (lambda: Conv((3, 8, 8), 1, stride=(1, 2, 3)), r"Conv\.stride .* give 2 whole numbers"),
        (lambda: Conv((3, 8, 8), True), r"Conv\.out_channels is True"),
        (lambda: Transpose(0, 3), r"Transpose\.rows is 0"),
        (lambda: Shared(3, 4, -1), r"Shared\.out_features is -1"),
        (lambda: Chain(), "no parts"),
        (lambda: Chain("conv"), "its parts are specs"),
        (lambda: Chain(Transpose(2, 3), Shared(3, 4, 4)), r"gives 6 numbers, but Shared.* takes 12"),
        (lambda: Chain(Shared(3, 4, 4), Shared(3, 4, 4)), "2 parts with parameters"),
    ],
)
def test_a_geometry_that_does_not_exist_is_refused_with_what_would_do(make, message):
    with pytest.raises(SpecError, match=message):
        make()
    assert issubclass(SpecError, ImlpError)


def test_a_kernel_may_be_called_as_in_pytorch():
    assert Conv((1, 6, 6), 1, kernel_size=(3, 5)) == Conv((1, 6, 6), 1, kernel=(3, 5))
    assert Conv((1, 6, 6), 1, kernel_size=5).kernel_size == (5, 5)
    with pytest.raises(SpecError, match="has kernel 5 and kernel_size 2; give one of them"):
        Conv((1, 6, 6), 1, kernel=5, kernel_size=2)
