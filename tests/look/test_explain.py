"""The derivation of an entry agrees with the reference's matrix."""

from dataclasses import dataclass
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outside_nouns import NOT_LINEAR, OUTSIDE, Additive, Blur, Circulant, LowRank, Signed, outside
from strategies import PAPER, SPECS, specs

from imlp import reference
from imlp.errors import SpecError
from imlp.look.explain import APPENDICES, axis_names, columns, entry, explain, in_shape, out_shape, place
from imlp.spec import Chain, Conv, Patchify, Shared, Transpose


def numbered(spec):
    """The matrix of the weight 1, 2, 3, ...: each entry says which number of the weight it is, 0 for none."""
    weight = None if spec.weight_shape is None else np.arange(1.0, prod(spec.weight_shape) + 1)
    return reference.matrix(spec, None if weight is None else weight.reshape(spec.weight_shape), layout="dense")


def number(spec, tap):
    """The same number according to the derivation."""
    if tap is None:
        return 0
    return 1 if spec.weight_shape is None else 1 + int(np.ravel_multi_index(tap, spec.weight_shape))


@given(specs, st.data())
def test_any_entry_of_any_layer(spec, data):
    m_out, m_in = spec.matrix_shape
    matrix = numbered(spec)
    for _ in range(10):
        i, j = data.draw(st.integers(0, m_out - 1)), data.draw(st.integers(0, m_in - 1))
        assert number(spec, explain(spec, i, j).tap) == matrix[i, j]


@given(specs, st.data())
def test_the_columns_of_a_row(spec, data):
    i = data.draw(st.integers(0, spec.matrix_shape[0] - 1))
    assert sorted(columns(spec, i)) == np.flatnonzero(numbered(spec)[i]).tolist()


@pytest.mark.parametrize("spec", [spec for spec in SPECS if prod(spec.matrix_shape) < 10_000], ids=str)
def test_every_entry_of_small_layers(spec):
    matrix = numbered(spec)
    derived = [[number(spec, explain(spec, i, j).tap) for j in range(matrix.shape[1])] for i in range(matrix.shape[0])]
    np.testing.assert_array_equal(derived, matrix)


@given(specs, st.data())
def test_the_numbers_of_a_step_amount_to_its_value(spec, data):
    """Each printed equation is true, for example `37 // 2^2 = 9`, and each name is defined before it is used."""
    i, j = (data.draw(st.integers(0, size - 1)) for size in spec.matrix_shape)
    found = explain(spec, i, j)
    assert found.steps
    for step in found.steps:
        assert eval(step.numbers.replace("^", "**")) == step.value
        assert step.part in APPENDICES


@given(specs, st.data())
def test_the_places_are_those_of_the_flat_indices(spec, data):
    i, j = (data.draw(st.integers(0, size - 1)) for size in spec.matrix_shape)
    found = explain(spec, i, j)
    assert found.output == np.unravel_index(i, out_shape(spec))
    assert found.input == np.unravel_index(j, in_shape(spec))


@pytest.mark.parametrize("spec", PAPER, ids=str)
def test_the_entry_shown_by_default_is_a_non_zero_of_the_middle_row(spec):
    i, j = entry(spec)
    assert i == spec.matrix_shape[0] // 2
    assert explain(spec, i, j).tap is not None


def test_a_row_of_zeros_is_shown_as_one():
    spec = Conv((1, 1, 1), 1, kernel=1, padding=2)
    assert entry(spec, 0) == (0, 0)
    assert explain(spec, 0, 0).tap is None


def lines(spec, i, j):
    return [f"{step.name} = {step.formula} = {step.numbers} = {step.value}" for step in explain(spec, i, j).steps]


def test_patchify_reads_as_in_the_paper():
    assert lines(Patchify(1, 4, 6, patch=2), 13, 0) == [
        "patch = i // P^2 = 13 // 2^2 = 3",
        "R = patch // w = 3 // 3 = 1",
        "C = patch % w = 3 % 3 = 0",
        "q = i % P^2 = 13 % 2^2 = 1",
        "r = q // P = 1 // 2 = 0",
        "s = q % P = 1 % 2 = 1",
        "i' = (R * P + r) * W + (C * P + s) = (1 * 2 + 0) * 6 + (0 * 2 + 1) = 13",
    ]


def test_products_are_followed_from_both_sides():
    out, into = Chain(Shared(2, 2, 3), Transpose(2, 3)), Chain(Transpose(3, 2), Shared(2, 3, 1))
    assert lines(out, 1, 3)[0] == "i' = W * i % (H * W - 1) = 3 * 1 % (2 * 3 - 1) = 3"
    assert lines(into, 1, 3)[0] == "j' = H * j % (H * W - 1) = 3 * 3 % (3 * 2 - 1) = 4"


@pytest.mark.parametrize(
    ("spec", "i", "j", "reason"),
    [
        (Conv((1, 4, 4), 1), 0, 15, "0, for a = 3 is not a row of the kernel, 0 to 2"),
        (Conv((1, 4, 4), 1), 0, 3, "0, for b = 3 is not a column of the kernel, 0 to 2"),
        (Conv((1, 5, 5), 1, dilation=2), 0, 5, "t_y = 1 is not a multiple of the dilation 2"),
        (Conv((2, 1, 1), 2, kernel=1, groups=2), 0, 1, "input channel c = 1 is not in group g = 0"),
        (Shared(2, 1, 1), 0, 1, "block r = 0 reads its own inputs only"),
        (Transpose(2, 2), 1, 1, "0, for i' = 2 is not j = 1"),
    ],
)
def test_a_zero_says_why(spec, i, j, reason):
    found = explain(spec, i, j)
    assert found.tap is None
    assert reason in found.conclusion


@pytest.mark.parametrize(("i", "j", "message"), [(4, 0, "row from 0 to 3"), (0, -1, "column from 0 to 3")])
def test_an_entry_that_is_not_there(i, j, message):
    with pytest.raises(SpecError, match=message):
        explain(Transpose(2, 2), i, j)


def added_up(found, weight):
    """The entry according to its terms."""
    return sum(term.constant * weight[term.parameter][term.place] for term in found.terms)


@given(outside(), st.data())
def test_any_entry_of_a_noun_from_outside(spec, data):
    """Which numbers of which parameters, with which constants: they add up to the entry of the matrix."""
    rng = np.random.default_rng(0)
    weight = {name: rng.standard_normal(own.shape) for name, own in spec.parameters.items()}
    matrix = reference.matrix(spec, spec.unnamed(weight), layout="dense")
    i, j = (data.draw(st.integers(0, size - 1)) for size in spec.matrix_shape)
    found = explain(spec, i, j)
    if not spec.parameters:
        assert found.conclusion.startswith(f"{matrix[i, j]:.6g}, which")
    else:
        assert added_up(found, weight) == pytest.approx(matrix[i, j], abs=1e-12)
    assert (found.tap is None) == (matrix[i, j] == 0)
    assert sorted(columns(spec, i)) == np.flatnonzero(matrix[i]).tolist()
    assert prod(in_shape(spec)) == spec.matrix_shape[1]
    assert prod(out_shape(spec)) == spec.matrix_shape[0]


def test_what_is_said_of_a_noun_from_outside():
    """It once said "1, for i = j" of any noun that it did not know."""
    assert explain(Circulant(5, 2), 4, 0).conclusion == "weight[1]"
    assert explain(Circulant(5, 2), 0, 3).conclusion == "0, for no number of weight gets there"
    assert explain(Additive(2, 3), 1, 2).conclusion == "rows[1] + columns[0, 2]"
    assert explain(Signed(3, 3), 1, 0).tap is None
    assert explain(Signed(3, 3), 2, 0).conclusion == "0.333333 * scale[2, 0]"
    assert explain(Blur(3), 1, 0).conclusion == "0.333333, which Blur always has there"
    assert explain(LowRank(2, 2, 1), 0, 1).conclusion == "a number that depends on left, right, but not linearly"
    moved = explain(Chain(Transpose(2, 3), Circulant(6, 2)), 1, 1)
    assert [step.part for step in moved.steps] == ["T"]
    assert moved.conclusion == "weight[1]"
    assert place(Circulant(5, 2)) == place(Chain(Circulant(6, 2), Transpose(2, 3))) == "not in the paper"


def test_the_shapes_that_a_noun_says_itself():
    @dataclass(frozen=True)
    class Ring(Circulant):
        in_shape: tuple = (2, 3)

    assert in_shape(Ring(6, 2)) == (2, 3)
    assert out_shape(Ring(6, 2)) == (6,)
    assert explain(Ring(6, 2), 0, 4).input == (1, 1)
    with pytest.raises(SpecError, match="whose product is 6"):
        in_shape(Ring(6, 2, in_shape=(4, 2)))
    assert axis_names((2, 2, 2, 2)) == ("axis 1", "axis 2", "axis 3", "axis 4")


@pytest.mark.parametrize("spec", [*OUTSIDE, *NOT_LINEAR], ids=str)
def test_every_noun_can_be_drawn(spec, tmp_path):
    from imlp.look import plot

    rng = np.random.default_rng(0)
    weight = spec.unnamed({name: rng.standard_normal(own.shape) for name, own in spec.parameters.items()})
    plot.save(plot.matrix_figure(reference.matrix(spec, weight), spec, "outside"), tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").stat().st_size > 5000
