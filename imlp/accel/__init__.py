"""The accelerated backend: PyTorch on any device, with CuPy kernels on CUDA. The same verbs as `imlp.reference`.

Where the reference builds `W_P`, this backend only ever looks at the entries of `W` that `W_P` fills, as strided views
(`diagonals`). `describe()` tells which path is in use and why.
"""

from typing import TYPE_CHECKING

from imlp.accel.augment import batch
from imlp.accel.kernels import describe
from imlp.accel.layer_verbs import *
from imlp.accel.network import (
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
from imlp.accel.precision import computing

if TYPE_CHECKING:  # mypy compares this module with the interface
    import torch

    import imlp.accel
    from imlp.backend import Backend

    _implements: Backend[torch.Tensor] = imlp.accel
