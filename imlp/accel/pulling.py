"""The coupling `self` without the matrix: `W` is moved towards the nearest prior layer, or only towards its support.

The entries that a prior fills are reached through views, as everywhere here; for `Conv` and `Local` on the CPU one pass
in C takes their means and another fills them.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from imlp.accel import entries, rows
from imlp.accel.chain import has_diagonals
from imlp.accel.verbs import adjoint_bias, check_bias_change, check_changes, expand_bias, interpolate, project
from imlp.accel.views import views
from imlp.errors import ArrayError
from imlp.spec import Conv, Spec


@torch.no_grad()
def pull(dense: Tensor, spec: Spec, locality: Any, sharing: Any = None) -> Tensor:
    """`W <- W - locality (W - M * W) - sharing (M * W - Pi(W))`, in place, and returned.

    >>> from imlp.spec import Shared
    >>> pull(torch.tensor([[1.0, 8.0], [8.0, 3.0]]), Shared(2, 1, 1), locality=0.25, sharing=0.5)
    tensor([[1.5000, 6.0000],
            [6.0000, 2.5000]])
    """
    both = check_changes(spec, dense, locality, locality if sharing is None else sharing)
    if not spec.parameters:
        raise ArrayError(f"{spec} has no weight to pull towards", "pull towards a layer that has one")
    for lane, outside, inside in zip(dense if dense.ndim == 3 else (dense,), *both, strict=True):
        if outside or inside:
            _pull(lane, spec, outside, inside)
    return dense


def _pull(dense: Tensor, spec: Spec, locality: float, sharing: float) -> None:
    if rows.usable(dense, spec):
        rows.pull(dense, spec, locality, sharing)
        return
    nearest = project(dense, spec)
    if locality == sharing:
        interpolate(dense, spec, nearest, sharing)
    elif not has_diagonals(spec):
        place, values = entries.filled(spec, spec.named(nearest), like=dense)
        kept = dense.view(-1)[place]
        dense.mul_(1 - locality).view(-1)[place] = kept.mul_(1 - sharing).add_(values, alpha=sharing)
    else:
        (numbers,) = spec.named(nearest).values()
        kept_by_diagonal = [places.clone() for places, _ in views(dense, spec, numbers)]
        dense.mul_(1 - locality)
        for kept, (places, values) in zip(kept_by_diagonal, views(dense, spec, numbers), strict=True):
            places.copy_(kept.mul_(1 - sharing).add_(values, alpha=sharing))


@torch.no_grad()
def pull_bias(dense_bias: Tensor, spec: Spec, sharing: float) -> Tensor:
    """`b <- (1 - sharing) b + sharing Pi(b)`, in place, and returned: the nearest bias of the prior is one of means.

    >>> from imlp.spec import Shared
    >>> pull_bias(torch.tensor([3.0, 5.0, 1.0, 1.0]), Shared(2, 1, 2), sharing=1)
    tensor([2., 3., 2., 3.])
    """
    sharing = check_bias_change(spec, dense_bias, sharing)
    if type(spec) is Conv and dense_bias.ndim == 1:  # one channel after the other
        channels = dense_bias.unflatten(0, (spec.out_channels, -1))
        means = channels.mean(1, keepdim=True)
        channels.mul_(1 - sharing).add_(means, alpha=sharing)
        return dense_bias
    sums = adjoint_bias(spec, dense_bias)
    outputs = _outputs(spec, dense_bias.dtype, dense_bias.device)
    nearest = None if sums is None else expand_bias(spec, sums / outputs)  # refuses what does not fit before the change
    dense_bias.mul_(1 - sharing)
    return dense_bias if nearest is None else dense_bias.add_(nearest, alpha=sharing)


@lru_cache(maxsize=1024)
@torch.inference_mode(False)  # autograd refuses what was made in such a mode
def _outputs(spec: Spec, dtype: torch.dtype, device: torch.device) -> Any:
    return adjoint_bias(spec, torch.ones(spec.matrix_shape[0], dtype=dtype, device=device))
