"""`P`: cutting an image into patches is a permutation (appendix B.1.1).

Row `i` of `P` has its one at column `j`, "pixel `x_j` moves to position `i`":

    patch = floor(i / P^2)      (R, C) = (floor(patch / w), patch mod w)
    q = i mod P^2               (r, s) = (floor(q / P), q mod P)
    j = (R P + r) W + (C P + s)

Erratum: the paper writes `(i / P^2) mod w`, without the floor. It gives the formula for one channel; with `c` of
them the order inside a patch is `(channel, r, s)`, that of a convolution whose kernel and stride are the patch, so
that `W~ P` is such a convolution: `patch = floor(i / (c P^2))`, and channel `floor(i / P^2) mod c` adds `H W` a step.
"""

import numpy as np
from scipy import sparse

from imlp.spec import Patchify


def matrix(spec: Patchify) -> sparse.csr_array:
    """`P (c H W, c H W)`.

    >>> matrix(Patchify(1, 2, 4, patch=2)) @ np.arange(8)  # 0 1 2 3 over 4 5 6 7, in two patches
    array([0., 1., 4., 5., 2., 3., 6., 7.])
    """
    c, H, W, P = spec.channels, spec.height, spec.width, spec.patch
    _, w = spec.grid
    i = np.arange(c * H * W)
    patch, channel, q = i // (c * P**2), i // P**2 % c, i % P**2
    R, C = patch // w, patch % w
    r, s = q // P, q % P
    j = channel * H * W + (R * P + r) * W + (C * P + s)
    return sparse.csr_array((np.ones(i.size), (i, j)), shape=spec.matrix_shape)
