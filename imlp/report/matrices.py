"""Parts of the matrices that the networks of an arm have learned, and images that they learned from, as pictures."""

import io
from base64 import b64encode
from dataclasses import dataclass
from math import prod

import numpy as np
from matplotlib import colormaps
from PIL import Image

from imlp.couplings import Branching
from imlp.data import NAMES
from imlp.errors import ImlpError, OutsideError
from imlp.init import network_parameters
from imlp.look.explain import in_shape, out_shape
from imlp.networks import Layer, Network
from imlp.study.scores import Arm
from imlp.train.checkpoint import DAMAGED
from imlp.train.export import SavedWeights, open_weights
from imlp.train.prepare import load_data
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import Run

MOST_SHOWN = 128  # rows or columns of a matrix that are shown, so that each can be seen

Corners = dict[str, np.ndarray]  # by what a model is called
Part = tuple[slice, slice]  # rows and columns


@dataclass(frozen=True)
class Matrices:
    """The same part of one layer's matrix by model: what some outputs of a channel read of a channel."""

    layer: Layer
    part: Part
    where: str  # which runs, after which epoch
    corners: Corners

    def shown(self, title: str) -> np.ndarray:
        """As many columns as can be seen."""
        return self.corners[title][:, :MOST_SHOWN]

    def row(self, title: str) -> np.ndarray | None:
        """What an output in the middle reads, as an image; None if its inputs are not pixels."""
        shape, values = in_shape(self.layer.spec)[1:], self.corners[title]
        if len(shape) != 2 or prod(shape) != values.shape[1]:
            return None
        width = (out_shape(self.layer.spec)[1:] or (1,))[-1]
        image: np.ndarray = values[min(len(values) - 1, len(values) // width // 2 * width + width // 2)].reshape(shape)
        return image


def matrices(arm: Arm) -> Matrices | str:
    """Each model from the first run that has it, finished ones before others; or why there is nothing to show."""
    prior, corners = f"{arm.prior_name} (the prior)", Corners()
    where: dict[str, None] = {}
    part: Part | None = None
    for run in sorted(arm.runs, key=lambda run: run.result is None):
        wanted = {lane.title for lane in run.lanes} | ({prior} if run.config.needs_prior else set())
        for path in RunFolder(run.folder).checkpoints() if wanted - corners.keys() else ():
            try:
                with open_weights(path, run.config) as saved:
                    layer, part, read = _corners(run, prior, saved, part)
            except OutsideError as error:
                return f"The matrices are not shown: {error}."
            except DAMAGED:
                continue  # the one before it
            where |= {f"seed {run.config.seed}, after epoch {saved.epoch}": None} if read.keys() - corners else {}
            corners = {**read, **corners}
            break
    if not corners or part is None:
        return "These runs are on record without their weights, so there is no matrix to show."
    titles = ("before training", *(lane.title for lane in arm.lanes), prior)
    return Matrices(layer, part, "; ".join(where), {title: corners[title] for title in titles if title in corners})


def _corners(run: Run, prior: str, saved: SavedWeights, part: Part | None) -> tuple[Layer, Part, Corners]:
    layer = shown_layer(saved.network)
    whole = saved.of_prior(layer, slice(None)) if run.config.needs_prior else None
    rows, columns = part or corner(layer, whole)
    corners = {run.lanes[lane].title: saved.of_lane(lane, layer, rows)[:, columns] for lane in saved.lanes}
    if whole is not None:
        corners[prior] = whole[rows, columns]
    if not all(np.isfinite(array).all() for array in corners.values()):  # no run saves such a checkpoint
        raise ValueError("a weight is not finite")
    in_parts = any(isinstance(lane.rule, Branching) for lane in run.lanes)  # U alone is not what such a lane began as
    if not saved.network.is_module and not in_parts:  # a PyTorch model draws its own
        first = network_parameters(saved.network, dense=True, seed=run.config.seed)[f"{layer.name}.weight"]
        corners["before training"] = first[rows, columns]
    return layer, (rows, columns), corners


def shown_layer(network: Network) -> Layer:
    """The second layer that is mixed: it neither reads pixels nor ends in a point."""
    mixed = [layer for layer in network.layers if layer.interpolated]
    return mixed[min(1, len(mixed) - 1)]


def corner(layer: Layer, prior: np.ndarray | None) -> Part:
    """Outputs of a channel, as many as can be seen, and inputs of a channel: the two that the prior connects most.

    Where it connects them weakly, a matrix that is nearly the prior's would look random.
    """
    high, wide = (prod(shape[1:] or shape) for shape in (out_shape(layer.spec), in_shape(layer.spec)))
    i = j = 0
    if prior is not None:
        of_rows = np.add.reduceat(prior**2, range(0, prior.shape[0], high), axis=0)
        energy = np.add.reduceat(of_rows, range(0, prior.shape[1], wide), axis=1)
        i, j = (int(index) for index in np.unravel_index(energy.argmax(), energy.shape))
    return slice(i * high, i * high + min(MOST_SHOWN, high)), slice(j * wide, (j + 1) * wide)


def examples(run: Run) -> dict[str, np.ndarray]:
    """The first training image of each class, (channels, height, width), if the data that the run had are here."""
    try:
        data = load_data(run.config) if run.config.data in NAMES and run.result else None
    except ImlpError:
        return {}
    if data is None or run.result is None or data.digest != run.result["data_digest"]:
        return {}
    return {name: data.x[data.y == k][0] for k, name in enumerate(data.classes[:10]) if (data.y == k).any()}


def photo(image: np.ndarray) -> bytes:
    """A training image as a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0).squeeze()).save(buffer, format="png")
    return buffer.getvalue()


def picture(values: np.ndarray) -> bytes:
    """A PNG in red, white and blue; the strongest hundredth of the entries is as dark as it gets."""
    largest = float(np.quantile(np.abs(values), 0.99)) or float(np.abs(values).max()) or 1.0
    image = Image.fromarray((127.5 + 127.5 * np.clip(values / largest, -1, 1)).round().astype(np.uint8))
    image.putpalette(colormaps["RdBu"](np.arange(256), bytes=True)[:, :3].tobytes())
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def data_uri(kind: str, content: bytes) -> str:
    """An image as an address inside the page."""
    return f"data:image/{kind};base64,{b64encode(content).decode()}"
