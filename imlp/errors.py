"""What every error message looks like: what was given, what is wrong with it, and what would fix it.

All of them derive from `ImlpError`, so a caller can catch one name; those about values are `ValueError`s too.
The command line prints the message as one line and exits with 2; nothing else of the error is shown.
"""

import sys
from collections.abc import Iterable
from difflib import get_close_matches

# What code from outside the package may raise, beside what ends every program
OUTSIDERS = (Exception, GeneratorExit, SystemExit)


class ImlpError(Exception):
    """`ImlpError("patch 5 does not divide 32", "use 1, 2, 4, 8, 16 or 32")` reads as one line."""

    def __init__(self, problem: str, remedy: str = ""):
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}; {remedy}" if remedy else problem)


class SpecError(ImlpError, ValueError):
    """A geometry that does not exist: it names the field, what was given, and what would do."""


class ArrayError(ImlpError, ValueError):
    """An array that does not fit its spec: wrong shape, type, device or layout."""


class AlphaError(ImlpError, ValueError):
    """An interpolation weight outside [0, 1], or the wrong number of them."""


class ModuleError(ImlpError, ValueError):
    """A PyTorch module, or a layer of one, that has no dense form: it names the layer and the reason."""


class BackendError(ImlpError):
    """A backend that is unknown, or whose packages are missing."""


class FileError(ImlpError):
    """A file that cannot be read or written."""


class ConfigError(ImlpError, ValueError):
    """A setting of a run that does not exist or has an impossible value."""


class RunError(ImlpError):
    """A run that cannot start, resume or be read."""


class NonFiniteError(ImlpError, ArithmeticError):
    """A loss that is not finite, found before anything was changed: in which lanes, and from which layer on."""

    def __init__(self, lanes: list[int], layer: str):
        self.lanes, self.layer = lanes, layer
        super().__init__(f"the loss of lanes {lanes} is not finite, from {layer} on", "try a smaller learning rate")


class OutsideError(ImlpError, ValueError):
    """An object outside the package (`FILE.py:NAME`) that cannot be found or imported, or is not what is needed."""


class DataError(ImlpError):
    """A data set that is missing, damaged or not what it should be: it names the file and the cause."""


OPTIONAL = {  # the packages of each extra in pyproject.toml
    "accel": ("torch", "torchvision"),
    "cuda12": ("cupy-cuda12x",),
    "cuda13": ("cupy-cuda13x",),
    "ray": ("ray",),
    "onnx": ("onnx", "onnxscript"),
    "search": ("optuna",),
    "tensorboard": ("tensorboard",),
}


def install_hint(extra: str) -> str:
    """The command that installs what an optional part needs.

    It names those packages and never `imlp`: the package index has another project of that name.

    >>> install_hint("accel")
    'install it with: pip install torch torchvision'
    """
    return f"install it with: pip install {' '.join(OPTIONAL[extra])}"


def program() -> str:
    """How the command line was called: `imlp` once installed, `python cli.py` in a clone, as messages repeat it."""
    name = sys.argv[0].rpartition("/")[2]
    return name if name == "imlp" else "python cli.py"


def in_a_line(error: BaseException) -> str:
    """The first line of what an error says; its type if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def known(name: str, names: Iterable[str], what: str, error: type[ImlpError] = SpecError) -> str:
    """`name` if it is one of `names`; otherwise an error that lists them, with the nearest one first.

    >>> known("cnn", ["cnn", "mixer"], "network")
    'cnn'
    """
    names = list(names)
    if name in names:
        return name
    raise error(f"unknown {what}: {name!r}", f"{did_you_mean(name, names)}the known ones are {', '.join(names)}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question that names the nearest of `names`, or nothing if none is near."""
    near = get_close_matches(str(name), list(names), n=1)
    return f"did you mean {near[0]!r}? " if near else ""
