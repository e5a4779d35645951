"""Every verb of accel against the reference: the slow version is the oracle, gradients included."""

import inspect

import numpy as np
import pytest
from conftest import needs
from hypothesis import given
from strategies import PAPER, SPECS, specs

needs("accel")

import torch  # noqa: E402
from verb_checks import (  # noqa: E402
    CHECKS,
    DTYPES,
    Numbers,
    assert_same,
    check_apply,
    check_expand_bias,
    check_matrix,
    check_project,
)

import imlp  # noqa: E402
from imlp import accel, reference  # noqa: E402
from imlp.backend import Backend, ModelVerbs  # noqa: E402
from imlp.verbs import LayerVerbs  # noqa: E402


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("check", CHECKS)
def test_a_verb_equals_the_reference(check, spec, dtype):
    check(spec, Numbers(spec, dtype))


@pytest.mark.parametrize("spec", PAPER, ids=str)
@pytest.mark.parametrize("check", [check_matrix, check_expand_bias, check_apply, check_project])
def test_a_verb_equals_the_reference_at_the_papers_sizes(check, spec):
    check(spec, Numbers(spec, torch.float32))


@pytest.mark.parametrize("check", CHECKS)
@given(spec=specs)
def test_a_verb_equals_the_reference_on_any_geometry(check, spec):
    check(spec, Numbers(spec))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", SPECS + PAPER, ids=str)
@pytest.mark.parametrize("check", CHECKS)
def test_a_verb_equals_the_reference_on_cuda(check, spec, dtype):
    needs("gpu")
    check(spec, Numbers(spec, dtype, device="cuda"))


@given(spec=specs.filter(lambda spec: spec.rank > 0))
def test_a_weight_may_be_stored_in_any_order(spec):
    """The layout in which a network's step stores it: the taps of a kernel first."""
    numbers = Numbers(spec)
    order = list(reversed(range(len(spec.weight_shape))))
    weight = numbers.torch("weight").permute(order).contiguous().permute(order)
    assert_same(accel.matrix(spec, weight), reference.matrix(spec, numbers.weight))
    assert_same(accel.matrix(spec, weight, layout="sparse"), reference.matrix(spec, numbers.weight))
    mixed = accel.interpolate(numbers.torch("dense"), spec, weight, 0.3)
    assert_same(mixed, reference.interpolate(numbers.dense, spec, numbers.weight, 0.3))


@given(spec=specs)
def test_gradients_of_apply_are_those_of_the_matrix(spec):
    """`dx = dy W_P`, `dw = adjoint(dy^T x)`, and `db` likewise."""
    numbers = Numbers(spec)
    leaves = [numbers.torch(name) for name in ("weight", "bias", "x")]
    given_leaves = [leaf.requires_grad_() for leaf in leaves if leaf is not None]
    dy = numbers.torch("y")
    gradients = torch.autograd.grad(accel.apply(spec, *leaves), given_leaves, dy)
    assert_same(gradients[-1], numbers.y @ reference.matrix(spec, numbers.weight))
    if spec.weight_shape is not None:
        assert_same(gradients[0], reference.adjoint(spec, numbers.y.T @ numbers.x))
        assert_same(gradients[1], reference.adjoint_bias(spec, numbers.y.sum(0)))


@given(spec=specs.filter(lambda spec: spec.rank > 0))
def test_adjoint_is_autograds_gradient_through_matrix(spec):
    numbers = Numbers(spec)
    weight, bias = numbers.torch("weight").requires_grad_(), numbers.torch("bias").requires_grad_()
    dW, db = numbers.torch("dense"), numbers.torch("y")[0]
    (dw,) = torch.autograd.grad(accel.matrix(spec, weight), weight, dW)
    torch.testing.assert_close(accel.adjoint(spec, dW), dw, rtol=0, atol=1e-12)
    (small,) = torch.autograd.grad(accel.expand_bias(spec, bias), bias, db)
    torch.testing.assert_close(accel.adjoint_bias(spec, db), small, rtol=0, atol=1e-12)


def test_adjoint_takes_a_gradient_that_is_stored_in_any_order():
    numbers = Numbers(SPECS[0])
    expected = reference.adjoint(SPECS[0], numbers.dense)
    assert_same(accel.adjoint(SPECS[0], numbers.torch("dense").T.contiguous().T), expected)
    assert_same(accel.adjoint(SPECS[0], torch._neg_view(-numbers.torch("dense"))), expected)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_gradients_of_apply_are_those_of_finite_differences(spec):
    numbers = Numbers(spec)
    leaves = [numbers.torch(name) for name in ("weight", "bias", "x")]
    for leaf in leaves:
        if leaf is not None:
            leaf.requires_grad_()
    assert torch.autograd.gradcheck(lambda *arrays: accel.apply(spec, *arrays), leaves)


PUBLIC = [name for part in (LayerVerbs, ModelVerbs) for name in vars(part) if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_both_backends_have_the_same_signature(name):
    """Names, order, kinds and defaults of the parameters are those of the interface."""

    def parameters(function):
        found = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in found if p.name != "self"]

    expected = parameters(getattr(Backend, name))
    for backend in (reference, accel):
        assert parameters(getattr(backend, name)) == expected


def test_neither_backend_has_a_name_that_the_interface_lacks():
    offered = ({name for name, _ in inspect.getmembers(backend, inspect.isfunction)} for backend in (reference, accel))
    assert [*offered] == [{*PUBLIC}, {*PUBLIC, "describe"}]  # only accel has paths to choose from


NAMES = ("diagonals", "entries", "kernels", "precision", "products", "rows", "stack", "views")
PATHS = {f"{name}.py" for name in NAMES}


def test_the_files_of_accel_mirror_the_references():
    from pathlib import Path

    def files(backend):
        return {path.name for path in Path(backend.__file__).parent.glob("*.py")}

    assert files(accel) - files(reference) == PATHS
    assert files(reference) <= files(accel)


def test_bfloat16_and_half_work_too():
    spec = SPECS[0]
    for dtype in (torch.bfloat16, torch.float16):
        numbers = Numbers(spec, dtype)
        fast = accel.interpolate(numbers.torch("dense"), spec, numbers.torch("weight"), 0.25)
        slow = reference.interpolate(numbers.dense, spec, numbers.weight, 0.25)
        assert fast.dtype == dtype
        np.testing.assert_allclose(accel.to_numpy(fast), slow, atol=0.05)


GOOD = SPECS[0]
M_OUT, M_IN = GOOD.matrix_shape


@pytest.mark.parametrize(
    ("dense", "weight", "alpha", "message"),
    [
        (torch.ones(M_IN, M_OUT).T, None, 0.5, r"not contiguous; pass W\.contiguous"),
        (torch.ones(M_OUT, M_IN).expand(3, -1, -1), None, 0.5, "shares memory with itself"),
        (torch.ones(2 * M_OUT, M_IN).as_strided((2, M_OUT, M_IN), (M_IN, M_IN, 1)), None, 0.5, "shares memory"),
        (torch.ones(M_IN).expand(M_OUT, M_IN), None, 0.5, "not contiguous"),
        (torch.ones(M_OUT + M_IN).as_strided((M_OUT, M_IN), (1, 1)), None, 0.5, "not contiguous"),
        (torch.ones(M_OUT, M_IN + 1), None, 0.5, r"must be \(256, 192\)"),
        (torch.ones(2, 2, M_OUT, M_IN), None, 0.5, r"must be \(256, 192\)"),
        (torch.ones(M_OUT, M_IN, dtype=torch.int64), None, 0.5, "floating-point"),
        (torch.ones(M_OUT, M_IN), torch.ones(4, 3, 3, 3, dtype=torch.int32), 0.5, "floating-point"),
        (torch.ones(M_OUT, M_IN), torch.ones(4, 3, 3, 3, dtype=torch.float64), 0.5, r"convert it with \.to"),
        (torch.ones(M_OUT, M_IN), torch.ones(4, 3, 3, 3, device="meta"), 0.5, r"move it with \.to"),
        (torch.ones(M_OUT, M_IN), torch.ones(4, 3, 3, 2), 0.5, r"must have shape \(4, 3, 3, 3\)"),
        (torch.ones(M_OUT, M_IN), None, 1.5, "from 0 .* to 1"),
        (torch.ones(M_OUT, M_IN), None, -0.1, "from 0 .* to 1"),
        (torch.ones(M_OUT, M_IN), None, float("nan"), "from 0 .* to 1"),
        (torch.ones(M_OUT, M_IN), None, [0.5, 0.5], "give a single number"),
        (torch.ones(3, M_OUT, M_IN), None, [0.5, 0.5], "one number, or a list of 3"),
        (torch.ones(M_OUT, M_IN), None, "half", "give a number"),
    ],
)
def test_bad_input_is_refused_and_leaves_w_untouched(dense, weight, alpha, message):
    before = dense.clone()
    weight = torch.ones(4, 3, 3, 3) if weight is None else weight
    with pytest.raises(imlp.ImlpError, match=message):
        accel.interpolate(dense, GOOD, weight, alpha)
    assert torch.equal(dense, before)


def test_a_bias_that_is_a_part_of_the_dense_one_counts_as_it_was():
    dense = torch.arange(1.0, 1 + M_OUT)
    expected = 0.5 * dense + 0.5 * accel.expand_bias(GOOD, dense[:4].clone())
    assert torch.equal(accel.interpolate_bias(dense, GOOD, dense[:4], 0.5), expected)


def test_lanes_that_share_memory_are_not_pulled():
    lanes, bias = torch.rand(M_OUT, M_IN).expand(2, -1, -1), torch.rand(1).expand(M_OUT)
    for pull, shared in ((accel.pull, lanes), (accel.pull_bias, bias)):
        before = shared.clone()
        with pytest.raises(imlp.ImlpError, match="shares memory with itself"):
            pull(shared, GOOD, 0.5)
        assert torch.equal(shared, before)


def test_an_unknown_layout_is_refused():
    with pytest.raises(imlp.ImlpError, match="use sparse or dense"):
        accel.matrix(GOOD, torch.ones(4, 3, 3, 3), layout="csc")


def test_interpolate_allocates_nothing_larger_than_the_weight():
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):
        """Sees the result of every operation; a result with new storage is an allocation."""

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            known = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in known:
                largest = max(largest, result.numel())
            return result

    for spec in PAPER:
        numbers = Numbers(spec, torch.float32)
        dense, weight = numbers.torch("dense"), numbers.torch("weight")
        largest = 0
        with Watch():
            accel.interpolate(dense, spec, weight, 0.5)
        assert largest <= (1 if weight is None else weight.numel())
