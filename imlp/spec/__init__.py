"""The nouns: what a structured linear layer is. Geometry only: no backend.

A spec is frozen and checks itself when it is made, so everything below it may assume valid input. Vectors are
row-major over (channel, height, width) or (row, column), and `vec(y) = vec(x) W^T` with `W` of `matrix_shape`
`(M_out, M_in)`. A noun of your own is a class derived from `Spec`, whose page says what it needs.

>>> conv = Conv((3, 32, 32), out_channels=4, kernel=3, stride=2, padding=1)
>>> conv.matrix_shape, conv.weight_shape, conv.nnz
((1024, 3072), (4, 3, 3, 3), 26508)
"""

from imlp.spec.base import Pair, Parameter, Shape, Spec
from imlp.spec.chain import Chain
from imlp.spec.mixer import Patchify, Permutation, Shared, Transpose
from imlp.spec.window import Conv, Local, Window
