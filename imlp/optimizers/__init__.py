"""The optimizers' settings: one file each. How a step is computed is in the file of the same name of each backend."""

from imlp.optimizers.adam import Adam
from imlp.optimizers.base import Optimizer

__all__ = ["ADAM", "OPTIMIZERS", "Adam", "Optimizer"]

OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam}
ADAM = Adam()
