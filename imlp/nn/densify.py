"""A copy of a module in which the structured layers are dense ones."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from imlp import checks
from imlp.errors import ModuleError, known
from imlp.nn.check import check_same
from imlp.nn.choice import Layers
from imlp.nn.dense import Dense
from imlp.nn.find import Found, Plan, a_parameter, example, find
from imlp.nn.pairs import prior_numbers
from imlp.nn.table import Table
from imlp.nn.watch import copied
from imlp.spec import Conv, Shape, Shared, Spec


class TooLargeError(ModuleError):
    """A dense form that does not fit: with the sizes of all layers, and the fewest of them to leave out."""

    def __init__(self, problem: str, left_out: list[str], table: Table):
        super().__init__(problem, f"leave out {', '.join(left_out)}: layers={[f'!{name}' for name in left_out]}")
        self.left_out, self.table = left_out, table

    def __str__(self) -> str:
        return f"{self.problem}\n{self.table}\n{self.remedy}"


def densify(
    module: nn.Module,
    input_shape: Shape | Tensor,
    *,
    layers: Layers = None,
    init: Literal["random", "prior"] = "random",
    limit: int | None = None,
    generator: torch.Generator | None = None,
    check: bool = True,
) -> nn.Module:
    """A copy of `module` in which every convolution, and every linear layer on more than one row, is `Dense`.

    Everything else is copied as it is. `input_shape` is that of one image, without the batch, or an example batch.
    `layers` chooses by name, glob or type, and takes pooling and plain linear layers too if they are chosen; `!NAME`
    leaves layers out. The dense layers are drawn as `nn.Linear` draws them, or with `init="prior"` hold the matrices of
    the layers that they replace, so that the copy is the same function. More than `limit` bytes (unless given, what is
    free) are refused before anything is allocated.

    The copy is checked on a random batch (or the example) before it is returned: each layer against its spec, and with
    `init="prior"` the whole output against the module's. What differs is refused by name. `check=False` skips that, and
    saves a forward pass of both.

    >>> prior = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 10))
    >>> densify(prior, (3, 8, 8), init="prior")[0].weight.shape
    torch.Size([36, 192])
    """
    known(init, ("random", "prior"), "init")
    plan = find(module, input_shape, layers)
    dense = replaced(module, plan, init=init, limit=limit, generator=generator)
    if check and not a_parameter(module).is_meta:
        check_same(module, dense, plan, example(module, input_shape, 1), same_output=init == "prior")
    return dense


def replaced(
    module: nn.Module, plan: Plan, *, init: str, limit: int | None = None, generator: torch.Generator | None = None
) -> nn.Module:
    """The copy that a plan describes."""
    like = a_parameter(module)
    _check_room(plan, like, limit)
    instead: dict[nn.Module, nn.Module] = {}
    for layer in plan.layers:
        own = module.get_submodule(layer.name)
        still = copied(own).eval()  # to read a weight that is computed may change the layer's buffers
        kind = next(own.parameters(), like)
        shapes = (layer.in_shape, layer.out_shape)
        if init == "prior":
            made = Dense.of_prior(layer.spec, *prior_numbers(_computed(still), layer.spec, like=kind), *shapes)
        else:
            options: dict[str, Any] = {"dtype": kind.dtype, "device": kind.device, "generator": generator}
            made = Dense(layer.spec, *shapes, bias=layer.bias, **options)
        for part, parameter in made.named_parameters():
            numbers = [p for name, p in own.named_parameters() if part in name]
            parameter.requires_grad_(not numbers or any(p.requires_grad for p in numbers))
        if isinstance(module.get_submodule(layer.name.rpartition(".")[0]), nn.TransformerEncoderLayer):
            made.register_forward_pre_hook(_no_fast_path)
        instead[own] = made.train(own.training)
    return copied(module, instead=instead)


@torch.no_grad()
def _computed(own: nn.Module) -> nn.Module:
    """A layer after the hooks that compute its weight (`weight_norm`, `prune`), which has no others."""
    for hook in own._forward_pre_hooks.values():
        hook(own, ())
    return own


def _no_fast_path(module: nn.Module, args: Any) -> None:
    """Does nothing, but where there are hooks torch calls the layers instead of one kernel that reads their weights."""


def size_table(plan: Plan, itemsize: int = 4) -> Table:
    """By layer: spec, shape of the matrix, how many numbers it holds, what share is not zero, megabytes."""
    return Table({layer.name or "the module": _row(layer, itemsize) for layer in plan.layers})


def _row(layer: Found, itemsize: int) -> dict[str, Any]:
    m_out, m_in = layer.spec.matrix_shape
    nonzero = layer.spec.nnz / (m_out * m_in)
    row = {"spec": _in_short(layer.spec), "matrix": f"{m_out} x {m_in}", "numbers": layer.numbers, "nonzero": nonzero}
    return row | {"MB": round(layer.numbers * itemsize / 1e6, 1)}


def _in_short(spec: Spec) -> str:
    """The geometry as far as it fits into a table: `Conv 3x3 /2 g4` has stride 2 and 4 groups."""
    if isinstance(spec, Shared):
        return f"Shared, {spec.rows} rows" if spec.rows > 1 else "Shared"
    if not isinstance(spec, Conv):
        return type(spec).__name__
    extras = [f"/{max(spec.strides)}"] * (spec.strides != (1, 1)) + [f"g{spec.groups}"] * (spec.groups > 1)
    return " ".join(["Conv", "x".join(map(str, spec.kernels)), *extras])


def _check_room(plan: Plan, like: Tensor, limit: int | None) -> None:
    """Refuse what does not fit."""
    if like.device.type == "meta":
        return
    itemsize = like.element_size()
    free = checks.free_memory(str(like.device)) if limit is None else limit
    need = plan.numbers * itemsize
    if need <= free:
        return
    left_out: list[str] = []
    for layer in sorted(plan.layers, key=lambda layer: -layer.numbers):
        if need - sum(one.numbers * itemsize for one in plan.layers if one.name in left_out) > free:
            left_out.append(layer.name)
    raise TooLargeError(
        f"the dense form takes {need / 1e6:,.0f} MB, but {'the limit is' if limit is not None else 'there are'} "
        f"{free / 1e6:,.0f} MB",
        left_out,
        size_table(plan, itemsize),
    )
