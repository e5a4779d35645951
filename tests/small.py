"""Networks of every kind, small enough to test every number in them, and batches for them."""

import numpy as np

from imlp.networks import cnn, mixer, mlp1, mlp2

IMAGE, CLASSES = (2, 4, 4), 3
SIZES = {"image": IMAGE, "classes": CLASSES}

SMALL = {
    "cnn": cnn(**SIZES, width=16, strides=(1, 2, 1)),
    "cnn, learned norm": cnn(**SIZES, width=(32, 16), strides=(1, 2), learned_norm=True),
    "mixer": mixer(**SIZES, patch=2, channels=3, depth=2),
    "mixer, not residual, learned norm": mixer(
        **SIZES, patch=2, channels=3, depth=1, token_hidden=5, channel_hidden=2, residual=False, learned_norm=True
    ),
    "mlp1": mlp1(**SIZES, width=16, depth=4, strides=(1, 2)),
    "mlp2": mlp2(**SIZES, first_channels=8, width=16, depth=3),
}


def batch(network, n=5, seed=0):
    """Images `(n, M_in)` and labels `(n,)`."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, np.prod(network.image))), rng.integers(0, network.classes, n)
