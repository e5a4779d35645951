"""The verbs on one layer, as couplings are given them."""

from typing import TYPE_CHECKING

from imlp.reference.meter import measure, measure_random
from imlp.reference.pulling import pull, pull_bias
from imlp.reference.verbs import (
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
    import numpy as np

    import imlp.reference.layer_verbs
    from imlp.verbs import LayerVerbs

    _implements: LayerVerbs[np.ndarray] = imlp.reference.layer_verbs
