"""Corners of the matrices that the networks of an arm have learned, as pictures."""

import io
from base64 import b64encode
from dataclasses import dataclass
from math import prod

import numpy as np

from imlp.errors import OutsideError
from imlp.init import network_parameters
from imlp.look.explain import in_shape, out_shape
from imlp.networks import Layer, Network
from imlp.study.scores import Arm
from imlp.train.checkpoint import DAMAGED
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import Run
from imlp.train.weights import SavedWeights, open_weights

MOST = 128  # rows or columns of a matrix that are shown, so that each can be seen

Corners = dict[str, np.ndarray]  # by what a model is called


@dataclass(frozen=True)
class Matrices:
    """The corners of one layer's matrix by model."""

    layer: Layer
    where: str  # which runs, after which epoch
    corners: Corners


def matrices(arm: Arm) -> Matrices | str:
    """Each model from the first run that has it, finished ones before others; or why there is nothing to show."""
    prior, corners = f"{arm.prior_name} (the prior)", Corners()
    where: dict[str, None] = {}
    for run in sorted(arm.runs, key=lambda run: run.result is None):
        wanted = {lane.title for lane in run.lanes} | ({prior} if run.config.needs_prior else set())
        for path in RunFolder(run.folder).checkpoints() if wanted - corners.keys() else ():
            try:
                with open_weights(path, run.config) as saved:
                    layer, found = _corners(run, prior, saved)
            except OutsideError as error:
                return f"The matrices are not shown: {error}."
            except DAMAGED:
                continue  # the one before it
            where |= {f"seed {run.config.seed}, after epoch {saved.epoch}": None} if found.keys() - corners else {}
            corners = {**found, **corners}
            break
    if not corners:
        return "These runs are on record without their weights, so there is no matrix to show."
    titles = ("before training", *(lane.title for lane in arm.lanes), prior)
    return Matrices(layer, "; ".join(where), {title: corners[title] for title in titles if title in corners})


def _corners(run: Run, prior: str, saved: SavedWeights) -> tuple[Layer, Corners]:
    layer = shown_layer(saved.network)
    rows, columns = (slice(size) for size in corner(layer))
    found = {run.lanes[lane].title: saved.of_lane(lane, layer, rows)[:, columns] for lane in saved.lanes}
    if run.config.needs_prior:
        found[prior] = saved.of_prior(layer, rows)[:, columns]
    if not saved.network.is_module:  # a PyTorch model draws its own
        first = network_parameters(saved.network, dense=True, seed=run.config.seed)[f"{layer.name}.weight"]
        found["before training"] = first[rows, columns]
    return layer, found


def shown_layer(network: Network) -> Layer:
    """The second layer that is mixed: it neither reads pixels nor ends in a point."""
    mixed = [layer for layer in network.layers if layer.interpolated]
    return mixed[min(1, len(mixed) - 1)]


def corner(layer: Layer) -> tuple[int, int]:
    """Outputs and inputs of the first channel, as many as can be seen."""
    rows, columns = (min(MOST, prod(shape[1:] or shape)) for shape in (out_shape(layer.spec), in_shape(layer.spec)))
    return rows, columns


def picture(values: np.ndarray) -> bytes:
    """A PNG in blue, white and red; the strongest hundredth of the entries is as dark as it gets."""
    from matplotlib import colormaps
    from PIL import Image

    largest = float(np.quantile(np.abs(values), 0.99)) or float(np.abs(values).max()) or 1.0
    image = Image.fromarray((127.5 + 127.5 * np.clip(values / largest, -1, 1)).round().astype(np.uint8))
    image.putpalette(colormaps["RdBu_r"](np.arange(256), bytes=True)[:, :3].tobytes())
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def data_uri(kind: str, content: bytes) -> str:
    """An image as an address inside the page."""
    return f"data:image/{kind};base64,{b64encode(content).decode()}"
