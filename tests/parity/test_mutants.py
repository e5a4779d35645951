"""The parity tests can fail: each of these deliberate mistakes in the arithmetic of the views is noticed."""

from types import ModuleType

import pytest
from broken_code import break_code
from conftest import needs
from outside_nouns import OUTSIDE
from strategies import SPECS

needs("accel")

from verb_checks import CHECKS, Numbers, check_literally  # noqa: E402

from imlp.accel import chain, convolution, diagonals, entries, local, meter, patchify, shared, transpose, verbs, views  # noqa: E402
from imlp.reference import meter as reference_meter  # noqa: E402
from imlp.reference import verbs as reference_verbs  # noqa: E402
from imlp.spec import base, linear_map  # noqa: E402
from imlp.spec import window as spec_module  # noqa: E402

MUTANTS: dict[str, tuple[ModuleType, str, str]] = {
    "a shifted tap": (convolution, "spec.pixel(0, y, i)", "spec.pixel(0, y, i) + 1"),
    "a shifted tap, sideways": (convolution, "+ i * k_x + j\n", "+ i * k_x\n"),
    "a forgotten padding": (spec_module, "self.dilation[axis] - self.padding[axis]", "self.dilation[axis]"),
    "a forgotten bound": (spec_module, "first = max(0, -(shift // stride))", "first = 0"),
    "a forgotten bound, at the end": (spec_module, "(size - 1 - shift) // stride + 1", "(size - shift) // stride + 1"),
    "swapped axes": (convolution, "Axis(len(ys), size * w_out, w_out, s_y * w_in)", "Axis(len(ys), size, 1, s_x)"),
    "a forgotten stride": (convolution, "Axis(len(xs), size, 1, s_x)", "Axis(len(xs), size, 1, 1)"),
    "a forgotten dilation": (convolution, "Axis(len(i_s), k_x, 0, d_y * w_in)", "Axis(len(i_s), k_x, 0, w_in)"),
    "the kernel of another place": (convolution, "size * (y * w_out + x)", "size * (x * w_out + y)"),
    "one kernel for all places": (local, "size=prod(spec.weight_shape[1:])", "size=0"),
    "a forgotten group": (convolution, "o_group * h_out * w_out, c_group * h_in", "o_group * h_out * w_out, 0 * h_in"),
    "patches down instead of across": (patchify, "input=P, output=c * P * P", "input=P, output=P * P"),
    "a transpose the wrong way": (transpose, "input=spec.cols, output=1", "input=spec.rows, output=1"),
    "a transposed block": (
        shared,
        "Axis(C_out, C_in, 1, 0), Axis(C_in, 1, 0, 1)",
        "Axis(C_out, 1, 1, 0), Axis(C_in, C_out, 0, 1)",
    ),
    "a permutation undone": (diagonals, "Digit(digit.size, digit.output, digit.input)", "digit"),
    "a carry overlooked": (diagonals, " or reach[k] >= digit.size", ""),
    "a forgotten scale": (verbs, "dense.mul_(keep)", "dense.mul_(1)"),
    "a forgotten alpha": (verbs, "places.add_(numbers, alpha=alpha)", "places.add_(numbers, alpha=1)"),
    "a sum for a mean": (verbs, ".div_(entries_filled", ".mul_(entries_filled"),
    "a sum overwritten": (verbs, "numbers.add_(places)", "numbers.copy_(places)"),
    "numbers that count once": (meter, ".square() * entries_filled(spec, wide, dense.device)", ".square()"),
    "what is shared counted twice": (meter, "_square(block - numbers, wide)", "_square(block, wide)"),
    "what is shared counted as outside": (meter, "whole - inside", "whole - local"),
    "a random matrix without a support": (
        meter,
        "random_parts(rank(spec), nnz,",
        "random_parts(rank(spec), rank(spec),",
    ),
    "biases in the wrong order": (verbs, ".argsort(stable=True)", ".argsort(descending=True)"),
    "a bias not permuted": (verbs, "[0] if after else expanded", "[0] if False else expanded"),
}


DEFAULT_MUTANTS: dict[str, tuple[ModuleType, str, str]] = {
    "a forgotten constant": (entries, "numbers[number] * constant", "numbers[number]"),
    "terms that overwrite each other": (entries, ".index_add(0, entry, terms)", ".index_copy(0, entry, terms)"),
    "a forgotten alpha": (verbs, "place, values, alpha=alpha)", "place, values, alpha=1)"),
    "a forgotten scale": (verbs, "dense.mul_(keep)", "dense.mul_(1)"),
    "a constant forgotten on the way back": (entries, "terms = constant * (", "terms = 1 * ("),
    "sums for means": (entries, "return adjoint(spec, dense) / squares.to(dense)", "return adjoint(spec, dense)"),
    "another sparse product": (entries, "torch.sparse.mm(w_p, x.T).T", "torch.sparse.mm(w_p, 2 * x.T).T"),
    "another dense product": (entries, "return x @ values", "return 2 * x @ values"),
    "a chain multiplied the other way": (
        entries,
        "if part.parameters else {}) @ product",
        "if True else {}) @ product",
    ),
    "means where numbers share an entry": (linear_map, "np.diff(self.A.indptr) <= 1", "np.diff(self.A.indptr) <= 2"),
    "means without the constants": (linear_map, "np.where(self.squares > 0, self.squares, 1)", "1"),
    "an adjoint without signs": (linear_map, "self.A.T @ dense", "abs(self.A).T @ dense"),
    "rows for columns": (
        linear_map,
        "whole[:, places].T)\n    return LinearMap(shape, places // shape[1], places % shape[1]",
        "whole[:, places].T)\n    return LinearMap(shape, places % shape[0], places // shape[0]",
    ),
    "as many entries as numbers": (meter, "else len(entries.host_map(spec).rows)", "else rank(spec)"),
    "a bias that is not moved": (reference_verbs, "part @ product, after,", "part @ product, [],"),
    "a bias in the wrong order": (verbs, "np.array(spec.bias_index,", "np.array(spec.bias_index[::-1],"),
    "a bias that keeps its last number": (verbs, "sums.index_add_(-1", "sums.index_copy_(-1"),
}


def survives_outside() -> bool:
    """The same for nouns that take the defaults, and the reference's linear algebra on them."""
    try:
        for spec in OUTSIDE:
            for check in CHECKS:
                check(spec, Numbers(spec))
            if spec.parameters:
                check_literally(spec)
    except (AssertionError, RuntimeError, ValueError, IndexError, KeyError):
        return False
    return True


def survives() -> bool:
    """Whether every check of every spec still passes."""
    try:
        for spec in SPECS:
            for check in CHECKS:
                check(spec, Numbers(spec))
    except (AssertionError, RuntimeError, ValueError, IndexError):
        return False
    return True


CACHES = (
    chain.diagonals, views.entries_filled, views._strides, verbs._outputs_by_bias, verbs._bias_index, entries.host_map,
    entries._entries, base.own_map, reference_verbs.linear_map, reference_verbs.bias_map,
    reference_meter.support,
)  # fmt: skip


@pytest.fixture
def fresh_caches(monkeypatch):
    """Clear the caches, so that nothing is remembered from the correct code or left over from the wrong one."""

    def clear():
        for cached in CACHES:
            cached.cache_clear()

    clear()
    yield
    monkeypatch.undo()
    clear()


def test_the_right_code_survives():
    assert survives()
    assert survives_outside()


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.usefixtures("fresh_caches")
def test_a_mistake_is_noticed(name, monkeypatch):
    break_code(*MUTANTS[name], name, monkeypatch)
    assert not survives()


@pytest.mark.parametrize("name", DEFAULT_MUTANTS)
@pytest.mark.usefixtures("fresh_caches")
def test_a_mistake_in_a_default_is_noticed(name, monkeypatch):
    break_code(*DEFAULT_MUTANTS[name], name, monkeypatch)
    assert not survives_outside()


def test_the_right_code_is_back():
    assert survives()
    assert survives_outside()
