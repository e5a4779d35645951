"""How far an I-MLP stays from its prior: what Adam's steps and the pull should leave standing, beside what they do.

A short run on the embedded images, with some alphas after every step. For each layer it prints the root mean square of
the entries of W - W_P after the last step beside the prediction of docs/equations.md, and how large the outputs of
W - W_P are beside those of W_P: as independent entries would have it, and on the test images.

    python examples/deviation.py            # 310 steps, less than a minute
"""

from itertools import pairwise
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from imlp.train.config import Config
from imlp.train.lane import lanes_of
from imlp.train.loop import Trainer
from imlp.train.prepare import load_data


def predicted(lr: float, alpha: float, beta1: float = 0.9) -> float:
    """The deviation that Adam leaves standing if the gradients of all steps are independent.

    >>> round(predicted(1e-3, 1e-4), 5), round(1e-3 / sqrt(2e-4), 5)
    (0.07068, 0.07071)
    """
    q = 1 - alpha
    adam = (1 - beta1) / (1 + beta1) * (1 + q * beta1) / (1 - q * beta1)
    return lr * q * sqrt(adam / (1 - q**2))


def main(lr: float = 1e-3) -> None:
    lanes = lanes_of("0.01,0.03,0.1,0.3", "step")
    options = {"width": 256, "strides": (2, 2, 2)}
    config = Config(train_size=1000, test_size=100, epochs=10, batch=32, lr=lr, lanes=lanes, options=options)
    with TemporaryDirectory() as folder:
        trainer = Trainer(config, load_data(config), Path(folder) / "run")
        trainer.run()
    backend, prior, network = trainer.backend, trainer.state.prior, trainer.network
    x = trainer.images.batch(trainer.images.test, np.arange(100))
    print("alpha  layer  measured  predicted  ratio   outputs, relative to the prior's: if independent  measured")
    for index, lane in enumerate(config.lanes):
        model, seen = trainer.state.lanes.lane(index), [("images", x)]
        backend.forward(model, x, watch=lambda name, result, to=seen: to.append((name, result)))
        for (_, z), (name, _) in pairwise(seen):  # z (N, M_in) is what reaches the layer
            if name not in network.interpolated:
                continue
            spec = network.layer(name).spec
            W_P = backend.to_numpy(backend.matrix(spec, prior.weight_of(name, spec), layout="dense"))
            deviation, z = backend.to_numpy(backend.weight(model, name)) - W_P, backend.to_numpy(z)
            measured, expected = rms(deviation), predicted(lr, float(lane.alpha))
            independent = expected / rms(W_P)  # sqrt(M_in) d beside |W_P| / sqrt(M_out)
            outputs = rms(z @ deviation.T) / rms(z @ W_P.T)
            line = f"{lane.alpha:5s}  {name}  {measured:.5f}   {expected:.5f}    {measured / expected:5.2f}"
            print(f"{line}   {independent:47.2f}  {outputs:8.2f}")


def rms(array: np.ndarray) -> float:
    return sqrt((array.astype(np.float64) ** 2).mean())


if __name__ == "__main__":
    main()
