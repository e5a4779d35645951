"""Interpolated MLPs: dense layers moved towards structured ones, `W <- (1 - alpha) W + alpha W_P`.

`imlp.spec` says what a layer is, `imlp.reference` and `imlp.accel` compute with it, `imlp.train` trains.
Importing this package imports neither torch nor CuPy.
"""

from pathlib import Path
from typing import Any

from imlp.backend import backend
from imlp.errors import ImlpError, RunError
from imlp.spec import Chain, Conv, Local, Parameter, Patchify, Shared, Spec, Transpose


def load(run: str | Path, lane: int = 0, network: str | None = None, coupling: str | None = None) -> Any:
    """A trained lane of a run as a plain `torch.nn.Module`: images from 0 to 1 in, logits out.

    A network or a coupling from outside the package has to be named (`FILE.py:NAME`), for its code is run.
    """
    from imlp.train.export import load  # the trainer is imported only by those who use it

    if not isinstance(run, str | Path):
        raise RunError(f"run is {run!r:.60}", "name the folder of a run of train")
    return load(run, lane, network, coupling)


__version__ = "0.1.0"
__all__ = [
    "Chain",
    "Conv",
    "ImlpError",
    "Local",
    "Parameter",
    "Patchify",
    "Shared",
    "Spec",
    "Transpose",
    "__version__",
    "backend",
    "load",
]
