"""Interpolated MLPs: dense layers moved towards structured ones, `W <- (1 - alpha) W + alpha W_P`.

`imlp.densify` and `imlp.nn` are for PyTorch models. `imlp.spec` says what a layer is, `imlp.reference` and `imlp.accel`
compute with it, `imlp.train` trains. Each of these is imported when it is first used; importing this package imports
NumPy and SciPy at most.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imlp.backend import backend
from imlp.errors import ImlpError, RunError
from imlp.spec import Chain, Conv, Local, Parameter, Patchify, Shared, Spec, Transpose

if TYPE_CHECKING:
    from imlp import nn as nn

__version__ = "0.1.0"
__all__ = [
    "Chain", "Conv", "ImlpError", "Local", "Parameter", "Patchify", "Shared", "Spec", "Transpose", "backend", "load",
]  # fmt: skip
ROOMS = [
    "couplings", "data", "kinds", "look", "networks", "optimizers", "paper", "reference", "report", "spec", "study",
    "train",
]  # fmt: skip
if find_spec("torch") is not None:
    __all__ += ["densify", "matrix", "nn"]
    ROOMS.append("accel")


def load(run: str | Path, lane: int | str = 0, network: str | None = None, coupling: str | None = None) -> Any:
    """A trained lane of a run, or its "prior", as a plain `torch.nn.Module`: images from 0 to 1 in, logits out.

    A network or a coupling from outside the package has to be named (`FILE.py:NAME`), for its code is run.
    """
    from imlp.train.export import load  # the trainer is imported only by those who use it

    if not isinstance(run, str | Path):
        raise RunError(f"run is {run!r:.60}", "name the folder of a run of train")
    return load(run, lane, network, coupling)


def __getattr__(name: str) -> Any:
    if name in ("densify", "matrix"):
        return getattr(import_module("imlp.nn"), name)
    if name == "accel":
        return backend("accel")  # it says what is missing
    if name in (*ROOMS, "nn"):
        return import_module(f"imlp.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *ROOMS})
