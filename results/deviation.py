"""How far I-MLPs are from their priors, beside what docs/equations.md predicts of Adam, as CSV.

    python results/deviation.py RUN... > results/NAME/deviation.csv    # folders of finished runs with checkpoints

For each lane that is mixed and each layer: the root mean square of the entries of W - W_P, what Adam and the pull
should leave standing, and the root mean square of the entries of W_P. Nothing is fitted. The prediction goes from step
to step, so learning rate and alpha may change, and it counts what is left of the initial weights.
"""

import csv
import sys
from collections.abc import Iterable, Iterator
from math import sqrt
from pathlib import Path

import numpy as np

from imlp.init import network_parameters
from imlp.train.export import open_weights, prior_matrix
from imlp.train.moves import LaneInterpolation
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import Run, find_runs


def predicted(steps: Iterable[tuple[float, float]], start: float, beta1: float) -> float:
    """The deviation after steps at these learning rates and alphas, if the gradients of all steps are independent."""
    noise, square, product = (1 - beta1) / (1 + beta1), start**2, 0.0  # E[s^2], E[D^2], and E[D s] with the s to come
    for lr, alpha in steps:
        q = 1 - alpha
        square, product = q**2 * (square - 2 * lr * product + lr**2 * noise), beta1 * q * (product - lr * noise)
    return sqrt(square)


def compared(run: Run) -> Iterator[tuple[str, str, float, float, float]]:
    """Lane, layer, the deviation measured, that predicted, and the size of W_P."""
    with open_weights(RunFolder(run.folder).checkpoints()[0], run.config) as saved:
        network, lanes, steps = saved.network, run.config.lanes, int(saved.file.get_tensor("lanes/optimizer.step"))
        rate = run.config.learning_rate(steps // saved.epoch)
        own, small = (network_parameters(network, dense=dense, seed=run.config.seed) for dense in (True, False))
        for n in (n for n in saved.lanes if lanes[n].is_mixed_repeatedly and lanes[n].rule.name == "interpolate"):
            interpolation, every = LaneInterpolation(network, lanes, rate), lanes[n].steps or rate.steps
            due = ((s, (s + 1) % every == 0) for s in range(steps))
            alphas = [interpolation.alphas(n, s // rate.steps, s + 1)["alpha"] if mixed else {} for s, mixed in due]
            for layer in map(network.layer, network.interpolated):
                drawn = {part: small[f"{layer.name}.{part}"] for part in layer.spec.parameters}
                start = own[f"{layer.name}.weight"] - prior_matrix(layer, drawn)
                W_P = saved.of_prior(layer, slice(None))
                end = saved.of_lane(n, layer, slice(None)) - W_P
                pairs = ((rate.at(s), pulls.get(layer.name, 0.0)) for s, pulls in enumerate(alphas))
                first, last, prior = (sqrt(np.square(D).mean()) for D in (start, end, W_P))
                yield lanes[n].title, layer.name, last, predicted(pairs, first, run.config.beta1), prior


if __name__ == "__main__":
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["run", "lr", "model", "layer", "measured", "predicted", "prior"])
    for run in (run for run in find_runs(map(Path, sys.argv[1:])) if run.result and run.config.optimizer != "sgd"):
        table.writerows([run.folder.name, run.config.lr, *row] for row in compared(run))
