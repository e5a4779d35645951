"""Patchify: a reshape. Input digits `(channel, R, r, C, s)`, output digits `(R, C, channel, r, s)`."""

from torch import Tensor

from imlp.accel.diagonals import Digit
from imlp.spec import Patchify


def apply(spec: Patchify, x: Tensor) -> Tensor:
    (h, w), P = spec.grid, spec.patch
    return x.view(-1, spec.channels, h, P, w, P).permute(0, 2, 4, 1, 3, 5).flatten(1)


def digits(spec: Patchify) -> list[Digit]:
    (h, w), P, c, W = spec.grid, spec.patch, spec.channels, spec.width
    return [
        Digit(h, input=P * W, output=w * c * P * P),
        Digit(w, input=P, output=c * P * P),
        Digit(c, input=spec.height * W, output=P * P),
        Digit(P, input=W, output=P),
        Digit(P, input=1, output=1),
    ]
