"""Many runs: sweeps and searches, on this machine or on a Ray cluster, and what came out.

`sweep` and `search` do what the commands of the same names do, without a console. Each is imported when it
is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imlp.study.run_search import search
    from imlp.study.run_sweep import sweep

__all__ = ["search", "sweep"]
_HOMES = {"search": "run_search", "sweep": "run_sweep"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"imlp.study.{_HOMES[name]}"), name)
