"""The accelerated backend: PyTorch on any device, with CuPy kernels on CUDA. The same verbs as `imlp.reference`.

Where the reference builds `W_P`, this backend only ever looks at the entries of `W` that `W_P` fills, as strided views
(`diagonals`). `describe()` tells which path is in use and why.
"""

from typing import TYPE_CHECKING

from imlp.accel.augment import batch
from imlp.accel.kernels import describe
from imlp.accel.layer_verbs import (
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
from imlp.accel.mixing import mix
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
from imlp.accel.precision import computing

__all__ = [
    "adjoint",
    "adjoint_bias",
    "apply",
    "batch",
    "computing",
    "describe",
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
    import torch

    import imlp.accel
    from imlp.backend import Backend

    _implements: Backend[torch.Tensor] = imlp.accel
