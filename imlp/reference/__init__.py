"""The reference backend: NumPy and SciPy only, float64, one formula a file, in the paper's notation.

Made to be read and to be trusted. `imlp.accel` has the same files and the same functions, and is tested against it.
"""

from imlp.reference.augment import batch
from imlp.reference.meter import measure
from imlp.reference.network import evaluate, export, forward, init, inject, load, loss_and_grads, select, train_step
from imlp.reference.verbs import apply, expand_bias, interpolate, matrix, place, project, to_numpy

__all__ = [
    "apply",
    "batch",
    "evaluate",
    "expand_bias",
    "export",
    "forward",
    "init",
    "inject",
    "interpolate",
    "load",
    "loss_and_grads",
    "matrix",
    "measure",
    "place",
    "project",
    "select",
    "to_numpy",
    "train_step",
]
