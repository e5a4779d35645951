"""A copy of a module in which the structured layers are dense ones."""

from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from imlp.accel import matrix as dense_or_sparse
from imlp.errors import ModuleError, known
from imlp.machine import free_memory
from imlp.nn.check import check_fits, check_same
from imlp.nn.choice import Layers, RefusedError, without
from imlp.nn.convnd import ConvNd
from imlp.nn.dense import Dense
from imlp.nn.find import Plan, a_parameter, example, find
from imlp.nn.geometry import LAYER_CLASSES, plain_class
from imlp.nn.pairs import prior_numbers
from imlp.nn.table import Table
from imlp.nn.watch import copied
from imlp.spec import Conv, Shape, Shared, Spec


class TooLargeError(ModuleError):
    """A dense form that does not fit: with the sizes of all layers, and the fewest of them to leave out (none: all)."""

    def __init__(self, problem: str, left_out: list[str], table: Table, layers: Layers = None):
        names = f"leave out {', '.join(left_out)}: layers={without(layers, left_out)}"
        super().__init__(problem, names if left_out else "no layer fits: give a smaller image")
        self.left_out, self.table = left_out, table

    def __str__(self) -> str:
        return f"{self.problem}\n{self.table}\n{self.remedy}"


def densify(
    module: nn.Module,
    input_shape: Shape | Tensor,
    *,
    layers: Layers = None,
    init: Literal["prior", "random"] = "prior",
    skip: Literal["refused"] | None = None,
    limit: int | None = None,
    generator: torch.Generator | None = None,
    check: bool = True,
) -> nn.Module:
    """A copy of `module` in which every convolution, and every linear layer on more than one row, is `Dense`.

    Everything else is copied as it is. The dense layers hold the matrices of the layers that they replace, so the copy
    is the same function; with `init="random"` they are drawn as `nn.Linear` draws them, for an MLP from scratch.

    `input_shape` is that of one image, without the batch, or an example batch. `layers` chooses by name, glob or type,
    and takes pooling and plain linear layers too if they are chosen; `!NAME` and `!Linear` leave layers out. Layers
    without a dense form are refused by name, all at once; with `skip="refused"` they stay as they are, and the copy's
    `left_structured` has the reason of each. More than `limit` bytes (unless given, what is free) are refused before
    anything is allocated.

    The copy is checked on a random batch (or the example) before it is returned: each layer against its spec, and with
    `init="prior"` the whole output against the module's. What differs is refused by name. `check=False` skips that, and
    saves a forward pass of both.

    >>> prior = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 10))
    >>> densify(prior, (3, 8, 8))[0].weight.shape
    torch.Size([36, 192])
    """
    known(init, ("prior", "random"), "init")
    if generator is not None and init == "prior":
        raise ModuleError("a generator is given, but nothing is drawn", "give init='random' for an MLP from scratch")
    plan = find(module, input_shape, layers, skip=skip)
    while True:
        dense = replaced(module, plan, init=init, limit=limit, generator=generator, layers=layers)
        dense.left_structured = plan.left  # type: ignore[assignment]
        if not check or a_parameter(module).is_meta:
            return dense
        try:
            check_same(module, dense, plan, example(module, input_shape, 1), same_output=init == "prior")
            return dense
        except RefusedError as error:
            if skip is None or len(error.layers) == len(plan.layers):
                raise RefusedError(error.layers, layers) from None
            plan = plan.without(error.layers)


@torch.no_grad()
def matrix(layer: nn.Module, input_shape: Shape | Tensor, *, layout: Literal["dense", "sparse"] = "dense") -> Tensor:
    """`W_P (M_out, M_in)` of one layer, for flat inputs: that of a convolution, a pooling or a linear layer.

    `input_shape` is that of one input, without the batch, or an example batch.

    >>> matrix(nn.Conv1d(1, 1, 2, bias=False), (1, 3)).shape
    torch.Size([2, 3])
    """
    if plain_class(layer) is None:
        names = ", ".join(kind.__name__ for kind in LAYER_CLASSES)
        raise ModuleError(f"{type(layer).__name__} is no layer with a matrix", f"give one of {names}")
    spec, like = find(layer, input_shape, "").layers[0].spec, a_parameter(layer)
    if layout == "dense" and not like.is_meta:
        check_fits("the matrix", prod(spec.matrix_shape) * like.element_size(), like.device, "give layout='sparse'")
    return dense_or_sparse(spec, prior_numbers(layer, spec, like=like)[0], layout=layout)


def replaced(
    module: nn.Module,
    plan: Plan,
    *,
    init: str,
    limit: int | None = None,
    generator: torch.Generator | None = None,
    layers: Layers = None,
) -> nn.Module:
    """The copy that a plan describes; `layers` are those that it was made for."""
    like = a_parameter(module)
    _check_room(plan, like, limit, layers)
    instead: dict[nn.Module, nn.Module] = {}
    for layer in plan.layers:
        original = module.get_submodule(layer.name)
        kind = next(original.parameters(), like)
        shapes = (layer.in_shape, layer.out_shape)
        if init == "prior":
            made = Dense.of_prior(layer.spec, *prior_numbers(original, layer.spec, like=kind), *shapes)
        else:
            options: dict[str, Any] = {"dtype": kind.dtype, "device": kind.device, "generator": generator}
            made = Dense(layer.spec, *shapes, bias=layer.bias, **options)
        for part, parameter in made.named_parameters():
            numbers = [p for name, p in original.named_parameters() if part in name]
            parameter.requires_grad_(not numbers or any(p.requires_grad for p in numbers))
        if isinstance(module.get_submodule(layer.name.rpartition(".")[0]), nn.TransformerEncoderLayer):
            made.register_forward_pre_hook(_no_fast_path)
        instead[original] = made.train(original.training)
    return copied(module, instead=instead)


def _no_fast_path(module: nn.Module, args: Any) -> None:
    """Does nothing, but where there are hooks torch calls the layers instead of one kernel that reads their weights."""


def size_table(plan: Plan, itemsize: int = 4) -> Table:
    """For each layer: spec, shape of the matrix, how many numbers it holds, what share is not zero, megabytes."""
    table = Table()
    for layer in plan.layers:
        m_out, m_in = layer.spec.matrix_shape
        windows = f", {layer.windows} windows" if layer.windows > 1 else ""
        row = {"spec": _in_short(layer.spec) + windows, "matrix": f"{m_out} x {m_in}", "numbers": layer.numbers}
        row |= {"nonzero": layer.spec.nnz / (m_out * m_in), "MB": round(layer.numbers * itemsize / 1e6, 1)}
        table[layer.name or "the module"] = row
    return table


def _in_short(spec: Spec) -> str:
    """The geometry as far as it fits into a table: `Conv 3x3 /2 g4` has stride 2 and 4 groups."""
    match spec:
        case Shared(rows):
            return f"Shared, {rows} rows" if rows > 1 else "Shared"
        case Conv() | ConvNd():
            name = "ConvTranspose" if getattr(spec, "transposed", False) else "Conv"
            mode = getattr(spec, "mode", "zeros")
        case _:
            return type(spec).__name__
    extras = [f"/{max(spec.stride)}"] * (max(spec.stride) > 1) + [f"g{spec.groups}"] * (spec.groups > 1)
    return " ".join([name, "x".join(map(str, spec.kernel)), *extras, *[mode] * (mode != "zeros")])


def _check_room(plan: Plan, like: Tensor, limit: int | None, layers: Layers) -> None:
    if like.device.type == "meta":
        return
    itemsize = like.element_size()
    free = free_memory(str(like.device)) if limit is None else limit
    need = plan.numbers * itemsize
    if need <= free:
        return
    left_out, over = [], need - free
    for layer in sorted(plan.layers, key=lambda layer: -layer.numbers):
        if over > 0:
            left_out.append(layer.name)
            over -= layer.numbers * itemsize
    left_out = left_out if len(left_out) < len(plan.layers) else []
    there = "the limit is" if limit is not None else "there are"
    problem = f"the dense form takes {need / 1e6:,.0f} MB, but {there} {free / 1e6:,.0f} MB"
    raise TooLargeError(problem, left_out, size_table(plan, itemsize), layers)
