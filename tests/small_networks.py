"""Networks of every kind, small enough to test every number in them, and batches for them."""

import numpy as np

from imlp.networks import Activation, DenseOnly, Layer, Mean, Network, Norm, Residual, cnn, mixer, mlp1, mlp2, resnet
from imlp.spec import Conv, Shared

IMAGE, CLASSES = (2, 4, 4), 3
SIZES = {"image": IMAGE, "classes": CLASSES}


def in_another_order():
    """What no network of the package does: a norm first or after an activation, pre-activation, nested residuals."""
    relu, gelu = Activation("relu"), Activation("gelu")
    inner = Residual("inner", (Norm("inner.norm", 4, True), relu, Layer("inner", Shared(4, 2, 2), "shared")))
    layers = Layer("a", Shared(4, 2, 3), "shared"), gelu, Layer("b", Shared(4, 3, 2), "shared")
    outer = Residual("outer", (relu, *layers, inner))
    up = Layer("up", Conv(IMAGE, 2, kernel=3, stride=2, padding=1), "conv")
    stem = Residual("stem", (relu, up, relu), Layer("beside", Conv(IMAGE, 2, kernel=2, stride=2), "conv"))
    extra = DenseOnly((Layer("extra", Shared(1, 8, 8), "dense", interpolated=False), relu))
    body = (Norm("first.norm", 16, True), stem, outer, gelu, Norm("last.norm", 8), extra, Mean(2, True), Mean(2))
    return Network("mine", IMAGE, CLASSES, body)


HALVES = (Layer("halves", Shared(2, 16, 2), "shared"),)
SMALL = {
    "cnn": cnn(**SIZES, width=16, strides=(1, 2, 1)),
    "cnn, learned norm": cnn(**SIZES, width=(32, 16), strides=(1, 2), learned_norm=True),
    "mixer": mixer(**SIZES, patch=2, channels=3, depth=2),
    "mixer, not residual, learned norm": mixer(
        **SIZES, patch=2, channels=3, depth=1, token_hidden=5, channel_hidden=2, residual=False, learned_norm=True
    ),
    "mlp1": mlp1(**SIZES, width=16, depth=4, strides=(1, 2)),
    "mlp2": mlp2(**SIZES, first_channels=8, width=16, depth=3),
    "resnet": resnet(**SIZES, width=16, stem_stride=1, strides=(2,)),
    "resnet, learned norm": resnet(**SIZES, width=8, strides=(1,), learned_norm=True),
    "in another order": in_another_order(),
    "norm first": Network("first", IMAGE, CLASSES, (Norm("n", 16), Activation("relu"), *HALVES, Activation("relu"))),
}


def batch(network, n=5, seed=0):
    """Images `(n, M_in)` and labels `(n,)`."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, np.prod(network.image))), rng.integers(0, network.classes, n)
