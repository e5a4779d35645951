"""The verbs on any spec, through views: `W_P` itself is only made where it is asked for.

`interpolate` scales `W` once and adds the small weight to its diagonals; `project` averages over them; `apply` runs the
layer natively. On CUDA, `interpolate` is one fused kernel where CuPy works; on the CPU, for a convolution and where
there is a compiler, one pass in C.
"""

import warnings
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imlp import checks
from imlp.accel import convolution, kernels, patchify, rows, shared, transpose
from imlp.accel.chain import diagonals
from imlp.errors import ArrayError
from imlp.spec import Chain, Conv, Patchify, Shared, Spec, Transpose


def matrix(spec: Spec, weight: Tensor | None = None, *, layout: str | None = None) -> Tensor:
    """`W_P (M_out, M_in)` as a dense tensor, or as a sparse CSR tensor with `layout="sparse"`, for the large ones.

    It has the weight's dtype and device; a permutation has torch's default ones.

    >>> matrix(Shared(2, 1, 1), torch.tensor([[7.0]]))
    tensor([[7., 0.],
            [0., 7.]])
    """
    checks.layout_known(layout)
    check_weight(spec, weight)
    weight = torch.ones(()) if weight is None else weight.resolve_neg()
    if layout == "sparse":
        return _sparse(spec, weight.contiguous())
    w_p = weight.new_zeros(spec.matrix_shape)
    for entries, numbers in _views(w_p, spec, weight):
        entries.copy_(numbers)
    return w_p


def expand_bias(spec: Spec, bias: Tensor | None) -> Tensor:
    """The dense layer's bias `(M_out,)`; zeros where there is none.

    >>> expand_bias(Shared(2, 1, 2), torch.tensor([3.0, 5.0]))
    tensor([3., 5., 3., 5.])
    """
    checks.is_spec(spec)
    if bias is None:
        return torch.zeros(spec.matrix_shape[0])
    check_weight(spec, bias, "bias")
    parts = spec.parts if isinstance(spec, Chain) else (spec,)
    core = next(k for k, part in enumerate(parts) if part.n_parameters)
    match parts[core]:
        case Conv(out_shape=(_, h_out, w_out)):
            expanded = bias.repeat_interleave(h_out * w_out)
        case Shared(rows=rows):
            expanded = bias.repeat(rows)
    return expanded if core + 1 == len(parts) else _apply(Chain(*parts[core + 1 :]), None, None, expanded[None])[0]


def apply(spec: Spec, weight: Tensor | None, bias: Tensor | None, x: Tensor) -> Tensor:
    """The layer on a batch `x (N, M_in)`, natively: `conv2d`, `linear`, or a reshape; autograd goes through.

    >>> apply(Transpose(2, 3), None, None, torch.arange(6.0)[None])
    tensor([[0., 3., 1., 4., 2., 5.]])
    """
    check_tensor(x, "the input")
    checks.input_fits(spec, x.shape)
    check_weight(spec, weight, beside=x)
    if bias is not None:
        check_weight(spec, bias, "bias", beside=x)
    return _apply(spec, weight, bias, x)


def _apply(spec: Spec, weight: Any, bias: Tensor | None, x: Tensor) -> Tensor:
    match spec:
        case Conv():
            return convolution.apply(spec, weight, bias, x)
        case Patchify():
            return patchify.apply(spec, x)
        case Transpose():
            return transpose.apply(spec, x)
        case Shared():
            return shared.apply(spec, weight, bias, x)
        case Chain():
            for part in spec.parts:
                x = _apply(part, weight, bias, x)
            return x
    raise TypeError(f"{type(spec).__name__} is not a spec of imlp.spec")


@torch.no_grad()
def interpolate(dense: Tensor, spec: Spec, weight: Tensor | None, alpha: Any, *, mode: str = "interpolate") -> Tensor:
    """`W <- (1 - alpha) W + alpha W_P`, or `W + alpha W_P` with `mode="add"`: in place, and returned.

    `dense` is one contiguous matrix `(M_out, M_in)`, or a stack of lanes `(L, M_out, M_in)` with one alpha for all or
    each. Nothing larger than the small weight is allocated. Bad input is refused before `dense` is touched. A weight
    that is a part of `dense` counts as it was before the call.

    >>> interpolate(torch.ones(2, 2), Shared(2, 1, 1), torch.tensor([[3.0]]), alpha=0.5)
    tensor([[2.0000, 0.5000],
            [0.5000, 2.0000]])
    """
    _check_dense(spec, dense)
    check_weight(spec, weight, beside=dense)
    checks.mode_known(mode)
    if dense.is_neg():
        remedy = "pass W.resolve_neg() and keep the result"
        raise ArrayError("W has torch's negative bit: its memory holds the negated numbers", remedy)
    alphas = checks.alphas(alpha, None if dense.ndim == 2 else len(dense))
    weight = dense.new_ones(()) if weight is None else weight.resolve_neg()
    weight = weight.clone() if _share_memory(dense, weight) else weight
    fused, compiled = kernels.usable(dense), rows.usable(dense, spec)
    for lane, a in zip(dense if dense.ndim == 3 else (dense,), alphas, strict=True):
        if a == 0:
            continue
        keep = 1 - a if mode == "interpolate" else 1.0
        if fused:
            kernels.interpolate(lane, spec, weight.contiguous(), keep, a)
        elif compiled:
            rows.interpolate(lane, spec, weight, keep, a)
        else:
            _interpolate(lane, spec, weight, keep, a)
    return dense


def _interpolate(dense: Tensor, spec: Spec, weight: Tensor, keep: float, alpha: float) -> None:
    """`W <- keep W + alpha W_P`: one pass that scales, and one addition per diagonal."""
    if keep == 0:
        dense.zero_()
    elif keep != 1:
        dense.mul_(keep)
    for entries, numbers in _views(dense, spec, weight):
        entries.add_(numbers, alpha=alpha)


@torch.no_grad()
def adjoint(spec: Spec, dense: Tensor) -> Any:
    """The transpose of the linear map `w -> matrix(w)`: for each number of the weight, the sum of the entries it fills.

    It turns a gradient of `W (M_out, M_in)` into one of `w`. A stack of lanes returns a stack; None for a permutation.

    >>> adjoint(Shared(2, 1, 1), torch.tensor([[1.0, 9.0], [9.0, 3.0]]))
    tensor([[4.]])
    """
    check_tensor(dense, "W")
    checks.dense_fits(spec, dense.shape)
    _check_float(dense, "W")
    if spec.weight_shape is None:
        return None
    lanes = dense if dense.ndim == 3 else dense[None]
    weights = dense.new_zeros((len(lanes), *spec.weight_shape))
    for lane, weight in zip(lanes, weights, strict=True):
        for entries, numbers in _views(lane.resolve_neg().contiguous(), spec, weight):
            repeated = [axis for axis, step in enumerate(numbers.stride()) if step == 0]
            if repeated:  # one number for many entries: add them up, and give it the sum
                entries = entries.sum(repeated)
                numbers = numbers[tuple(slice(None) if step else 0 for step in numbers.stride())]
            numbers.add_(entries)
    return weights.view(*dense.shape[:-2], *spec.weight_shape)


@torch.no_grad()
def adjoint_bias(spec: Spec, dense_bias: Tensor) -> Any:
    """The same for `b -> expand_bias(b)`: from `(M_out,)`, or `(lanes, M_out)`, to the small bias.

    >>> adjoint_bias(Shared(2, 1, 2), torch.tensor([3.0, 5.0, 1.0, 1.0]))
    tensor([4., 6.])
    """
    check_tensor(dense_bias, "the bias")
    checks.dense_bias_fits(spec, dense_bias.shape)
    _check_float(dense_bias, "the bias")
    if spec.bias_shape is None:
        return None
    return dense_bias[..., _outputs_by_bias(spec, dense_bias.device)].sum(-1)


@lru_cache(maxsize=1024)
def _outputs_by_bias(spec: Spec, device: torch.device) -> Tensor:
    """For each number of the bias the outputs that it is added to, all equally many: `(bias, outputs)`."""
    (n,) = spec.bias_shape or (0,)
    return expand_bias(spec, torch.arange(n, dtype=torch.float64)).argsort(stable=True).view(n, -1).to(device)


@torch.no_grad()
def project(dense: Tensor, spec: Spec) -> Tensor | None:
    """The weight whose matrix is nearest in least squares: for each number of it, the mean of the entries it fills.

    A kernel tap that never meets the image is given 0; None for a permutation. A stack of lanes returns a stack.

    >>> project(torch.tensor([[1.0, 9.0], [9.0, 3.0]]), Shared(2, 1, 1))
    tensor([[2.]])
    """
    _check_dense(spec, dense)
    weights = adjoint(spec, dense)
    return None if weights is None else weights.div_(entries_filled(spec, dense.dtype, dense.device).clamp(min=1))


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


def place(array: Any, *, device: Any = None) -> Tensor:
    """A NumPy array as a tensor on the device, in the type that it has; the host does not wait for the copy."""
    try:
        tensor = torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArrayError(f"this is no array of numbers: {error}", "give a NumPy array or a tensor") from error
    kind = torch.device(device or "cpu").type
    if kind == "cuda":
        tensor = tensor.pin_memory()
    if kind == "mps" and tensor.dtype == torch.float64:
        tensor = tensor.float()  # it has no float64
    return tensor.to(device or "cpu", non_blocking=True)


def to_numpy(array: Tensor) -> np.ndarray:
    """A dense ndarray, from any device, dtype and layout (bfloat16, which NumPy lacks, as float32)."""
    if not isinstance(array, Tensor):
        raise ArrayError(f"to_numpy was given a {type(array).__name__}", "give a torch.Tensor")
    array = array.detach().cpu()
    array = (array if array.layout == torch.strided else array.to_dense()).resolve_conj().resolve_neg()
    return (array.float() if array.dtype == torch.bfloat16 else array).numpy()


def _views(dense: Tensor, spec: Spec, weight: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For each diagonal its entries of one contiguous matrix, and the weight's numbers that belong there, as views."""
    entry, number = dense.storage_offset(), weight.storage_offset()
    for sizes, steps, start, own_steps, own_start in _strides(spec, weight.stride()):
        yield dense.as_strided(sizes, steps, entry + start), weight.as_strided(sizes, own_steps, number + own_start)


@lru_cache(maxsize=1024)
def _strides(
    spec: Spec, own: tuple[int, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], int]]:
    """For each diagonal: its sizes, then steps and start in `W`, then steps and start in a weight of strides `own`."""
    m_in, shape = spec.matrix_shape[1], spec.weight_shape or ()

    def in_weight(flat: int) -> int:
        """Where the `flat`-th number is stored. For steps too: an axis keeps to one dimension of the weight."""
        return sum(int(digit) * step for digit, step in zip(np.unravel_index(flat, shape), own, strict=True))

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


def _sparse(spec: Spec, weight: Tensor) -> Tensor:
    """CSR from the coordinates of all diagonals; memory grows with the non-zeros, not with the matrix."""
    nothing = torch.empty(0, dtype=torch.int64)
    rows, columns, values = [nothing], [nothing], [weight.new_empty(0)]  # a kernel may miss the image altogether
    for diagonal in diagonals(spec):
        sizes = [axis.size for axis in diagonal.axes]
        row, column = torch.tensor(diagonal.row), torch.tensor(diagonal.column)
        for axis in diagonal.axes:
            index = torch.arange(axis.size)
            row, column = row[..., None] + index * axis.row, column[..., None] + index * axis.column
        rows.append(row.flatten())
        columns.append(column.flatten())
        steps = [axis.weight for axis in diagonal.axes]
        values.append(weight.as_strided(sizes, steps, weight.storage_offset() + diagonal.weight).flatten())
    indices = torch.stack([torch.cat(rows), torch.cat(columns)]).to(weight.device)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)  # torch calls the layout a beta; it does what we need
        coordinates = torch.sparse_coo_tensor(indices, torch.cat(values), spec.matrix_shape, check_invariants=False)
        return coordinates.coalesce().to_sparse_csr()


def _share_memory(one: Tensor, other: Tensor) -> bool:
    """Whether the storages overlap, also as arrays of NumPy that torch does not know to be one."""
    if one.device != other.device:
        return False
    (start, size), (begin, length) = ((s.data_ptr(), s.nbytes()) for s in map(Tensor.untyped_storage, (one, other)))
    return start < begin + length and begin < start + size


def _check_dense(spec: Spec, dense: Tensor) -> None:
    check_tensor(dense, "W")
    checks.dense_fits(spec, dense.shape)
    _check_float(dense, "W")
    lanes = dense if dense.ndim == 3 else (dense,)  # lanes may have gaps between them
    if not all(lane.is_contiguous() for lane in lanes):
        raise ArrayError(f"W of strides {dense.stride()} is not contiguous", "pass W.contiguous() and keep the result")


def check_weight(spec: Spec, weight: Tensor | None, what: str = "weight", beside: Tensor | None = None) -> None:
    """Refuse a weight or bias (`what`) that is not the spec's, or not like `beside`."""
    if weight is not None:
        check_tensor(weight, what)
    checks.weight_fits(spec, None if weight is None else weight.shape, what)
    if weight is None:
        return
    _check_float(weight, what)
    if beside is not None and weight.device != beside.device:
        remedy = f"move it with .to({str(beside.device)!r})"
        raise ArrayError(f"{what} on {weight.device}, the rest on {beside.device}", remedy)
    if beside is not None and weight.dtype != beside.dtype:
        remedy = f"convert it with .to({beside.dtype})"
        raise ArrayError(f"{what} of {weight.dtype}, the rest of {beside.dtype}", remedy)


def check_tensor(array: Any, what: str) -> None:
    """Refuse what is not a dense tensor."""
    if not isinstance(array, Tensor):
        kind = "None" if array is None else f"a {type(array).__name__}"
        raise ArrayError(f"{what} is {kind}, not a tensor", "give a torch.Tensor: torch.as_tensor makes one")
    if array.layout != torch.strided:
        raise ArrayError(f"{what} has the layout {array.layout}", "pass it as a dense tensor: .to_dense()")


def _check_float(array: Tensor, what: str) -> None:
    if not array.is_floating_point():
        raise ArrayError(f"{what} of {array.dtype}", "use a floating-point type, for example torch.float32")
