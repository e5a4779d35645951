"""A noun that neither backend has heard of takes the default in every verb, and never a silent wrong answer."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from conftest import needs
from hypothesis import given
from outside_nouns import NOT_LINEAR, OUTSIDE, Additive, Blur, Circulant, LowRank, Signed, outside
from scipy import sparse

from imlp import init, networks, reference
from imlp.errors import ArrayError, SpecError
from imlp.optimizers import Adam
from imlp.spec import Chain, Conv, Parameter, Shared, Spec, Transpose
from imlp.spec.base import PARTS

needs("accel")

import torch  # noqa: E402
from verb_checks import (  # noqa: E402
    CHECKS,
    DTYPES,
    Numbers,
    assert_same,
    check_apply,
    check_expand_bias,
    check_interpolate,
    check_literally,
    check_matrix,
)

from imlp import accel  # noqa: E402
from imlp.accel import entries, kernels, rows  # noqa: E402
from imlp.accel.chain import has_diagonals  # noqa: E402
from imlp.look import verify  # noqa: E402

FITTED = [spec for spec in OUTSIDE if spec.parameters]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", OUTSIDE, ids=str)
@pytest.mark.parametrize("check", CHECKS)
def test_a_verb_equals_the_reference(check, spec, dtype):
    check(spec, Numbers(spec, dtype))


@pytest.mark.parametrize("check", CHECKS)
@given(spec=outside())
def test_a_verb_equals_the_reference_on_any_noun(check, spec):
    check(spec, Numbers(spec))


@pytest.mark.parametrize("spec", NOT_LINEAR, ids=str)
@pytest.mark.parametrize("check", [check_matrix, check_expand_bias, check_apply, check_interpolate])
def test_a_matrix_that_is_not_linear_can_be_built_and_mixed(check, spec):
    check(spec, Numbers(spec))


@given(spec=outside().filter(lambda spec: spec.parameters))
def test_what_follows_from_the_matrix_is_linear_algebra(spec):
    """`adjoint` is the transposed map, `project` NumPy's least squares (the smallest), `rank` that of the map."""
    A = check_literally(spec)
    if not (isinstance(spec, Chain) and spec.fixed):
        assert spec.rank == np.linalg.matrix_rank(A)


@given(spec=outside().filter(lambda spec: spec.parameters and spec.bias_shape))
def test_a_bias_goes_where_the_noun_says(spec):
    numbers = Numbers(spec)
    zero = np.zeros((1, spec.matrix_shape[1]))
    expanded = reference.expand_bias(spec, numbers.bias)
    np.testing.assert_allclose(reference.apply(spec, numbers.weight, numbers.bias, zero)[0], expanded, atol=1e-12)
    db = reference.adjoint_bias(spec, numbers.y[0])
    np.testing.assert_allclose(numbers.bias @ db, expanded @ numbers.y[0], atol=1e-10)


def test_the_bias_of_each_output_is_that_of_bias_index():
    assert reference.expand_bias(Additive(3, 1), [5.0, 7.0]).tolist() == [5, 5, 7]
    assert accel.expand_bias(Additive(3, 1), torch.tensor([5.0, 7.0])).tolist() == [5, 5, 7]


@given(spec=outside().filter(lambda spec: spec.parameters))
def test_adjoint_is_autograds_gradient_through_matrix_and_apply(spec):
    numbers = Numbers(spec)
    arrays = {name: own.requires_grad_() for name, own in spec.named(numbers.torch("weight")).items()}
    weight, dW = spec.unnamed(arrays), numbers.torch("dense")
    expected = spec.named(accel.adjoint(spec, dW)).values()
    for own, found in zip(expected, torch.autograd.grad(accel.matrix(spec, weight), arrays.values(), dW), strict=True):
        torch.testing.assert_close(own, found, rtol=0, atol=1e-12)
    x, dy = numbers.torch("x"), numbers.torch("y")
    expected = spec.named(accel.adjoint(spec, dy.T @ x)).values()
    found = torch.autograd.grad((accel.apply(spec, weight, None, x) * dy).sum(), arrays.values())
    for own, each in zip(expected, found, strict=True):
        torch.testing.assert_close(own, each, rtol=0, atol=1e-11)


def test_the_default_of_apply_is_a_sparse_product_where_that_pays():
    """Both ways are the same product; which is taken shows in what is multiplied."""
    seen = []
    right = torch.sparse.mm
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.sparse, "mm", lambda *given: seen.append(1) or right(*given))
        for size, expected in ((30, 1), (6, 0)):
            spec = Circulant(size, 2)
            seen.clear()
            check_apply(spec, Numbers(spec))
            assert len(seen) == expected


@pytest.mark.parametrize("spec", FITTED, ids=str)
def test_the_bias_meter(spec):
    numbers = Numbers(spec)
    for name in ("dense", "lanes"):
        fast = accel.measure(numbers.torch(name), spec, numbers.torch("weight"))
        slow = reference.measure(getattr(numbers, name), spec, numbers.weight)
        assert_same(fast, slow)
        assert sum(slow[part] for part in PARTS) == pytest.approx(1, abs=1e-12)
    inside = reference.matrix(spec, numbers.weight, layout="dense")
    assert reference.measure(inside, spec)["shared"] == pytest.approx(1)
    assert accel.measure_random(spec) == reference.measure_random(spec)


@pytest.mark.parametrize("spec", OUTSIDE + NOT_LINEAR, ids=str)
def test_verify_takes_any_noun(spec):
    """A weight without a bias, several parameters, none at all, a matrix that is not linear: as `verify` checks it."""
    errors = verify.layer_errors(spec)
    assert set(errors) == set(verify.VERBS)
    assert max(errors.values()) < verify.TOLERANCE["float32"]


@pytest.mark.parametrize("spec", NOT_LINEAR, ids=str)
@pytest.mark.parametrize("call", ["adjoint", "project", "measure"])
def test_what_needs_a_linear_map_is_refused_with_the_reason(call, spec):
    numbers = Numbers(spec)
    calls = {
        "adjoint": lambda backend, W, w: backend.adjoint(spec, W),
        "project": lambda backend, W, w: backend.project(W, spec),
        "measure": lambda backend, W, w: backend.measure(W, spec, w),
    }
    for backend, arrays in (
        (reference, (numbers.dense, numbers.weight)),
        (accel, map(numbers.torch, ("dense", "weight"))),
    ):
        with pytest.raises(SpecError, match="not linear in its parameters"):
            calls[call](backend, *arrays)


def test_a_gradient_of_what_is_not_linear_is_refused_and_not_zero():
    numbers = Numbers(NOT_LINEAR[0])
    weight = {name: own.requires_grad_() for name, own in numbers.torch("weight").items()}
    with pytest.raises(SpecError, match="its gradient is not known"):
        accel.apply(NOT_LINEAR[0], weight, None, numbers.torch("x"))


@dataclass(frozen=True)
class Wrong(Spec):
    """A noun that says too little, or the wrong thing."""

    what: str
    matrix_shape = (2, 3)

    @property
    def parameters(self):
        shape = [2] if self.what == "list" else (2,)
        return {"bias" if self.what == "bias" else "weight": Parameter(shape, 0 if self.what == "fan-in" else 1)}

    def matrix(self, weight):
        match self.what:
            case "square":
                return np.outer(weight**2, np.ones(3))
            case "shifted":
                return np.outer(weight, np.ones(3)) + 1
            case "transposed":
                return np.outer(np.ones(3), weight)
            case "broken":
                return weight[5]
            case "words":
                return "words"
        return np.outer(weight, np.ones(3))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("square", "says that its matrix is linear .* but it is not; write linear = False"),
        ("shifted", "says that its matrix is linear .* but it is not"),
        ("transposed", r"returned the shape \(3, 2\); its matrix_shape is \(2, 3\)"),
        ("broken", r"Wrong\.matrix\(weight=\.\.\.\) failed: IndexError"),
        ("words", "return an array of real numbers"),
        ("list", r"give \(2,\)"),
        ("fan-in", "give at least 1"),
        ("bias", "and not bias"),
    ],
)
def test_a_noun_that_is_wrong_is_refused_by_name(what, message):
    for call in (
        lambda: reference.project(np.ones((2, 3)), Wrong(what)),
        lambda: accel.project(torch.ones(2, 3), Wrong(what)),
    ):
        with pytest.raises(SpecError, match=message):
            call()


def test_a_noun_without_a_matrix_or_a_shape_is_refused():
    @dataclass(frozen=True)
    class Nothing(Spec):
        size: int = 2

    with pytest.raises(SpecError, match="has no matrix_shape"):
        reference.matrix(Nothing())

    @dataclass(frozen=True)
    class Attention(Spec):
        matrix_shape = (2, 2)

    with pytest.raises(SpecError, match="a layer that depends on its data has none"):
        accel.matrix(Attention())


def test_a_noun_that_is_not_a_dataclass_is_refused():
    """All of its instances would be equal, so the second would silently get what was cached for the first."""

    class Plain(Spec):
        def __init__(self, size):
            object.__setattr__(self, "size", size)

        matrix_shape = property(lambda self: (self.size, self.size))

        def matrix(self):
            return np.eye(self.size)

    with pytest.raises(SpecError, match=r"write @dataclass\(frozen=True\)"):
        reference.matrix(Plain(2))

    @dataclass(frozen=True)
    class Unhashable(Spec):
        sizes: list
        matrix_shape = (2, 2)

        def matrix(self):
            return np.eye(2)

    with pytest.raises(SpecError, match="use tuples instead of lists"):
        accel.matrix(Unhashable([2, 2]))


def test_a_class_derived_from_a_known_noun_does_not_take_its_fast_paths():
    @dataclass(frozen=True)
    class Flipped(Conv):
        """A true convolution: the kernel is turned around."""

        def matrix(self, weight):
            return reference.matrix(Conv((1, 4, 4), 1, 3), weight[:, :, ::-1, ::-1])

    spec = Flipped((1, 4, 4), 1, 3)
    numbers = Numbers(spec)
    expected = reference.matrix(Conv((1, 4, 4), 1, 3), numbers.weight[:, :, ::-1, ::-1])
    assert_same(accel.matrix(spec, numbers.torch("weight")), expected)
    for check in CHECKS:
        check(spec, numbers)
    large = Flipped((1, 32, 32), 1, 3)
    dense = torch.empty(large.matrix_shape)
    assert rows.usable(dense, Conv((1, 32, 32), 1, 3)) == rows.status()[0]
    assert not rows.usable(dense, large)
    assert not has_diagonals(large)


@pytest.mark.parametrize("spec", OUTSIDE + NOT_LINEAR, ids=str)
def test_cuda_and_c_are_not_asked_for_what_they_do_not_know(spec, monkeypatch):
    """Where a kernel can be had, `interpolate` falls back, where it once raised."""

    def launched(*given):
        raise RuntimeError("a kernel was launched")

    for path in (kernels, rows):
        monkeypatch.setattr(path, "usable", lambda *given: True)
        monkeypatch.setattr(path, "interpolate", launched)
    check_interpolate(spec, Numbers(spec))
    with pytest.raises(RuntimeError, match="was launched"):
        accel.interpolate(torch.zeros(2, 2), Shared(2, 1, 1), torch.ones(1, 1), 0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("spec", OUTSIDE, ids=str)
@pytest.mark.parametrize("check", CHECKS)
def test_a_verb_equals_the_reference_on_cuda(check, spec):
    needs("gpu")
    check(spec, Numbers(spec, torch.float32, device="cuda"))


def test_several_parameters_come_and_go_by_name():
    spec, numbers = Additive(3, 2), Numbers(Additive(3, 2))
    with pytest.raises(ArrayError, match="give a mapping of rows, columns to arrays"):
        reference.matrix(spec, numbers.dense)
    with pytest.raises(ArrayError, match="give rows, columns"):
        accel.matrix(spec, {"rows": torch.ones(3)})
    with pytest.raises(ArrayError, match=r"rows of shape \(2,\).*must have shape \(3,\)"):
        reference.matrix(spec, {"rows": np.ones(2), "columns": np.ones((1, 2))})
    found = reference.project(numbers.lanes, spec)
    assert {name: array.shape for name, array in found.items()} == {"rows": (3, 3), "columns": (3, 1, 2)}
    alone = Signed(2, 3)
    np.testing.assert_array_equal(
        reference.matrix(alone, {"scale": np.ones((2, 1))}).toarray(),
        reference.matrix(alone, np.ones((2, 1))).toarray(),
    )


def layers_of(*specs):
    return tuple(networks.Layer(f"layer{n}", spec, type(spec).__name__.lower()) for n, spec in enumerate(specs))


NETWORK = networks.Network(
    "outside",
    (1, 4, 4),
    3,
    layers_of(Circulant(16, 3), Additive(6, 16), Chain(Signed(4, 6), Blur(4))),
)


def test_the_fan_in_is_the_nouns_own():
    """Once that of a vector was 1, so that its numbers were drawn within 1 whatever it read."""
    wide = Circulant(10_000, 400)
    assert abs(init.prior_weight(wide, rng=np.random.default_rng(0))).max() == pytest.approx(0.05, rel=0.02)
    network = networks.Network("wide", (1, 100, 100), 2, layers_of(wide))
    drawn = init.network_parameters(network, dense=False, seed=0)
    assert abs(drawn["layer0.weight"]).max() == pytest.approx(0.05, rel=0.02)
    assert "layer0.bias" not in drawn


def test_a_network_of_them_trains_the_same_in_both_backends():
    """No bias, several parameters, a part that learns nothing; two steps with an interpolation after each."""
    assert set(NETWORK.shapes(dense=False)) == {
        "layer0.weight", "layer1.rows", "layer1.columns", "layer1.bias", "layer2.scale", "layer2.bias",
        "head.weight", "head.bias",
    }  # fmt: skip
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 16)), rng.integers(0, 3, 5)
    found = {}
    for backend, dtype in ((reference, None), (accel, "float64")):
        prior = backend.init(NETWORK, dense=False, seed=0, dtype=dtype)
        lanes = backend.init(NETWORK, dense=True, seed=0, lanes=2, dtype=dtype)
        images, labels = (backend.place(array) for array in (x, y))
        for _ in range(2):
            backend.train_step(prior, images, labels, optimizer=Adam(lr=0.1))
            backend.train_step(lanes, images, labels, optimizer=Adam(lr=0.1))
            backend.mix(lanes, prior, [0.3, 1])
        found[backend] = backend.export(prior) | {f"lane {name}": own for name, own in backend.export(lanes).items()}
    for name, slow in found[reference].items():
        np.testing.assert_allclose(found[accel][name], slow, atol=1e-9, err_msg=name)
    W = found[reference]["lane layer0.weight"][1]
    np.testing.assert_allclose(W, Circulant(16, 3).matrix(found[reference]["layer0.weight"]).toarray(), atol=1e-12)
    assert (found[reference]["lane layer0.bias"][1] == 0).all()


def test_verify_takes_a_network_of_them():
    errors = verify.network_errors(NETWORK)
    assert max(errors.values()) < verify.TOLERANCE["float32"]


def test_a_network_that_cannot_be_trained_says_why():
    with pytest.raises(SpecError, match="not linear in its parameters"):
        replace(NETWORK, body=layers_of(LowRank(4, 16, 2)))


def test_the_backward_pass_of_what_is_not_linear_says_why():
    """In the reference it has a forward pass; in accel not even that with a record, which is for a backward pass."""
    spec = LowRank(4, 5, 2)
    numbers = Numbers(spec)
    y, backward = reference.layers.structured(numbers.x, spec, numbers.weight, numbers.bias)
    np.testing.assert_allclose(y, reference.apply(spec, numbers.weight, numbers.bias, numbers.x), atol=1e-12)
    with pytest.raises(SpecError, match="not linear in its parameters"):
        backward(y)
    arrays = [numbers.torch("x"), spec, numbers.torch("weight"), numbers.torch("bias")]
    assert_same(accel.layers.structured(*arrays, record=False)[0], y)
    with pytest.raises(SpecError, match="not linear in its parameters"):
        accel.layers.structured(*arrays)


def test_a_map_is_found_in_three_calls_where_each_entry_is_one_number():
    calls = []

    @dataclass(frozen=True)
    class Counted(Circulant):
        def matrix(self, weight):
            calls.append(weight)
            return Circulant(self.size, self.taps).matrix(weight)

    reference.adjoint(Counted(9, 5), np.ones((9, 9)))
    assert len(calls) == 3


def test_sparse_results_with_duplicates_count_once():
    @dataclass(frozen=True)
    class Doubled(Circulant):
        def matrix(self, weight):
            own = Circulant(self.size, self.taps).matrix(weight).tocoo()
            twice = [np.tile(part, 2) for part in (own.data, own.row, own.col)]
            return sparse.coo_array((twice[0], (twice[1], twice[2])), shape=own.shape)

    spec = Doubled(5, 2)
    for check in CHECKS:
        check(spec, Numbers(spec))
    assert reference.adjoint(spec, np.ones((5, 5))).tolist() == [10, 10]


def test_a_permutation_of_someone_elses_keeps_the_precision_of_the_input():
    x = torch.randn(2, 6, dtype=torch.float64)
    np.testing.assert_allclose(
        accel.apply(Chain(Blur(6), Transpose(2, 3)), None, None, x),
        reference.apply(Chain(Blur(6), Transpose(2, 3)), None, None, x.numpy()),
        atol=1e-15,
    )


def test_the_host_map_is_not_the_fast_path_of_known_nouns():
    entries.host_map.cache_clear()
    spec = Shared(2, 3, 2)
    for check in CHECKS:
        check(spec, Numbers(spec))
    assert entries.host_map.cache_info().misses == 0
