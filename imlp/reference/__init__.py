"""The reference backend: NumPy and SciPy only, float64, one file per formula, in the paper's notation.

Made to be read and to be trusted. `imlp.accel` has the same functions in files of the same names, eight more files for
its paths (`diagonals`, `views`, `entries`, `kernels`, `rows`, `products`, `lanes`, `precision`), and is tested against
this one.
"""

from typing import TYPE_CHECKING

from imlp.reference.augment import batch
from imlp.reference.layer_verbs import (
    adjoint,
    adjoint_bias,
    apply,
    expand_bias,
    interpolate,
    interpolate_bias,
    matrix,
    measure,
    measure_random,
    place,
    project,
    pull,
    pull_bias,
    to_numpy,
)
from imlp.reference.mixing import mix
from imlp.reference.network import (
    computing,
    evaluate,
    export,
    forward,
    init,
    loss_and_grads,
    relax,
    restore,
    select,
    train_step,
    weight,
)

__all__ = [
    "adjoint",
    "adjoint_bias",
    "apply",
    "batch",
    "computing",
    "evaluate",
    "expand_bias",
    "export",
    "forward",
    "init",
    "interpolate",
    "interpolate_bias",
    "loss_and_grads",
    "matrix",
    "measure",
    "measure_random",
    "mix",
    "place",
    "project",
    "pull",
    "pull_bias",
    "relax",
    "restore",
    "select",
    "to_numpy",
    "train_step",
    "weight",
]

if TYPE_CHECKING:  # mypy compares this module with the interface
    import numpy

    import imlp.reference
    from imlp.backend import Backend

    _implements: Backend[numpy.ndarray] = imlp.reference
