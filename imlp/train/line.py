"""The line from a trained lane to the prior of its run, without training: test-time interpolation for every t."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from imlp.data import ProgressCallback, silent
from imlp.errors import RunError
from imlp.files import check_path
from imlp.model import Model, exported
from imlp.model.align import align_
from imlp.model.line import Line, measured
from imlp.train.export import as_one, trained
from imlp.train.loop import Trainer
from imlp.train.prepare import load_data
from imlp.train.state import State


def line(
    run: str | Path,
    lane: int = 0,
    *,
    points: int = 11,
    align: bool = False,
    head: bool = False,
    network: str | None = None,
    coupling: str | None = None,
    progress: ProgressCallback = silent,
) -> Line:
    """Test accuracy and loss of `(1 - t) W + t W_P` with the biases, at `points` values of t, for a lane of a run.

    All layers that the network interpolates move together, then each alone. As with `alpha end:t`, head and norms are
    the lane's own for every t; `head` moves the head as well. `align` first puts the lane's hidden units into the order
    that is nearest to the prior's. `network` and `coupling` name code from outside the package, as in `imlp.load`.
    """
    if lane == "prior":
        raise RunError("the line begins at a lane, and ends at the prior", "give the number of a lane")
    config, state, saved_lane = trained(run, lane, network, coupling)
    saved_prior = trained(run, "prior", network, coupling)[2]
    trainer = Trainer(config, load_data(config, progress), check_path(run))
    if trainer.data.digest != state["data"]:
        raise RunError(f"the data are not those that {run} was trained on", "restore them")
    made, backend, numbers = saved_lane.network, trainer.backend, as_one(saved_lane)
    shapes = made.shapes(dense=True)
    whole = Model(made, True, None, {name: numbers[name] for name in shapes}, buffers=saved_lane.buffers)

    def placed(saved: Model) -> Model:
        return backend.restore(made, exported(saved, np.asarray), dense=saved.dense, **trainer.states.place)

    with trainer.on_this_machine():
        trainer.place_images()
        model, prior = placed(whole), placed(saved_prior)
        if align:
            align_(backend, model, prior)
        start = {name: 1 * parameter for name, parameter in model.parameters.items()}

        def move(layers: Sequence[str], t: float) -> None:
            for name, parameter in model.parameters.items():
                parameter[...] = start[name]
            trunk: list[Any] = [name for name in layers if name != "head"]
            backend.mix(model, prior, t, layers=trunk, head="head" in layers)

        def score() -> tuple[float, float]:
            return trainer.images.scores(State(None, model, [0]))[0]

        names = [*made.interpolated, *(["head"] if head else [])]
        return measured(names, points, move, score, progress)
