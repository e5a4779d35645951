"""Transpose: a reshape. Input digits `(row, column)`, output digits `(column, row)`."""

from torch import Tensor

from imlp.accel.diagonals import Digit
from imlp.spec import Transpose


def apply(spec: Transpose, x: Tensor) -> Tensor:
    return x.view(-1, spec.rows, spec.cols).transpose(1, 2).flatten(1)


def digits(spec: Transpose) -> list[Digit]:
    return [Digit(spec.rows, input=spec.cols, output=1), Digit(spec.cols, input=1, output=spec.rows)]
