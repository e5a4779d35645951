"""The shift meter on modules: does what a model makes of a picture move with the picture?"""

from contextlib import suppress

import numpy as np
import torch
from torch import Tensor, nn

from imlp.errors import ModuleError
from imlp.model.shift import DIRECTIONS, shifted, squares
from imlp.nn.dense import Dense
from imlp.nn.geometry import spec_of
from imlp.nn.pairs import unwrapped
from imlp.nn.table import Table
from imlp.nn.watch import hooked, undisturbed
from imlp.spec import Conv, Local


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
    grids = {name: own for name, own in inner.named_modules() if isinstance(own, Dense | nn.Conv2d)}
    calls: list[tuple[str, nn.Module, Tensor, Tensor]] = []
    with undisturbed(inner):
        with hooked(grids, lambda *call: calls.append(call)):
            expected = inner(images)
        for name, own, given, made in calls:
            spec = None
            with suppress(ModuleError):  # some convolutions have none
                spec = own.spec if isinstance(own, Dense) else spec_of(own, tuple(given.shape[1:]))
            if isinstance(spec, Conv | Local):
                f = lambda moved, own=own, given=given: own(moved.reshape(given.shape)).flatten(1)  # noqa: E731
                found = squares(spec, given.flatten(1), made.flatten(1), f)
                sums[name] = sums.get(name, np.zeros(2)) + np.array(found)
        table = Table({name: {"error": float(np.sqrt(e / scale))} for name, (e, scale) in sums.items() if scale})
        moved = [inner(shifted(images - fill, *direction) + fill) for direction in DIRECTIONS]
    error = sum(float(((each - expected) ** 2).sum()) for each in moved) / len(moved)
    changed = sum(float((each.argmax(1) != expected.argmax(1)).double().mean()) for each in moved) / len(moved)
    return Table({**table, "output": {"error": (error / float((expected**2).sum())) ** 0.5, "changed": changed}})
