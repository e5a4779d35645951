"""The bias meter: its known values, and accel against the reference."""

import numpy as np
import pytest
from conftest import needs
from hypothesis import given
from outside_nouns import OUTSIDE, Additive, Circulant, outside
from strategies import SPECS, locals_, specs

from imlp import networks, reference
from imlp.errors import ArrayError
from imlp.spec import Chain, Conv, Local, Shared, Transpose
from imlp.spec.base import PARTS

needs("accel")

import torch  # noqa: E402
from verb_checks import DTYPES, Numbers, assert_same  # noqa: E402

from imlp import accel  # noqa: E402
from imlp.accel import meter  # noqa: E402
from imlp.nn.convnd import ConvNd  # noqa: E402

FITTED = [spec for spec in [*SPECS, *OUTSIDE] if spec.parameters]
EXACT = 1e-12
BACKENDS = {"reference": reference, "accel": accel}


def both(dense, spec, weight=None):
    return [backend.measure(backend.place(dense), spec, weight) for backend in (reference, accel)]


@given(spec=specs.filter(lambda spec: spec.parameters))
def test_the_meter_equals_the_reference(spec):
    numbers = Numbers(spec)
    for name in ("dense", "lanes"):
        slow = reference.measure(getattr(numbers, name), spec, numbers.weight)
        assert list(slow) == [*PARTS, "distance"]
        assert_same(accel.measure(numbers.torch(name), spec, numbers.torch("weight")), slow)
    assert accel.measure_random(spec) == reference.measure_random(spec)


@given(spec=outside().filter(lambda spec: spec.parameters))
def test_the_meter_of_a_noun_of_someone_elses_equals_the_reference(spec):
    numbers = Numbers(spec)
    assert_same(
        accel.measure(numbers.torch("dense"), spec, numbers.torch("weight")),
        reference.measure(numbers.dense, spec, numbers.weight),
    )
    assert accel.measure_random(spec) == reference.measure_random(spec)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", FITTED, ids=str)
def test_blocks_and_types(spec, dtype, monkeypatch):
    """Block by block as in one go; float32 as float64, in the type of the matrix."""
    monkeypatch.setattr(meter, "BLOCK", 7)
    numbers = Numbers(spec, dtype)
    found = accel.measure(numbers.torch("dense"), spec, numbers.torch("weight"))
    assert {number.dtype for number in found.values()} == {dtype}
    assert_same(found, reference.measure(numbers.dense, spec, numbers.weight))


@pytest.mark.parametrize("spec", FITTED, ids=str)
def test_the_parts_are_orthogonal(spec):
    """Pythagoras: the squares of the three matrices add up to `|W|^2`, and the meter says the same."""
    W = Numbers(spec).dense
    rng = np.random.default_rng(7)
    generic = spec.unnamed({name: 1 + rng.random(own.shape) for name, own in spec.parameters.items()})
    M = reference.matrix(spec, generic, layout="dense") != 0
    Pi = reference.matrix(spec, reference.project(W, spec), layout="dense")
    assert not (Pi * ~M).any()
    squares = [np.square(part).sum() for part in (Pi, M * W - Pi, W - M * W)]
    whole = np.square(W).sum()
    assert sum(squares) == pytest.approx(whole, rel=EXACT)
    for found in both(W, spec):
        assert [float(found[part]) for part in PARTS] == pytest.approx([s / whole for s in squares], abs=EXACT)
        assert sum(float(found[part]) for part in PARTS) == pytest.approx(1, abs=EXACT)
        assert list(found) == list(PARTS)  # without a weight there is nothing to be distant from


@pytest.mark.parametrize("spec", [spec for spec in FITTED if spec.rank], ids=str)
def test_a_prior_layer_is_all_shared(spec):
    numbers = Numbers(spec)
    for found in both(reference.matrix(spec, numbers.weight, layout="dense"), spec):
        assert float(found["shared"]) == pytest.approx(1, abs=EXACT)
        assert float(found["local"]) < 1e-20
        assert 0 <= float(found["outside"]) < 1e-14  # a difference of two sums in accel, and never below zero


TAPS_UNUSED = [
    Conv((2, 1, 1), 3, kernel=3, padding=1),  # as in the last layers of a residual network: the middle tap alone
    Conv((2, 2, 3), 4, kernel=(5, 3), stride=2, padding=(2, 1), groups=2),
    Conv((1, 1, 1), 1, kernel=1, padding=1, stride=3),  # no entry at all
    Local((1, 3, 3), 2, kernel=3, padding=1),
    ConvNd((2, 1, 1), (2, 1, 1), kernel=(4, 2), stride=(1, 1), before=(1, 0), dilation=(1, 1)),
    Additive(3, 4),  # of rows and columns only the sums
]


@pytest.mark.parametrize("spec", TAPS_UNUSED, ids=str)
def test_numbers_that_no_matrix_shows_are_not_counted(spec):
    """The prior itself is at distance 0 from the prior, and twice it at distance 1."""
    numbers = Numbers(spec)
    assert reference.measure_random(spec)["shared"] < spec.n_weights / np.prod(spec.matrix_shape)
    W_P = reference.matrix(spec, numbers.weight, layout="dense") + np.full(spec.matrix_shape, 1e-30)
    for factor in (1, 2):
        expected = 0 if reference.measure_random(spec)["shared"] == 0 else factor - 1
        assert float(reference.measure(factor * W_P, spec, numbers.weight)["distance"]) == pytest.approx(expected)
        found = accel.measure(accel.place(factor * W_P), spec, numbers.torch("weight"))
        assert float(found["distance"]) == pytest.approx(expected)
        assert_same(found, reference.measure(factor * W_P, spec, numbers.weight))


def test_what_each_part_sees():
    """A number in the middle of a kernel, one kernel that differs from place to place, and an entry out of reach."""
    conv = Conv((1, 4, 4), 1, kernel=3, padding=1)
    shared, free = np.zeros((2, 16, 16))
    np.fill_diagonal(shared, 2.0)  # the middle tap: |W|^2 = 64
    np.fill_diagonal(free, [1, -1] * 8)  # of mean zero
    out = np.zeros((16, 16))
    out[0, 15] = 4.0  # the first output does not see the last pixel
    for found in both(shared + free + out, conv):
        assert [float(found[part]) for part in PARTS] == pytest.approx([64 / 96, 16 / 96, 16 / 96], abs=EXACT)


@given(spec=locals_())
def test_what_is_not_shared_has_no_local_rest(spec):
    """`Local` has a number of its own for each entry: `Pi W = M * W`."""
    for found in both(Numbers(spec).dense, spec):
        assert float(found["local"]) == 0
    parts = reference.measure_random(spec)
    assert parts["local"] == 0
    assert parts["shared"] == spec.nnz / np.prod(spec.matrix_shape)


@pytest.mark.parametrize("spec", FITTED, ids=str)
def test_a_random_matrix_holds_as_much_as_rank_and_support_say(spec):
    """Over many matrices of independent normal numbers: `shared` is rank / N and, with `local`, nnz / N.

    A part of dimension `d` of `N` is Beta-distributed, with the variance `2 d (N - d) / (N^2 (N + 2))`.
    """
    n, many = int(np.prod(spec.matrix_shape)), 60
    dense = np.random.default_rng(0).standard_normal((many, *spec.matrix_shape))
    found, expected = reference.measure(dense, spec), reference.measure_random(spec)
    rank, nnz = round(expected["shared"] * n), round((expected["shared"] + expected["local"]) * n)
    assert (expected["shared"], expected["outside"]) == (rank / n, (n - nnz) / n)
    assert sum(expected.values()) == pytest.approx(1, abs=EXACT)
    for d, shares in ((rank, found["shared"]), (nnz, found["shared"] + found["local"])):
        deviation = (2 * d * (n - d) / (n**2 * (n + 2)) / many) ** 0.5
        assert shares.mean() == pytest.approx(d / n, abs=5 * deviation + EXACT)


@given(spec=specs)
def test_the_rank_is_that_of_the_matrices_of_unit_weights(spec):
    if spec.weight_shape is None or np.prod(spec.weight_shape) * np.prod(spec.matrix_shape) > 2e5:
        return
    units = np.eye(int(np.prod(spec.weight_shape))).reshape(-1, *spec.weight_shape)
    basis = np.stack([reference.matrix(spec, unit).toarray().ravel() for unit in units])
    assert np.linalg.matrix_rank(basis) == spec.rank
    assert int(basis.any(0).sum()) == spec.nnz


def test_the_support_of_a_chain_is_that_of_its_product():
    """Blurred, a number fills more entries than before, and several numbers may fill the same one."""
    spec = next(spec for spec in OUTSIDE if isinstance(spec, Chain) and isinstance(spec.core, Shared))
    M = reference.matrix(spec, np.ones((2, 3)), layout="dense") != 0
    for backend in BACKENDS.values():
        parts = backend.measure_random(spec)
        assert round(24 * parts["shared"]) == 6
        assert round(24 * (1 - parts["outside"])) == M.sum() < 24


def test_the_cnn_pair_of_the_paper():
    """Why a mean over layers says little: 0.8 % of conv1's entries can differ from zero, and all of conv6's."""
    network = networks.make("cnn")
    found = {name: accel.measure_random(network.layer(name).spec) for name in network.interpolated}
    support = {name: 100 * (1 - parts["outside"]) for name, parts in found.items()}
    expected = {"conv1": 0.843, "conv2": 0.843, "conv3": 3.229, "conv4": 11.816, "conv5": 39.0625, "conv6": 100}
    assert support == pytest.approx(expected, abs=5e-4)
    assert np.mean([parts["shared"] for parts in found.values()]) == pytest.approx(0.119, abs=5e-4)


def test_sums_over_millions_of_entries_in_float32():
    """A large first layer, mostly tiny numbers: float32 throughout would be wrong in the fourth digit."""
    spec = networks.make("cnn").layer("conv1").spec
    numbers = Numbers(spec, torch.float32)
    dense = accel.interpolate(numbers.torch("dense") / 50, spec, numbers.torch("weight"), 0.9)
    found, exact = accel.measure(dense, spec), accel.measure(dense.double(), spec)
    for part in PARTS:
        assert float(found[part]) == pytest.approx(float(exact[part]), rel=1e-6)
    assert sum(float(found[part]) for part in PARTS) == pytest.approx(1, abs=3e-7)


@pytest.mark.bits
def test_the_distance_has_the_bits_of_runs_on_record():
    """The prior keeps its kernels in another order in memory, and sums round by that order."""
    spec, generator = Conv((3, 32, 32), 8, stride=2, padding=1), torch.Generator().manual_seed(0)
    for _ in range(20):
        dense = torch.randn(spec.matrix_shape, generator=generator) / 50
        own = torch.randn(3, 3, 8, 3, generator=generator).permute(2, 3, 0, 1)
        expected = torch.linalg.vector_norm(accel.project(dense, spec) - own, dim=(-4, -3, -2, -1))
        assert accel.measure(dense, spec, own)["distance"] == expected / torch.linalg.vector_norm(own)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_cannot_be_measured(backend):
    backend = BACKENDS[backend]
    for call in (lambda: backend.measure(backend.place(np.eye(4)), Transpose(2, 2)),
                 lambda: backend.measure_random(Transpose(2, 2))):  # fmt: skip
        with pytest.raises(ArrayError, match="has no weight to compare with; measure a layer that has one"):
            call()


@pytest.mark.parametrize("spec", [Circulant(6, 3), Local((1, 2, 3), 6, kernel=(2, 3)), Shared(2, 3, 3)], ids=str)
def test_a_matrix_with_torchs_negative_bit(spec):
    real = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    dense = torch._neg_view(real)
    assert dense.is_neg()
    assert_same(accel.measure(dense, spec), reference.measure(-real.numpy(), spec))
