"""Break a module's code on purpose, for the time of a test that must notice."""

import inspect
import sys
from types import ModuleType

import pytest


def break_code(module: ModuleType, right: str, wrong: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace a piece of a module's code by a wrong one."""
    with open(module.__file__) as file:
        source = file.read()
    assert source.count(right) == 1, f"{name}: the code to break is no longer there"
    mutant = ModuleType("mutant")
    mutant.__file__ = module.__file__
    monkeypatch.setitem(sys.modules, "mutant", mutant)  # dataclasses look up their module
    exec(compile(source.replace(right, wrong), module.__file__, "exec"), vars(mutant))
    adopt(module, mutant, monkeypatch)


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
            of_properties = [getattr(each, "fget", getattr(each, "func", each)) for each in (function, wrong)]
            codes = [getattr(each, "__code__", None) for each in of_properties]
            if None not in codes and codes[0].co_freevars == codes[1].co_freevars:
                monkeypatch.setattr(of_properties[0], "__code__", codes[1])
