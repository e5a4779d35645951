"""A copy of a module in which the structured layers are dense ones, and whether it is the same function."""

from collections.abc import Mapping
from math import inf, prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from imlp import accel
from imlp.errors import OUTSIDERS, ModuleError, known
from imlp.machine import free_memory
from imlp.nn.choice import Layers, Refused, RefusedError, without
from imlp.nn.compare import Table, relative_error
from imlp.nn.convnd import ConvNd
from imlp.nn.dense import Dense
from imlp.nn.find import Plan, a_parameter, cannot_take, example, filled, find
from imlp.nn.geometry import LAYER_CLASSES
from imlp.nn.pairs import prior_numbers
from imlp.nn.watch import copied, hooked, tensors, undisturbed
from imlp.spec import Conv, Shape, Shared, Spec

# The largest difference that rounding explains, relative to the largest number
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 0.05, torch.float16: 0.01}
TF32 = 0.01  # what convolutions in float32 on CUDA may be computed in
OPERATIONS_HELD = 4  # how many of its largest operations a forward pass may hold at a time
MARGIN = 10


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
    check_room(plan, module, limit, layers)
    while True:
        dense = replaced(module, plan, init=init, generator=generator)
        dense.left_structured = plan.left  # type: ignore[assignment]
        if not check or a_parameter(module).is_meta:
            return dense
        wrong = differing(module, dense, plan, example(module, input_shape, 1), same_output=init == "prior")
        if not wrong:
            return dense
        if skip is None or len(wrong) == len(plan.layers):
            raise RefusedError(wrong, layers)
        plan = plan.without(wrong)


@torch.no_grad()
def matrix(layer: nn.Module, input_shape: Shape | Tensor, *, layout: Literal["dense", "sparse"] = "dense") -> Tensor:
    """`W_P (M_out, M_in)` of one layer, for flat inputs: that of a convolution, a pooling or a linear layer.

    `input_shape` is that of one input, without the batch, or an example batch.

    >>> matrix(nn.Conv1d(1, 1, 2, bias=False), (1, 3)).shape
    torch.Size([2, 3])
    """
    if not isinstance(layer, LAYER_CLASSES):
        names = ", ".join(kind.__name__ for kind in LAYER_CLASSES)
        raise ModuleError(f"{type(layer).__name__} is no layer with a matrix", f"give one of {names}")
    spec, like = find(layer, input_shape, "").layers[0].spec, a_parameter(layer)
    if layout == "dense":
        _check_fits("the matrix", prod(spec.matrix_shape) * like.element_size(), like, "give layout='sparse'")
    return accel.matrix(spec, prior_numbers(layer, spec, like=like)[0], layout=layout)


def replaced(module: nn.Module, plan: Plan, *, init: str, generator: torch.Generator | None = None) -> nn.Module:
    """The copy that a plan describes; `check_room` says whether it fits."""
    instead: dict[nn.Module, nn.Module] = {}
    for layer in plan.layers:
        original = module.get_submodule(layer.name)
        kind = next(original.parameters(), a_parameter(module))
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
    if isinstance(spec, Shared):
        return f"Shared, {spec.rows} rows" if spec.rows > 1 else "Shared"
    assert isinstance(spec, Conv | ConvNd)
    name = "ConvTranspose" if getattr(spec, "transposed", False) else "Conv"
    mode = getattr(spec, "mode", "zeros")
    extras = [f"/{max(spec.stride)}"] * (max(spec.stride) > 1) + [f"g{spec.groups}"] * (spec.groups > 1)
    return " ".join([name, "x".join(map(str, spec.kernel)), *extras, *[mode] * (mode != "zeros")])


def check_room(plan: Plan, module: nn.Module, limit: int | None = None, layers: Layers = None) -> None:
    """Refuse matrices of more than `limit` bytes, or of more than are free; `layers` are what the plan was made for."""
    like = a_parameter(module)
    itemsize = like.element_size()
    free = free_memory(str(like.device)) if limit is None else limit
    need = plan.numbers * itemsize
    if need <= free or like.is_meta:
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


@torch.no_grad()
def differing(module: nn.Module, dense: nn.Module, plan: Plan, batch: Tensor, *, same_output: bool) -> list[Refused]:
    """The layers of a dense form that are not those of the module.

    Each spec is given what reaches its layer in the module and has to return what the layer returns; the dense form has
    to run. With `same_output` the matrices have to return the same too, and so does the whole.
    """
    check_pass_fits(module, plan, remedy="give a smaller image, or check=False")
    x, wrong = filled(module, batch), list[Refused]()
    specs = {layer.name: layer.spec for layer in plan.layers}
    matrices = {name: dense.get_submodule(name) for name in specs}

    def compare(name: str, layer: nn.Module, given: Tensor, output: Tensor) -> None:
        tolerance = _tolerance(output)
        weight, bias = prior_numbers(layer, specs[name], like=given)
        if same_output:
            result = matrices[name](given)
        else:
            result = accel.apply(specs[name], weight, bias, given.flatten(1)).view_as(output)
        if relative_error([result], [output]) > tolerance:  # only then ask how large the terms of the sums are
            terms = accel.apply(specs[name], weight.abs(), None if bias is None else bias.abs(), given.abs().flatten(1))
            difference = float((result - output).abs().max() / terms.max().clamp(min=1e-30))
            if not difference <= tolerance:
                reason = "its matrix returns something else than the layer"
                wrong.append(Refused(name, reason, f" (off by {difference:.1e})"))

    expected = _outputs(module, x, matrices, compare)
    if wrong:
        return wrong
    outputs = _outputs(module, x, matrices)
    difference = relative_error(outputs, expected)
    tolerance = _tolerance(a_parameter(module))
    if difference <= tolerance or (not same_output and difference < inf):
        return []
    # Some networks magnify rounding: what do errors of that size in these layers do to this one?
    noisy = _outputs(module, x, matrices, _add_noise)
    allowed = max(tolerance, MARGIN * relative_error(noisy, expected))
    if difference <= allowed:
        return []
    for name, made in matrices.items():
        alone = relative_error(_outputs(module, x, {name: made}), expected)
        if alone > allowed:
            reason = "what the module returns depends on more of it than its output"
            wrong.append(Refused(name, reason, f" (off by {alone:.1e})"))
    if wrong:
        return wrong
    raise ModuleError(f"the output of the dense form is off by {difference:.1e}", "choose other layers")


def check_pass_fits(module: nn.Module, plan: Plan, *, remedy: str = "give a smaller image") -> None:
    need = OPERATIONS_HELD * plan.pass_bytes
    _check_fits("a forward pass to check the dense form", need, a_parameter(module), remedy)


def _check_fits(what: str, need: int, like: Tensor, remedy: str) -> None:
    free = free_memory(str(like.device))
    if need > free and not like.is_meta:
        raise ModuleError(f"{what} takes {need / 1e6:,.0f} MB, but there are {free / 1e6:,.0f} MB", remedy)


def _add_noise(name: str, layer: nn.Module, given: Tensor, output: Tensor) -> Tensor:
    noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    return output + _tolerance(output) * output.abs().max() * noise


def _outputs(module: nn.Module, x: Tensor, layers: Mapping[str, nn.Module], hook: Any = None) -> list[Tensor]:
    """The tensors that a copy of the module returns with these layers; or with its own, and a hook on each of them."""
    instead = {} if hook else {module.get_submodule(name): layer for name, layer in layers.items()}
    runs = copied(module, instead=instead)
    watched = {name: runs.get_submodule(name) for name in layers} if hook else {}
    try:
        with undisturbed(runs), hooked(watched, hook):
            return [tensor for tensor in tensors(runs(x)) if tensor.is_floating_point()]
    except OUTSIDERS as error:  # whatever the module's own code raises
        raise cannot_take(x, error) from error


def _tolerance(like: Tensor) -> float:
    return TF32 if like.is_cuda and like.dtype == torch.float32 else TOLERANCE.get(like.dtype, 0.05)
