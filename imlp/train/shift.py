"""The shift meter of a run: the test images moved by one pixel, for the prior and every lane."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from imlp.augment import Draw
from imlp.model import Model
from imlp.model.shift import DIRECTIONS, squares
from imlp.networks import Layer, Operation, Residual
from imlp.spec.window import Window
from imlp.train.images import PlacedImages, in_parts
from imlp.train.state import State


def measure_shift(images: PlacedImages, state: State) -> dict[int | str, dict[str, float]]:
    """For the prior and each lane, by the names that they have in `metrics.jsonl`.

    `shift_accuracy` is the accuracy on the moved images, on average over the four directions; `shift_logits` is
    `|f(T x) - f(x)| / |f(x)|`. A layer on a grid has `shift_NAME`: `|f(T x) - T f(x)| / |T f(x)|`, where `x` is what
    reaches it from the test images. What comes in at the border is what `augment` pads with, or black.
    """
    keys: dict[str, list[Any]] = {"prior": ["prior"], "lanes": state.active}
    pairs = ((key, model.lane(n)) for name, model in state.models for n, key in enumerate(keys[name]))
    return {key: _of_model(images, model) for key, model in pairs}


def _of_model(images: PlacedImages, model: Model) -> dict[str, float]:
    backend, labels, correct = images.backend, images.data.y_test, 0
    _, height, width = images.data.image
    kind = images.config.augment if images.config.augment in ("pad", "pad-mean") else "pad"
    sums: dict[str, Any] = {"logits": np.zeros(2)}
    for rows in in_parts(len(labels)):
        x, full = images.batch(images.test, rows), partial(np.full, len(rows))
        results: list[Any] = []
        logits = backend.forward(model, x, watch=lambda name, result, to=results: to.append(result))
        seen: list[tuple[Layer, Any, Any]] = []
        if not model.network.is_module:  # what reaches the layers of a PyTorch model, only the module knows
            _follow(model.network.operations(dense=model.dense), x, iter(results), seen)
        for layer, given, made in seen:
            if isinstance(layer.spec, Window):  # it slides over a picture
                measured = squares(layer.spec, given, made, partial(_layer, backend, model, layer, given, made))
                sums[layer.name] = sums.get(layer.name, 0) + np.array(measured)
        for down, right in DIRECTIONS:
            draw = Draw(kind, full(-down), full(-right), full(height), full(width), full(False))
            moved = images.batch(images.test, rows, draw)
            now, expected = (backend.to_numpy(each) for each in (backend.forward(model, moved), logits))
            sums["logits"] += ((now - expected) ** 2).sum(), (expected**2).sum()
            correct += int((now.argmax(1) == labels[rows]).sum())
    ratios = {f"shift_{name}": float(np.sqrt(error / scale)) for name, (error, scale) in sums.items() if scale}
    return {"shift_accuracy": correct / (len(DIRECTIONS) * len(labels)), **ratios}


def _layer(backend: Any, model: Model, layer: Layer, x: Any, y: Any, moved: Any) -> Any:
    """What a layer that makes `y` of `x` makes of `moved`; its bias is in `y`."""
    if model.dense:
        return y + (moved - x) @ backend.weight(model, layer.name).T
    return y + backend.apply(layer.spec, model.weight_of(layer.name, layer.spec), None, moved - x)


def _follow(operations: Iterable[Operation], x: Any, results: Iterator[Any], seen: list[Any]) -> Any:
    """Follow `x` through operations whose results are known, in the order in which they come."""
    for operation in operations:
        if isinstance(operation, Residual):
            body = _follow(operation.body, x, results, seen)
            x = body + _follow([operation.shortcut] if operation.shortcut else [], x, results, seen)
            continue
        result = next(results)
        if isinstance(operation, Layer):
            seen.append((operation, x, result))
        x = result
    return x
