"""The verbs on any spec, through views: `W_P` itself is only made where it is asked for.

`interpolate` scales `W` once and adds the small weight to its diagonals; `project` averages over them; `apply` runs the
layer natively. On CUDA, `interpolate` is one fused kernel where CuPy works; on the CPU, for `Conv` and `Local` and
where there is a compiler, one pass in C. A noun without diagonals takes the default of `entries`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imlp import checks
from imlp.accel import convolution, entries, kernels, local, patchify, rows, shared, transpose
from imlp.accel.chain import has_diagonals, split_at_core
from imlp.accel.views import coordinates, csr, entries_filled, views
from imlp.errors import ArrayError
from imlp.spec import Chain, Conv, Local, Patchify, Permutation, Shared, Spec, Transpose
from imlp.spec.base import split

APPLY: dict[type[Spec], Callable[..., Tensor]] = {
    Conv: convolution.apply,
    Local: local.apply,
    Patchify: patchify.apply,
    Transpose: transpose.apply,
    Shared: shared.apply,
}


def matrix(spec: Spec, weight: Any = None, *, layout: str | None = None) -> Tensor:
    """`W_P (M_out, M_in)` as a dense tensor, or as a sparse CSR tensor with `layout="sparse"`, for the large ones.

    It has the weight's dtype and device; a permutation has torch's default ones.

    >>> matrix(Shared(2, 1, 1), torch.tensor([[7.0]]))
    tensor([[7., 0.],
            [0., 7.]])
    """
    checks.layout_known(layout)
    arrays = arrays_of(spec, weight)
    if not has_diagonals(spec):
        return entries.matrix(spec, arrays, like=torch.empty(0), sparse=layout == "sparse")
    numbers = next(iter(arrays.values())) if arrays else torch.ones(())
    if layout == "sparse":
        rows_, columns, places = torch.from_numpy(coordinates(spec)).to(numbers.device)
        return csr(rows_, columns, numbers.reshape(-1)[places], spec)
    w_p = numbers.new_zeros(spec.matrix_shape)
    for places, values in views(w_p, spec, numbers):
        places.copy_(values)
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
    _, core, after = split_at_core(spec)
    expanded = bias[_bias_index(core, bias.device)]
    return _apply(Chain(*after), {}, None, expanded[None])[0] if after else expanded


@lru_cache(maxsize=1024)
@torch.inference_mode(False)  # autograd refuses what was made in such a mode
def _bias_index(spec: Spec, device: torch.device) -> Tensor:
    return torch.as_tensor(np.array(spec.bias_index, dtype=np.int64), device=device)


def apply(spec: Spec, weight: Any, bias: Tensor | None, x: Tensor) -> Tensor:
    """The layer on a batch `x (N, M_in)`, natively: `conv2d`, `linear`, or a reshape; autograd goes through.

    >>> apply(Transpose(2, 3), None, None, torch.arange(6.0)[None])
    tensor([[0., 3., 1., 4., 2., 5.]])
    """
    check_tensor(x, "the input")
    checks.input_fits(spec, x.shape)
    arrays = arrays_of(spec, weight, beside=x)
    if bias is not None:
        check_weight(spec, bias, "bias", beside=x)
    return _apply(spec, arrays, bias, x)


def _apply(spec: Spec, arrays: dict[str, Tensor], bias: Tensor | None, x: Tensor) -> Tensor:
    if isinstance(spec, Chain):
        for part in spec.parts:
            x = _apply(part, arrays, bias, x) if part.parameters else _apply(part, {}, None, x)
        return x
    known = APPLY.get(type(spec))
    if known is not None:
        return known(spec, *arrays.values(), bias, x) if spec.parameters else known(spec, x)
    y = entries.apply(spec, arrays, x)
    return y if bias is None else y + expand_bias(spec, bias)


@torch.no_grad()
def interpolate(dense: Tensor, spec: Spec, weight: Any, alpha: Any, *, add: bool = False) -> Tensor:
    """`W <- (1 - alpha) W + alpha W_P`, or `W + alpha W_P` with `add`: in place, and returned.

    `dense` is one contiguous matrix `(M_out, M_in)`, or a stack of lanes `(L, M_out, M_in)` with one alpha for all or
    each. Nothing larger than the small weight is allocated. Bad input is refused before `dense` is touched. A weight
    that is a part of `dense` counts as it was before the call.

    >>> interpolate(torch.ones(2, 2), Shared(2, 1, 1), torch.tensor([[3.0]]), alpha=0.5)
    tensor([[2.0000, 0.5000],
            [0.5000, 2.0000]])
    """
    (alphas,) = check_changes(spec, dense, alpha)
    mix = _mixer(dense, spec, arrays_of(spec, weight, beside=dense))
    for lane, a in zip(dense if dense.ndim == 3 else (dense,), alphas, strict=True):
        if a != 0:
            mix(lane, 1.0 if add else 1 - a, a)
    return dense


def _mixer(dense: Tensor, spec: Spec, arrays: dict[str, Tensor]) -> Callable[[Tensor, float, float], Any]:
    """The fastest way there is to do `W <- keep W + alpha W_P`, for one matrix of those in `dense`."""
    if not has_diagonals(spec):
        place, values = entries.filled(spec, arrays, like=dense)
        return lambda lane, keep, alpha: _scale(lane, keep).view(-1).index_add_(0, place, values, alpha=alpha)
    numbers = next(iter(arrays.values())) if arrays else dense.new_ones(())
    w = numbers.clone() if _share_memory(dense, numbers) else numbers
    if kernels.usable(dense):
        return lambda lane, keep, alpha: kernels.interpolate(lane, spec, w.contiguous(), keep, alpha)
    way = rows.interpolate if rows.usable(dense, spec) else _interpolate
    return lambda lane, keep, alpha: way(lane, spec, w, keep, alpha)


def _interpolate(dense: Tensor, spec: Spec, weight: Tensor, keep: float, alpha: float) -> None:
    for places, numbers in views(_scale(dense, keep), spec, weight):
        places.add_(numbers, alpha=alpha)


def _scale(dense: Tensor, keep: float) -> Tensor:
    """`W <- keep W`, which clears with 0 what is not finite, too."""
    return dense.zero_() if keep == 0 else dense if keep == 1 else dense.mul_(keep)


@torch.no_grad()
def interpolate_bias(dense_bias: Tensor, spec: Spec, bias: Tensor | None, alpha: float, *, add: bool = False) -> Tensor:
    """The same for the bias, `b <- (1 - alpha) b + alpha b_P`; `b_P` is 0 where `bias` is None.

    >>> interpolate_bias(torch.ones(4), Shared(2, 1, 2), torch.tensor([3.0, 5.0]), alpha=0.5)
    tensor([2., 3., 2., 3.])
    """
    alpha = check_bias_change(spec, dense_bias, alpha)
    check_weight(spec, bias, "bias", beside=dense_bias) if bias is not None else None
    expanded = None if bias is None else expand_bias(spec, bias)  # before the change: it may be a part of `dense_bias`
    if not add:
        dense_bias.mul_(1 - alpha)
    return dense_bias if expanded is None else dense_bias.add_(expanded, alpha=alpha)


@torch.no_grad()
def adjoint(spec: Spec, dense: Tensor) -> Any:
    """The transpose of the linear map `w -> matrix(w)`: for each number of the weight, the sum of the entries it fills.

    >>> adjoint(Shared(2, 1, 1), torch.tensor([[1.0, 9.0], [9.0, 3.0]]))
    tensor([[4.]])
    """
    _check_matrices(spec, dense)
    return _from_dense(spec, dense, _adjoint, entries.adjoint)


def _from_dense(
    spec: Spec, dense: Tensor, known: Callable[[Spec, Tensor], Tensor], default: Callable[[Spec, Tensor], Tensor]
) -> Any:
    """The numbers `(n,)` that are found in each lane, as a weight."""
    if not spec.parameters:
        return None
    find = default if not has_diagonals(spec) else known
    weights = [find(spec, lane.resolve_neg().contiguous()) for lane in (dense if dense.ndim == 3 else dense[None])]
    return spec.unnamed(split(spec, torch.stack(weights) if dense.ndim == 3 else weights[0]))


def _adjoint(spec: Spec, dense: Tensor) -> Tensor:
    weight = dense.new_zeros(spec.weight_shape or ())
    for places, numbers in views(dense, spec, weight):
        repeated = [axis for axis, step in enumerate(numbers.stride()) if step == 0]
        if repeated:  # one number for many entries: add them up, and give it the sum
            places = places.sum(repeated)
            numbers = numbers[tuple(slice(None) if step else 0 for step in numbers.stride())]
        numbers.add_(places)
    return weight.view(-1)


@torch.no_grad()
def adjoint_bias(spec: Spec, dense_bias: Tensor) -> Any:
    """The transpose of `b -> expand_bias(b)`: from `(M_out,)`, or `(lanes, M_out)`, to the small bias.

    >>> adjoint_bias(Shared(2, 1, 2), torch.tensor([3.0, 5.0, 1.0, 1.0]))
    tensor([4., 6.])
    """
    check_tensor(dense_bias, "the bias")
    checks.dense_bias_fits(spec, dense_bias.shape)
    _check_float(dense_bias, "the bias")
    if spec.bias_shape is None:
        return None
    _, core, after = split_at_core(spec)
    if type(core) in (Conv, Shared) and all(isinstance(part, Permutation) for part in after):
        return dense_bias[..., _outputs_by_bias(spec, dense_bias.device)].sum(-1)
    through = dense_bias @ entries.matrix(Chain(*after), {}, like=dense_bias) if after else dense_bias
    sums = through.new_zeros((*through.shape[:-1], *spec.bias_shape))
    return sums.index_add_(-1, _bias_index(core, through.device), through)


@lru_cache(maxsize=1024)
@torch.inference_mode(False)  # autograd refuses what was made in such a mode
def _outputs_by_bias(spec: Spec, device: torch.device) -> Tensor:
    """For each number of the bias the outputs that it is added to, all equally many: `(bias, outputs)`."""
    (n,) = spec.bias_shape or (0,)
    return expand_bias(spec, torch.arange(n, dtype=torch.float64)).argsort(stable=True).view(n, -1).to(device)


@torch.no_grad()
def project(dense: Tensor, spec: Spec) -> Any:
    """The weight whose matrix is nearest in least squares: for each number of it, the mean of the entries it fills.

    >>> project(torch.tensor([[1.0, 9.0], [9.0, 3.0]]), Shared(2, 1, 1))
    tensor([[2.]])
    """
    check_dense(spec, dense)
    return _from_dense(spec, dense, _project, entries.project)


def _project(spec: Spec, dense: Tensor) -> Tensor:
    return _adjoint(spec, dense).div_(entries_filled(spec, dense.dtype, dense.device).clamp(min=1).view(-1))


def seen(spec: Spec, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters without what no matrix shows: a kernel tap that never meets the image is 0."""
    if rank(spec) == spec.n_weights:
        return arrays
    if has_diagonals(spec):
        ((name, array),) = arrays.items()
        return {name: array.masked_fill(entries_filled(spec, array.dtype, array.device) == 0, 0)}
    numbers = entries.flat(arrays)
    kept = entries.host_map(spec).seen(numbers.detach().cpu().double().numpy())
    return split(spec, torch.as_tensor(kept).to(numbers))


def rank(spec: Spec) -> int:
    return spec.rank if has_diagonals(spec) else entries.host_map(spec).rank


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


def _share_memory(one: Tensor, other: Tensor) -> bool:
    """Whether the storages overlap, also as arrays of NumPy that torch does not know to be one."""
    if one.device != other.device:
        return False
    (start, size), (begin, length) = ((s.data_ptr(), s.nbytes()) for s in map(Tensor.untyped_storage, (one, other)))
    return start < begin + length and begin < start + size


def _check_matrices(spec: Spec, dense: Tensor) -> None:
    """Refuse what is not one matrix of the spec, or a stack of them."""
    check_tensor(dense, "W")
    checks.dense_fits(spec, dense.shape)
    _check_float(dense, "W")


def check_dense(spec: Spec, dense: Tensor) -> None:
    """The same, and what is not contiguous."""
    _check_matrices(spec, dense)
    lanes = dense if dense.ndim == 3 else (dense,)  # lanes may have gaps between them
    if not all(lane.is_contiguous() for lane in lanes):
        raise ArrayError(f"W of strides {dense.stride()} is not contiguous", "pass W.contiguous() and keep the result")


def check_changes(spec: Spec, dense: Tensor, *alphas: Any) -> list[list[float]]:
    """Refuse matrices that cannot be changed in place; the alphas of each, one per lane."""
    check_dense(spec, dense)
    _check_apart(dense, "W")
    if dense.is_neg():
        remedy = "pass W.resolve_neg() and keep the result"
        raise ArrayError("W has torch's negative bit: its memory holds the negated numbers", remedy)
    return [checks.alphas(alpha, None if dense.ndim == 2 else len(dense)) for alpha in alphas]


def check_bias_change(spec: Spec, dense_bias: Tensor, alpha: Any) -> float:
    """Refuse a bias that cannot be changed in place; its alpha."""
    check_tensor(dense_bias, "the bias")
    checks.dense_bias_fits(spec, dense_bias.shape)
    _check_apart(dense_bias, "the bias")
    return checks.alphas(alpha, None)[0]


def _check_apart(array: Tensor, what: str) -> None:
    """Refuse to write to what shares memory with itself, such as lanes made by `expand`."""
    reach = 1
    for step, size in sorted((step, size) for step, size in zip(array.stride(), array.shape, strict=True) if size > 1):
        if step < reach:
            problem = f"{what} of shape {tuple(array.shape)} and strides {array.stride()} shares memory with itself"
            raise ArrayError(problem, "pass a .clone() of it, and keep the result")
        reach += step * (size - 1)


def arrays_of(spec: Spec, weight: Any, beside: Tensor | None = None) -> dict[str, Tensor]:
    """What a verb was given as `weight`, by name, after a check; without torch's negative bit."""
    checks.is_spec(spec)
    given = spec.named(weight)
    for name, array in given.items():
        check_weight(spec, array, name, beside)
    return {name: array.resolve_neg() for name, array in given.items()}


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
    if not isinstance(array, Tensor):
        kind = "None" if array is None else f"a {type(array).__name__}"
        raise ArrayError(f"{what} is {kind}, not a tensor", "give a torch.Tensor: torch.as_tensor makes one")
    if hasattr(array, "full_tensor"):  # of FSDP
        raise ArrayError(f"{what} is spread over processes", "use DistributedDataParallel, or pass its full_tensor()")
    if array.layout != torch.strided:
        raise ArrayError(f"{what} has the layout {array.layout}", "pass it as a dense tensor: .to_dense()")


def _check_float(array: Tensor, what: str) -> None:
    if not array.is_floating_point():
        raise ArrayError(f"{what} of {array.dtype}", "use a floating-point type, for example torch.float32")
