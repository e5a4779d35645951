"""A convolution with a separate kernel at each position: one product per position, and the diagonals of `Conv`.

Along a diagonal the number changes too, from position to position.
"""

from math import prod

from torch import Tensor
from torch.nn import functional

from imlp.accel import convolution
from imlp.accel.diagonals import Diagonal
from imlp.spec import Local


def apply(spec: Local, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    (p, o, c, *_), g = spec.weight_shape, spec.groups
    images = x.view(-1, *spec.in_shape)  # (N, c_in, h_in, w_in)
    patches = functional.unfold(images, spec.kernel, spec.dilation, spec.padding, spec.stride)  # (N, c_in k k, p)
    patches = patches.view(len(x), g, -1, p).permute(3, 1, 0, 2)  # (p, g, N, c k k)
    kernels = weight.reshape(p, g, o // g, c * prod(spec.kernel))
    y = (patches @ kernels.mT).permute(2, 1, 3, 0).reshape(len(x), -1)  # (N, g, o/g, p)
    return y if bias is None else y + bias


def diagonals(spec: Local) -> list[Diagonal]:
    return convolution.diagonals(spec, size=prod(spec.weight_shape[1:]))
