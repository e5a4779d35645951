"""What every error message looks like: what was given, what is wrong with it, and how to fix it.

All errors derive from `ImlpError`, so a caller can catch one name; those about values are also `ValueError`s.
The command line prints the message as one line, without a traceback, and exits with 2.
"""


class ImlpError(Exception):
    """`ImlpError("patch 5 does not divide 32", "use 1, 2, 4, 8, 16 or 32")` reads as one line."""

    def __init__(self, problem: str, remedy: str = ""):
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}; {remedy}" if remedy else problem)


class SpecError(ImlpError, ValueError):
    """An impossible geometry: names the field, what was given, and what would be possible."""


class ArrayError(ImlpError, ValueError):
    """An array that does not fit its spec: wrong shape, type, device or layout."""


class AlphaError(ImlpError, ValueError):
    """An interpolation weight outside [0, 1], or the wrong number of them."""


class BackendError(ImlpError):
    """A backend that is unknown, or whose packages are missing."""


class FileError(ImlpError):
    """A file that cannot be read or written."""


class ConfigError(ImlpError, ValueError):
    """A setting of a run that does not exist, or has an impossible value."""


class RunError(ImlpError):
    """A run that cannot start, resume or be read."""


class NonFiniteError(ImlpError, ArithmeticError):
    """A loss that is not finite, found before anything was changed: names the lanes, and the first layer concerned."""

    def __init__(self, lanes: list[int], layer: str):
        self.lanes, self.layer = lanes, layer
        super().__init__(f"the loss of lanes {lanes} is not finite, from {layer} on", "try a smaller learning rate")


class DataError(ImlpError):
    """A data set that is missing, damaged or not what it should be: names the file and the cause."""
