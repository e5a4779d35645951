"""The accelerated backend: PyTorch on any device, with CuPy kernels on CUDA. The same verbs as `imlp.reference`.

Where the reference builds `W_P`, this backend only ever looks at the entries of `W` that `W_P` fills, as strided views
(`diagonals`). `describe()` tells which path is in use and why.
"""

from typing import TYPE_CHECKING

from imlp.accel.augment import batch
from imlp.accel.kernels import describe
from imlp.accel.meter import measure, measure_random
from imlp.accel.mixing import inject, mix
from imlp.accel.network import (
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
from imlp.accel.pulling import pull, pull_bias
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
    import torch

    import imlp.accel
    from imlp.backend import Backend

    _implements: Backend[torch.Tensor] = imlp.accel
