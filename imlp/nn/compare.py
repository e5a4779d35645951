"""A dense model beside its prior: the nearest prior, both meters of structure, and where the two differ."""

from collections.abc import Iterable
from contextlib import suppress
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from imlp.accel import adjoint_bias, measure, measure_random, project
from imlp.accel.verbs import seen
from imlp.errors import ModuleError
from imlp.model.shift import DIRECTIONS, shifted, squares
from imlp.nn.choice import Layers
from imlp.nn.dense import Dense
from imlp.nn.geometry import spec_of
from imlp.nn.pairs import current, of_layer, pairs, prior_numbers, put, tie_of, ties, unwrapped
from imlp.nn.watch import hooked, tensors, undisturbed
from imlp.spec import Conv, Local


class Table(dict[str, dict[str, Any]]):
    """One row per layer, by its name; printed, the columns are aligned.

    >>> Table({"conv1": {"share": 0.25, "matrix": "8 x 4"}, "conv2": {"share": 1e-9, "matrix": "4 x 4"}})
    layer  share  matrix
    conv1  0.25   8 x 4
    conv2  1e-09  4 x 4
    """

    def __repr__(self) -> str:
        columns = list(dict.fromkeys(name for row in self.values() for name in row))
        rows = [[name, *(_text(row.get(column, "")) for column in columns)] for name, row in self.items()]
        lines = [["layer", *columns], *rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        joined = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join(line.rstrip() for line in joined)


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


@torch.no_grad()
def project_(prior: nn.Module, model: nn.Module, *, layers: Layers = None, rest: bool = True) -> nn.Module:
    """Make `prior` the nearest one to a dense model, in place: layer by layer in least squares.

    Kernel taps that never meet the image, which the dense form cannot see, keep their value. With `rest`, norms, heads
    and everything else that both have are copied. If something is refused, nothing changes.

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten())
    >>> model, other = densify(prior, (1, 4, 4), init="prior"), nn.Sequential(nn.Conv2d(1, 2, 3, padding=1))
    >>> torch.allclose(project_(other, model)[0].weight, prior[0].weight)
    True
    """
    chosen, inner = pairs(model, prior, layers), unwrapped(prior)
    here, theirs = inner.state_dict(), unwrapped(model).state_dict()
    before = {name: tensor.clone() for name, tensor in here.items()}
    replaced = tuple(f"{name}." if name else "" for name in pairs(model, prior))
    both = {name: theirs[name] for name in here if rest and name in theirs and not name.startswith(replaced)}
    for name, tensor in both.items():
        if tensor.shape != here[name].shape:
            problem = f"{name} is {tuple(here[name].shape)} in the prior, but {tuple(tensor.shape)} in the model"
            raise ModuleError(problem, "give the model that was made of it, or rest=False")
    groups = ties(inner)
    try:
        for name, (dense, small) in chosen.items():
            with of_layer(name):
                if tied := tie_of(name, groups):
                    raise ModuleError(f"its numbers are shared: they are {' and '.join(tied)}", "give each its own")
                assert small is not None
                _project_layer(small, dense)
    except ModuleError:
        inner.load_state_dict(before)
        raise
    for name, tensor in both.items():
        here[name].copy_(tensor)
    return prior


def _project_layer(small: nn.Module, dense: Dense) -> None:
    W, b = (current(dense, part) for part in ("weight", "bias"))
    weight, bias = (current(small, part) for part in ("weight", "bias"))
    assert W is not None
    if weight is not None:
        nearest = project(W, dense.spec)
        (shown,) = seen(dense.spec, {"weight": torch.ones_like(nearest)}).values()  # 0: a tap without any entry
        put(small, "weight", torch.where(shown.view(weight.shape) != 0, nearest.view(weight.shape).to(weight), weight))
    if bias is not None:
        means = torch.zeros_like(bias) if b is None else adjoint_bias(dense.spec, b) / (b.numel() // bias.numel())
        put(small, "bias", means.to(bias))


@torch.no_grad()
def bias_meter(model: nn.Module, prior: nn.Module | None = None, *, layers: Layers = None) -> Table:
    """How much structure each dense layer holds, and which.

    `shared` is the share of `|W|^2` in the prior's subspace, `local` the rest where a prior can be non-zero, `outside`
    all other entries. Given a prior, `distance` is how far the nearest one is from the prior's weight,
    relative to that weight's norm. `random_shared` and so on are the shares of a random matrix.
    """
    table = Table()
    for name, (dense, small) in pairs(model, prior, layers).items():
        W = current(dense, "weight")
        assert W is not None
        weight = None if small is None else prior_numbers(small, dense.spec, like=W)[0]
        measured = {key: float(number) for key, number in measure(W, dense.spec, weight).items()}
        of_random = {f"random_{part}": value for part, value in measure_random(dense.spec).items()}
        table[name] = {**measured, **of_random}
    return table


@torch.no_grad()
def verify(model: nn.Module, prior: nn.Module, x: Tensor, *, layers: Layers = None) -> Table:
    """The largest difference between prior and dense form on a batch `x`, layer by layer and at the end.

    Both layers of a pair are given what reaches the prior's, so each layer's error is its own; the row
    `output` compares the whole networks. `error` is relative to the largest number, `scale`, of the prior's result.
    Both networks run in evaluation mode.
    """
    model, prior = unwrapped(model), unwrapped(prior)
    chosen, table = pairs(model, prior, layers), Table()

    def compare(name: str, layer: nn.Module, given: Tensor, result: Tensor) -> None:
        dense = chosen[name].dense
        table[name] = _row(dense(given.to(dense.weight)), result)

    watched = {name: pair.prior for name, pair in chosen.items() if pair.prior is not None}
    with undisturbed(model, prior), hooked(watched, compare):
        expected, outputs = prior(x), model(x)
    both = [[y for y in tensors(given) if y.is_floating_point()] for given in (outputs, expected)]
    shapes = [[y.shape for y in given] for given in both]
    if not both[1] or shapes[0] != shapes[1]:
        problem = f"the prior returns {len(both[1])} tensors, and the dense form others"
        raise ModuleError(problem, "verify compares networks that return the same shapes, at least one tensor")
    each = [_row(*pair) for pair in zip(*both, strict=True) if pair[0].numel()]
    return Table({**table, "output": max(each, key=lambda row: row["error"], default={"error": 0.0})})


def relative_error(results: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest of all tensors, relative to the largest number in each; infinite if they cannot be compared."""
    results, expected = ([tensor.cpu().double() for tensor in each] for each in (results, expected))
    if [tensor.shape for tensor in results] != [tensor.shape for tensor in expected]:
        return inf
    worst = 0.0
    for one, other in zip(results, expected, strict=True):
        finite = other.isfinite()
        if not torch.equal(one.isfinite(), finite):
            return inf
        if finite.any():
            scale = other[finite].abs().max().clamp(min=1e-30)
            worst = max(worst, float((one - other)[finite].abs().max() / scale))
    return worst


def _row(output: Tensor, expected: Tensor) -> dict[str, Any]:
    return {"error": relative_error([output], [expected]), "scale": float(expected.abs().max())}


@torch.no_grad()
def shift_meter(model: nn.Module, images: Tensor, *, fill: float | Tensor = 0.0) -> Table:
    """How much the output of a dense model, its prior or another one depends on where in the picture something is.

    The row `output` compares `images (N, c, h, w)` with the same moved by one pixel, in four directions: `error` is
    `|f(T x) - f(x)| / |f(x)|`, and `changed` the share whose largest output is another. `fill`, a number or
    `(c, 1, 1)`, is what comes in at the border: the colour that crops pad with. Each convolution, dense or not, has a
    row with `|f(T x) - T f(x)| / |T f(x)|`, where `x` is what reaches it, moved by its stride: 0 if it is equivariant.
    One without a spec (circular padding) has none.

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(32, 5)).double()
    >>> model, x = densify(prior, (1, 4, 4), init="prior"), torch.randn(8, 1, 4, 4, dtype=torch.float64)
    >>> shift_meter(model, x)["0"]["error"] < 1e-12
    True
    """
    inner, sums = unwrapped(model), dict[str, np.ndarray]()
    if images.ndim != 4:
        raise ModuleError(f"images have the shape {tuple(images.shape)}", "give (N, channels, height, width)")
    grids = {name: layer for name, layer in inner.named_modules() if isinstance(layer, Dense | nn.Conv2d)}
    calls: list[tuple[str, nn.Module, Tensor, Tensor]] = []
    with undisturbed(inner):
        with hooked(grids, lambda *call: calls.append(call)):
            expected = inner(images)
        for name, layer, given, made in calls:
            spec = None
            with suppress(ModuleError):  # some convolutions have none
                spec = layer.spec if isinstance(layer, Dense) else spec_of(layer, tuple(given.shape[1:]))
            if isinstance(spec, Conv | Local):
                f = lambda moved, layer=layer, given=given: layer(moved.reshape(given.shape)).flatten(1)  # noqa: E731
                errors = squares(spec, given.flatten(1), made.flatten(1), f)
                sums[name] = sums.get(name, np.zeros(2)) + np.array(errors)
        table = Table({name: {"error": float(np.sqrt(e / scale))} for name, (e, scale) in sums.items() if scale})
        moved = [inner(shifted(images - fill, *direction) + fill) for direction in DIRECTIONS]
    error = sum(float(((each - expected) ** 2).sum()) for each in moved) / len(moved)
    changed = sum(float((each.argmax(1) != expected.argmax(1)).double().mean()) for each in moved) / len(moved)
    return Table({**table, "output": {"error": (error / float((expected**2).sum())) ** 0.5, "changed": changed}})
