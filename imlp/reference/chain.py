"""A prior layer of several parts is the product of their matrices (equation 5).

    vec(y) = vec(x) L^T W~^T        W_P = W~ L,   L one of P, T, I

Errata: appendix B announces `L = T` twice, the first is `L = P`; and a layer marked with a double dagger in table 3
transposes its *output*: there `W_P = T W~`.
"""

from functools import reduce

from scipy import sparse


def matrix(matrices: list[sparse.csr_array]) -> sparse.csr_array:
    """The product, for matrices in the order that data flows through them: the last one is leftmost.

    >>> from imlp.reference import matrix as matrix_of, shared, transpose
    >>> from imlp.spec import Shared, Transpose
    >>> w = [[3.0, 5.0]]
    >>> matrix([matrix_of(Transpose(2, 2)), matrix_of(Shared(2, 2, 1), w)]).toarray()  # W~ T
    array([[3., 0., 5., 0.],
           [0., 3., 0., 5.]])
    """
    return reduce(lambda product, part: part @ product, matrices)
