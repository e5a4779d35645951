"""What the paper says and how its experiments are run: their files, the paper's numbers, its claims and their verdicts.

`imlp.paper.reproduce` does what the command of that name does, without a console; it is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imlp.paper.run_experiment import reproduce

__all__ = ["reproduce"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("imlp.paper.run_experiment"), name)
