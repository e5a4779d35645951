"""The first layer as pictures: rows of W, and of the prior's W_P, folded into the shape of an image.

Only the rows that are shown are read from the checkpoint, so one of many lanes costs little.
"""

import io
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from imlp.errors import OutsideError
from imlp.files import parse_json
from imlp.plot import out_shape
from imlp.reference import matrix
from imlp.spec import Shape
from imlp.study.scores import Arm
from imlp.train.config import Lane
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import Run

SHOWN = 4  # rows of each matrix


@dataclass(frozen=True)
class Weights:
    """Rows of the first layer, of the prior and of each lane that a checkpoint has; `(SHOWN, height, width, 3)`."""

    layer: str
    rows: list[int]
    where: str  # which runs, after which epoch
    images: list[tuple[str, np.ndarray]]  # title and pixels from 0 to 255, the prior's first


def first_layer(arm: Arm) -> Weights | str:
    """Each lane from the first run that has it, finished ones before others; or the reason why there is nothing."""
    images: dict[Lane | None, np.ndarray] = {}
    where: dict[str, None] = {}
    for run in sorted(arm.runs, key=lambda run: run.result is None):
        wanted = {*run.lanes, *([None] if run.config.needs_prior else [])}
        if not wanted <= set(images):
            for path in RunFolder(run.folder).checkpoints():
                try:
                    layer, rows, place, own = _read(run, path)
                except OutsideError as error:
                    return f"The first layer is not shown: {error}."
                except (OSError, SafetensorError, ValueError, KeyError, TypeError):
                    continue  # damaged: the one before it
                where |= {place: None} if set(own) - set(images) else {}
                images = own | images
                break
    if not images:
        return "These runs are on record without their weights, so there is no first layer to show."
    titles = {None: f"{arm.prior_name} (the prior): W_P"} | {lane: lane.title for lane in arm.lanes}
    shown = [(title, images[lane]) for lane, title in titles.items() if lane in images]
    return Weights(layer, rows, "; ".join(where), shown)


def _read(run: Run, path: Path) -> tuple[str, list[int], str, dict[Lane | None, np.ndarray]]:
    """Name and rows of the layer, where they come from, and their pictures; a lane of None is the prior."""
    with safe_open(path, framework="numpy") as file:
        state = parse_json((file.metadata() or {})["state"])
        network = run.config.make_network(tuple(state["image"]), state["classes"])
        layer = network.layers[0]
        key, rows = f"{layer.name}.weight", chosen_rows(out_shape(layer.spec))
        images: dict[Lane | None, np.ndarray] = {}
        if run.config.needs_prior:
            own_arrays = {part: file.get_tensor(f"prior/{layer.name}.{part}") for part in layer.spec.parameters}
            prior: Any = matrix(layer.spec, layer.spec.unnamed(own_arrays))
            images[None] = pictures(prior[rows].toarray(), network.image)
        for index, lane in enumerate(state["active"]):
            stack = file.get_slice(f"lanes/{key}")  # (lanes, M_out, M_in)
            own = np.concatenate([stack[index : index + 1, row : row + 1].reshape(1, -1) for row in rows])
            branch = run.config.lanes[lane].branch(network)
            if branch is not None and layer.name in branch.layers:  # W is the sum of two parts
                parts = {
                    part: file.get_tensor(f"lanes/{layer.name}.prior.{part}")[index] for part in layer.spec.parameters
                }
                gate = file.get_tensor(f"lanes/{layer.name}.gate")[index] if branch.coupling == "gate" else None
                g = 1.0 if gate is None else 1 / (1 + np.exp(-float(gate)))
                w_p: Any = matrix(layer.spec, layer.spec.unnamed(parts))
                own = g * w_p[rows].toarray() + (1.0 if gate is None else 1 - g) * own
            images[run.lanes[lane]] = pictures(own, network.image)
    return layer.name, rows, f"seed {run.config.seed}, after epoch {state['epoch']}", images


def chosen_rows(shape: Shape) -> list[int]:
    """Rows whose outputs lie apart: four places of an image's quarters, or four patches, each of another channel.

    >>> chosen_rows((1, 4, 4)), chosen_rows((16, 8)), chosen_rows((12,))
    ([5, 7, 13, 15], [16, 50, 84, 118], [1, 4, 7, 10])
    """
    if len(shape) == 3:
        channels, height, width = shape
        places = [(y, x) for y in (height // 4, 3 * height // 4) for x in (width // 4, 3 * width // 4)]
        return [int(np.ravel_multi_index((n % channels, y, x), shape)) for n, (y, x) in enumerate(places)]
    patches, features = prod(shape[:-1]) if len(shape) > 1 else shape[0], shape[-1] if len(shape) > 1 else 1
    shape = (patches, features)
    return [
        int(np.ravel_multi_index(((2 * n + 1) * patches // (2 * SHOWN), n * features // SHOWN), shape))
        for n in range(SHOWN)
    ]


def pictures(rows: np.ndarray, image: tuple[int, int, int]) -> np.ndarray:
    """Each row as an image: grey is 0, and the largest weight of the row is full black or white of its channel."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest > 0, largest, 1)
    channels, height, width = image
    folded = (127.5 + 127.5 * scaled).round().astype(np.uint8).reshape(-1, channels, height, width)
    colours = folded if channels == 3 else np.repeat(folded.mean(1, keepdims=True).astype(np.uint8), 3, axis=1)
    return colours.transpose(0, 2, 3, 1)


def png(pixels: np.ndarray) -> bytes:
    """Four images `(SHOWN, height, width, 3)` in a square as one PNG, a white line between them."""
    from PIL import Image

    framed = np.pad(pixels, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=255)
    square = np.concatenate([np.concatenate(list(pair), axis=1) for pair in (framed[:2], framed[2:])])
    buffer = io.BytesIO()
    Image.fromarray(square[:-1, :-1]).save(buffer, format="png", optimize=True)
    return buffer.getvalue()
