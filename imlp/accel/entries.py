"""The default, for nouns whose diagonals are not known: their entries of `W`, by index.

What fills which entry is found on the host, once per noun, by asking its `matrix` (`imlp.spec.linear_map`). From then
on everything is a gather or a scatter, on any device, and autograd goes through.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse as scipy_sparse
from torch import Tensor

from imlp.accel import views
from imlp.accel.chain import has_diagonals
from imlp.errors import SpecError
from imlp.spec import Chain, Spec
from imlp.spec.base import linear_map_of, own_map, own_matrix, split
from imlp.spec.linear_map import LinearMap

Arrays = Mapping[str, Tensor]


class Entries(NamedTuple):
    """Entry `entry[t]`, at `place[entry[t]]` of the flat matrix, has the term `constant[t] * w[number[t]]`."""

    place: Tensor  # (E,)
    entry: Tensor | None  # (T,); None if each entry has one term
    number: Tensor  # (T,)
    constant: Tensor  # (T,)


def filled(spec: Spec, arrays: Arrays, like: Tensor) -> tuple[Tensor, Tensor]:
    """Where in the flat matrix the entries stand that can differ from zero, and what they are.

    A layer without parameters has the type and device of `like`.
    """
    if not arrays or not spec.linear:
        return _asked(spec, arrays, next(iter(arrays.values()), like))
    numbers = flat(arrays)
    place, entry, number, constant = _entries(spec, numbers.dtype, numbers.device)
    terms = numbers[number] * constant
    return place, terms if entry is None else terms.new_zeros(len(place)).index_add(0, entry, terms)


def matrix(spec: Spec, arrays: Arrays, like: Tensor, *, sparse: bool = False) -> Tensor:
    place, values = filled(spec, arrays, like)
    m_out, m_in = spec.matrix_shape
    if sparse:
        return views.csr(place // m_in, place % m_in, values, spec)
    return values.new_zeros(m_out * m_in).index_put((place,), values).view(m_out, m_in)


def apply(spec: Spec, arrays: Arrays, x: Tensor) -> Tensor:
    """`x W_P^T`: a sparse product where that pays and can be had."""
    m_out, m_in = spec.matrix_shape
    place, values = filled(spec, arrays, like=x)
    known = x.device.type in ("cpu", "cuda") and x.dtype in (torch.float32, torch.float64)
    if 8 * len(place) > m_out * m_in or not known or torch.compiler.is_compiling():
        return x @ values.new_zeros(m_out * m_in).index_put((place,), values).view(m_out, m_in).T
    indices = torch.stack([place // m_in, place % m_in])
    w_p = torch.sparse_coo_tensor(indices, values, spec.matrix_shape, check_invariants=False, is_coalesced=True)
    return torch.sparse.mm(w_p, x.T).T


def adjoint(spec: Spec, dense: Tensor) -> Tensor:
    """The sums of `constant * entry` by number, `(n,)`; in float64 where there is such a type."""
    wide = torch.float32 if dense.device.type == "mps" else torch.float64
    place, entry, number, constant = _entries(spec, wide, dense.device)
    values = dense.reshape(-1)[place].to(wide)
    terms = constant * (values if entry is None else values[entry])
    return terms.new_zeros(spec.n_weights).index_add_(0, number, terms).to(dense.dtype)


def project(spec: Spec, dense: Tensor) -> Tensor:
    """Least squares: sums over the squares of the constants; on the host with LSQR if numbers share an entry."""
    found = host_map(spec)
    if found.one_each:
        squares = torch.as_tensor(np.where(found.squares > 0, found.squares, 1))
        return adjoint(spec, dense) / squares.to(dense)
    return torch.as_tensor(found.project(dense.detach().cpu().double().numpy())).to(dense)


@lru_cache(maxsize=64)
def host_map(spec: Spec) -> LinearMap:
    if not isinstance(spec, Chain):
        return own_map(spec)
    return linear_map_of(spec, lambda w: _host_matrix(spec, split(spec, w)))


def _host_matrix(spec: Spec, arrays: Mapping[str, np.ndarray]) -> scipy_sparse.csr_array:
    """The matrix of a noun or, part by part, of a chain, in float64."""
    if isinstance(spec, Chain):
        product = _host_matrix(spec.parts[0], arrays if spec.parts[0].parameters else {})
        for part in spec.parts[1:]:
            product = _host_matrix(part, arrays if part.parameters else {}) @ product
        return product
    if not has_diagonals(spec):
        return own_matrix(spec, arrays)
    rows, columns, numbers = views.coordinates(spec)
    values = next(iter(arrays.values()), np.ones(1)).ravel()[numbers]
    return scipy_sparse.csr_array((values, (rows, columns)), shape=spec.matrix_shape)


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # autograd refuses what was made in such a mode
def _entries(spec: Spec, dtype: torch.dtype, device: torch.device) -> Entries:
    found = host_map(spec)
    A = found.A.tocoo()
    place = found.rows.astype(np.int64) * spec.matrix_shape[1] + found.columns
    single = bool((np.diff(found.A.indptr) == 1).all())
    entry = None if single else torch.as_tensor(A.row.astype(np.int64), device=device)
    number = torch.as_tensor(A.col.astype(np.int64), device=device)
    constant = torch.as_tensor(A.data).to(device, dtype)
    return Entries(torch.as_tensor(place, device=device), entry, number, constant)


def _asked(spec: Spec, arrays: Arrays, like: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of one matrix, without a map: that of a layer without parameters, or one that is not linear."""
    if torch.is_grad_enabled() and any(array.requires_grad for array in arrays.values()):
        problem = f"the matrix of {type(spec).__name__} is not linear in its parameters, so its gradient is not known"
        raise SpecError(problem, "pass them without requires_grad; such a layer cannot be trained")
    found = _host_matrix(spec, {name: array.detach().cpu().double().numpy() for name, array in arrays.items()})
    place = np.repeat(np.arange(found.shape[0], dtype=np.int64), np.diff(found.indptr)) * found.shape[1] + found.indices
    return torch.as_tensor(place, device=like.device), torch.as_tensor(found.data).to(like)


def flat(arrays: Arrays) -> Tensor:
    return torch.cat([array.reshape(-1) for array in arrays.values()])
