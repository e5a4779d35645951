"""The parts that the bias meter divides a matrix into, and those of a random one: geometry only."""

from imlp.spec.base import Pair

PARTS = ("shared", "local", "outside")


def random_parts(rank: int, nnz: int, shape: Pair) -> dict[str, float]:
    """What is expected of a matrix of independent random numbers: `shared` is rank / N, with `local` it is nnz / N.

    >>> random_parts(rank=1, nnz=2, shape=(2, 2))
    {'shared': 0.25, 'local': 0.25, 'outside': 0.5}
    """
    n = shape[0] * shape[1]
    return dict(zip(PARTS, (rank / n, (nnz - rank) / n, (n - nnz) / n), strict=True))
