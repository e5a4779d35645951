"""The reference backend: NumPy and SciPy only, float64, one file per formula, in the paper's notation.

Made to be read and to be trusted. `imlp.accel` has the same functions in files of the same names, eight more files for
its paths (`diagonals`, `views`, `entries`, `kernels`, `rows`, `products`, `lanes`, `precision`), and is tested against
this one.
"""

from typing import TYPE_CHECKING

from imlp.reference.augment import batch
from imlp.reference.layer_verbs import *
from imlp.reference.network import (
    computing,
    evaluate,
    export,
    forward,
    init,
    loss_and_grads,
    mix,
    relax,
    restore,
    select,
    train_step,
    weight,
)

if TYPE_CHECKING:  # mypy compares this module with the interface
    import numpy

    import imlp.reference
    from imlp.backend import Backend

    _implements: Backend[numpy.ndarray] = imlp.reference
