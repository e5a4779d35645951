"""Interpolated MLPs: dense layers moved towards structured ones, `W <- (1 - alpha) W + alpha W_P`.

`imlp.spec` says what a layer is, `imlp.reference` and `imlp.accel` compute with it, `imlp.train` trains.
Importing this package imports neither torch nor CuPy.
"""

from imlp.backend import backend
from imlp.errors import ImlpError
from imlp.spec import Chain, Conv, Patchify, Shared, Spec, Transpose

__version__ = "0.1.0"
__all__ = ["Chain", "Conv", "ImlpError", "Patchify", "Shared", "Spec", "Transpose", "__version__", "backend"]
