"""The accelerated backend: PyTorch on any device, with CuPy kernels on CUDA. The same verbs as `imlp.reference`.

Where the reference builds `W_P`, this backend only ever looks at the entries of `W` that `W_P` fills, as strided views
(`diagonals`). `describe()` tells which path is in use and why.
"""

from typing import TYPE_CHECKING

from imlp.accel.augment import batch
from imlp.accel.kernels import describe
from imlp.accel.meter import measure, measure_random
from imlp.accel.network import evaluate, export, forward, init, inject, loss_and_grads, restore, select, train_step
from imlp.accel.verbs import adjoint, adjoint_bias, apply, expand_bias, interpolate, matrix, place, project, to_numpy

__all__ = [
    "adjoint",
    "adjoint_bias",
    "apply",
    "batch",
    "describe",
    "evaluate",
    "expand_bias",
    "export",
    "forward",
    "init",
    "inject",
    "interpolate",
    "loss_and_grads",
    "matrix",
    "measure",
    "measure_random",
    "place",
    "project",
    "restore",
    "select",
    "to_numpy",
    "train_step",
]

if TYPE_CHECKING:  # mypy compares this module with the interface
    import torch

    import imlp.accel
    from imlp.backend import Backend

    _implements: Backend[torch.Tensor] = imlp.accel
