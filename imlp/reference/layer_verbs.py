"""The verbs on one layer, as couplings are given them."""

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
