"""A small residual network, which the paper does not have: the order of operations of ResNet, at the S-CNN's width."""

from collections.abc import Sequence

from imlp import kinds
from imlp.networks.language import Activation, Layer, Mean, Network, Norm, Operation, Residual
from imlp.networks.paper import as_image, convolution
from imlp.spec import Conv


def resnet(
    image: Sequence[int] = kinds.IMAGE,
    classes: int = 10,
    *,
    width: int = 1024,
    stem_stride: int = 2,
    strides: Sequence[int] = (1, 2, 2),
    kernel: int = 3,
    learned_norm: bool = False,
) -> Network:
    """A convolution, a residual block of two for each of `strides`, the mean over the pixels that are left.

    As in He et al. 2016, ReLU follows the addition, and where a block has a stride its shortcut is a convolution of
    one pixel with that stride. Every convolution has `width` outputs in all; LayerNorm stands for BatchNorm, whose
    statistics a matrix cannot hold.
    """

    relu = Activation("relu")

    def normed(name: str, spec: Conv) -> tuple[Layer, Norm]:
        return Layer(name, spec, "conv"), Norm(f"{name}.norm", width, learned_norm)

    before = convolution("stem", as_image(image), width, kernel, stem_stride)
    body: list[Operation] = [*normed("stem", before), relu]
    for n, stride in enumerate(strides, start=1):
        name, shape, shortcut = f"block{n}", before.out_shape, None
        first = convolution(f"{name}.conv1", shape, width, kernel, stride)
        second = convolution(f"{name}.conv2", first.out_shape, width, kernel, 1)
        if stride != 1:
            shortcut = Layer(f"{name}.shortcut", convolution(f"{name}.shortcut", shape, width, 1, stride), "conv")
        branch = (*normed(f"{name}.conv1", first), relu, *normed(f"{name}.conv2", second))
        body += [Residual(name, branch, shortcut), relu]
        before = second
    _, h, w = before.out_shape
    body.append(Mean(h * w, channels_first=True))
    return Network("resnet", as_image(image), classes, tuple(body))
