"""The entries of `W` that a prior fills, as strided views: one for each of its diagonals, with no index arrays."""

import warnings
from collections.abc import Iterator
from functools import lru_cache
from math import prod

import numpy as np
import torch
from torch import Tensor

from imlp.accel.chain import diagonals
from imlp.spec import Spec


def views(dense: Tensor, spec: Spec, weight: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For each diagonal its entries of one contiguous matrix, and the weight's numbers that belong there, as views."""
    entry, number = dense.storage_offset(), weight.storage_offset()
    for sizes, steps, start, own_steps, own_start in _strides(spec, weight.stride()):
        yield dense.as_strided(sizes, steps, entry + start), weight.as_strided(sizes, own_steps, number + own_start)


@lru_cache(maxsize=1024)
def _strides(
    spec: Spec, strides: tuple[int, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], int]]:
    """For each diagonal: its sizes, then steps and start in `W`, and steps and start in a weight of such `strides`."""
    m_in, shape = spec.matrix_shape[1], spec.weight_shape or ()

    def in_weight(flat: int) -> int:
        """Where the `flat`-th number is stored. For steps too: an axis keeps to one dimension of the weight."""
        return sum(int(digit) * step for digit, step in zip(np.unravel_index(flat, shape), strides, strict=True))

    return [
        (
            tuple(axis.size for axis in diagonal.axes),
            tuple(axis.row * m_in + axis.column for axis in diagonal.axes),
            diagonal.row * m_in + diagonal.column,
            tuple(in_weight(axis.weight) for axis in diagonal.axes),
            in_weight(diagonal.weight),
        )
        for diagonal in diagonals(spec)
    ]


def coordinates(spec: Spec) -> np.ndarray:
    """Row, column and number of the weight for each entry, `(3, E)`; memory grows with the non-zeros alone."""
    found = [np.zeros((3, 0), np.int64)]  # a kernel may miss the image altogether
    for diagonal in diagonals(spec):
        places = np.array([[diagonal.row], [diagonal.column], [diagonal.weight]])
        for axis in diagonal.axes:
            steps = np.outer((axis.row, axis.column, axis.weight), np.arange(axis.size))  # (3, size)
            places = (places[:, :, None] + steps[:, None]).reshape(3, -1)
        found.append(places)
    return np.concatenate(found, axis=1)


def csr(rows: Tensor, columns: Tensor, values: Tensor, spec: Spec) -> Tensor:
    """The sparse matrix with these entries, in any order."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)  # torch calls the layout a beta; it does what we need
        indices = torch.stack([rows, columns])
        coordinates = torch.sparse_coo_tensor(indices, values, spec.matrix_shape, check_invariants=False)
        return coordinates.coalesce().to_sparse_csr()


@lru_cache(maxsize=1024)
def entries_filled(spec: Spec, dtype: torch.dtype, device: torch.device) -> Tensor:
    """How many entries of the matrix each number of the weight fills."""
    counts = np.zeros(prod(spec.weight_shape or ()))
    for diagonal in diagonals(spec):
        once = [axis for axis in diagonal.axes if axis.weight]
        steps = [axis.weight * counts.itemsize for axis in once]
        view = np.lib.stride_tricks.as_strided(counts[diagonal.weight :], [axis.size for axis in once], steps)
        view += prod(axis.size for axis in diagonal.axes if not axis.weight)
    return torch.as_tensor(counts.reshape(spec.weight_shape or ())).to(device, dtype)
