"""The optimizers' settings, and the learning rate over time. How a step is computed is in a file of each backend."""

from imlp.optimizers.adam import Adam, AdamW
from imlp.optimizers.base import Optimizer
from imlp.optimizers.rate import LearningRate
from imlp.optimizers.sgd import SGD

__all__ = ["ADAM", "OPTIMIZERS", "SGD", "Adam", "AdamW", "LearningRate", "Optimizer"]

OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "sgd": SGD}
ADAM = Adam()
