"""The parity tests can fail: each of these deliberate mistakes in the arithmetic of the views is noticed."""

import inspect
import sys
from types import ModuleType

import pytest
from conftest import needs
from strategies import SPECS

needs("accel")

from pins import CHECKS, Numbers  # noqa: E402

from imlp.accel import chain, convolution, diagonals, patchify, shared, transpose, verbs, views  # noqa: E402
from imlp.spec import convolution as spec_module  # noqa: E402

MUTANTS: dict[str, tuple[ModuleType, str, str]] = {
    "a shifted tap": (convolution, "spec.pixel(0, y, i)", "spec.pixel(0, y, i) + 1"),
    "a shifted tap, sideways": (convolution, "i * k_x + j, y * w_out", "i * k_x, y * w_out"),
    "a forgotten padding": (spec_module, "self.dilations[axis] - self.paddings[axis]", "self.dilations[axis]"),
    "a forgotten bound": (spec_module, "first = max(0, -(shift // stride))", "first = 0"),
    "a forgotten bound, at the end": (spec_module, "(size - 1 - shift) // stride + 1", "(size - shift) // stride + 1"),
    "swapped axes": (convolution, "Axis(len(ys), 0, w_out, s_y * w_in)", "Axis(len(ys), 0, 1, s_x)"),
    "a forgotten stride": (convolution, "Axis(len(xs), 0, 1, s_x)", "Axis(len(xs), 0, 1, 1)"),
    "a forgotten dilation": (convolution, "Axis(len(i_s), k_x, 0, d_y * w_in)", "Axis(len(i_s), k_x, 0, w_in)"),
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
    "biases in the wrong order": (verbs, ".argsort(stable=True)", ".argsort(descending=True)"),
    "a bias not permuted": (verbs, "[0] if after else expanded", "[0] if False else expanded"),
}


def survives() -> bool:
    """Whether every check of every spec still passes."""
    try:
        for spec in SPECS:
            for check in CHECKS:
                check(spec, Numbers(spec))
    except (AssertionError, RuntimeError, ValueError, IndexError):
        return False
    return True


CACHES = (chain.diagonals, views.entries_filled, views._strides, verbs._outputs_by_bias)


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


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.usefixtures("fresh_caches")
def test_a_mistake_is_noticed(name, monkeypatch):
    module, right, wrong = MUTANTS[name]
    with open(module.__file__) as file:
        source = file.read()
    assert source.count(right) == 1, f"{name}: the code to break is no longer there"
    mutant = ModuleType("mutant")
    mutant.__file__ = module.__file__
    monkeypatch.setitem(sys.modules, "mutant", mutant)  # dataclasses look up their module
    exec(compile(source.replace(right, wrong), module.__file__, "exec"), vars(mutant))
    adopt(module, mutant, monkeypatch)
    assert not survives()


def adopt(module: ModuleType, mutant: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the code of the module's functions and methods by the mutant's, wherever they have been imported."""
    for name, value in vars(module).items():
        other = vars(mutant).get(name)
        value, other = inspect.unwrap(value), inspect.unwrap(other)
        if getattr(value, "__module__", None) != module.__name__:
            continue
        pairs = [(value, other)]
        if isinstance(value, type):
            pairs = [(function, vars(other).get(method)) for method, function in vars(value).items()]
        for function, wrong in pairs:
            codes = [getattr(each, "__code__", None) for each in (function, wrong)]
            if None not in codes and codes[0].co_freevars == codes[1].co_freevars:
                monkeypatch.setattr(function, "__code__", codes[1])


def test_the_right_code_is_back():
    assert survives()
