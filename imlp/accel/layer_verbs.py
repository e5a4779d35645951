"""The verbs on one layer, as couplings are given them."""

from typing import TYPE_CHECKING

from imlp.accel.meter import measure, measure_random
from imlp.accel.pulling import pull, pull_bias
from imlp.accel.verbs import (
    adjoint,
    adjoint_bias,
    apply,
    expand_bias,
    interpolate,
    interpolate_bias,
    matrix,
    place,
    project,
    to_numpy,
)

if TYPE_CHECKING:  # mypy compares this module with the interface
    from torch import Tensor

    import imlp.accel.layer_verbs
    from imlp.verbs import LayerVerbs

    _implements: LayerVerbs[Tensor] = imlp.accel.layer_verbs
