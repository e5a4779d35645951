"""The linear map from a layer's numbers to its matrix, found by asking for the matrix of a few numbers.

At the places that can differ from zero, `matrix(w) = A w` with a sparse `A` of one row per place. In most nouns each
entry is one number of the weight, at most times a constant; the matrices of (1, 1, ...) and of (1, 2, ...) tell which.
Otherwise column `k` of `A` is the matrix of the `k`-th unit vector, one call each. In either case the matrix of random
numbers has to agree: a matrix that is not linear is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from scipy import sparse

Pair = tuple[int, int]
Matrix = Callable[[np.ndarray], sparse.csr_array]
EXACT_RANK = 4096  # numbers; of more, those that fill an entry are counted


@dataclass(frozen=True, eq=False)
class LinearMap:
    """`matrix(w)` is `A w` at `(rows, columns)`, in the order of the rows, and zero elsewhere."""

    shape: Pair
    rows: np.ndarray  # (E,)
    columns: np.ndarray  # (E,)
    A: sparse.csr_array  # (E, n)

    @cached_property
    def one_each(self) -> bool:
        """Whether each entry is one number times a constant, so that no two numbers share an entry."""
        return bool((np.diff(self.A.indptr) <= 1).all())

    @cached_property
    def squares(self) -> np.ndarray:
        """For each number the sum of the squares of its constants: how many entries it fills, if they are 1."""
        return np.asarray(self.A.power(2).sum(axis=0)).ravel()

    @cached_property
    def rank(self) -> int:
        used = self.squares > 0
        if self.one_each or used.sum() > EXACT_RANK:
            return int(used.sum())
        return int(np.linalg.matrix_rank((self.A.T @ self.A).toarray(), hermitian=True))

    @cached_property
    def indptr(self) -> np.ndarray:
        """Where each row's entries begin, as in a CSR matrix."""
        return np.searchsorted(self.rows, np.arange(self.shape[0] + 1))

    def matrix(self, w: np.ndarray) -> sparse.csr_array:
        return sparse.csr_array((self.A @ w, self.columns, self.indptr), shape=self.shape)

    def adjoint(self, dense: np.ndarray) -> np.ndarray:
        """`A^T`, from a matrix to `(n,)`."""
        return np.asarray(self.A.T @ dense[self.rows, self.columns])

    def project(self, dense: np.ndarray) -> np.ndarray:
        """`argmin_w |dense - matrix(w)|`, the smallest if there are several: a mean per number, or LSQR."""
        if self.one_each:
            return self.adjoint(dense) / np.where(self.squares > 0, self.squares, 1)
        return self._least_squares(dense[self.rows, self.columns])

    def seen(self, w: np.ndarray) -> np.ndarray:
        """`project(matrix(w))`: `w (n,)` without what no matrix shows, such as taps that never meet the image."""
        if self.one_each:
            return np.where(self.squares > 0, w, 0.0)
        return w if self.rank == len(w) else self._least_squares(self.A @ w)

    def _least_squares(self, values: np.ndarray) -> np.ndarray:
        from scipy.sparse.linalg import lsqr  # most nouns do not need it, and it takes a while to import

        most = 100 + 20 * self.A.shape[1]  # rounding can make it take more steps than there are numbers
        return np.asarray(lsqr(self.A, values, atol=0, btol=0, conlim=0, iter_lim=most)[0])


def find_map(shape: Pair, matrix: Matrix, n: int) -> LinearMap | None:
    """The map of `matrix`, which makes `(M_out, M_in)` of `n` numbers; None if it is not linear in them."""
    probe = np.random.default_rng(0).uniform(0.5, 1.5, n)
    expected = matrix(probe)
    for find in (_numbered, _column_by_column):
        map_ = find(shape, matrix, n)
        if map_ is not None and abs(map_.matrix(probe) - expected).max() <= 1e-9 * max(1.0, abs(expected).max()):
            return map_
    return None


def filled_map(shape: Pair, rows: np.ndarray, columns: np.ndarray, numbers: np.ndarray, n: int) -> LinearMap:
    """The map that adds number `numbers[t]` to the entry `(rows[t], columns[t])`."""
    places, place = np.unique(rows * shape[1] + columns, return_inverse=True)
    A = sparse.csr_array((np.ones(len(numbers)), (place, numbers)), shape=(len(places), n))
    return LinearMap(shape, places // shape[1], places % shape[1], A)


def _numbered(shape: Pair, matrix: Matrix, n: int) -> LinearMap | None:
    """The map if each entry is one number times a constant; nonsense or None if not."""
    ones, numbers = (entries(matrix(w)) for w in (np.ones(n), np.arange(1.0, n + 1)))
    if ones.nnz != numbers.nnz or (ones.indices != numbers.indices).any() or (ones.indptr != numbers.indptr).any():
        return None
    number = np.rint(numbers.data / ones.data).astype(int) - 1
    if ((number < 0) | (number >= n)).any():
        return None
    A = sparse.csr_array((ones.data, number, np.arange(ones.nnz + 1)), shape=(ones.nnz, n))
    rows = np.repeat(np.arange(shape[0]), np.diff(ones.indptr))
    return LinearMap(shape, rows, ones.indices, A)


def _column_by_column(shape: Pair, matrix: Matrix, n: int) -> LinearMap:
    units = (np.eye(1, n, k).ravel() for k in range(n))
    columns = [entries(matrix(unit)).reshape((1, prod(shape))) for unit in units]
    whole = sparse.vstack(columns, format="csc") if columns else sparse.csc_array((0, prod(shape)))
    places = np.flatnonzero(np.diff(whole.indptr))
    A = sparse.csr_array(whole[:, places].T)
    return LinearMap(shape, places // shape[1], places % shape[1], A)


def entries(matrix: sparse.csr_array) -> sparse.csr_array:
    """With each entry once, in order, and none that is zero."""
    matrix = matrix.copy()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix
