"""`add`: RepMLPNet's injection (Ding et al. 2022), by alpha."""

from dataclasses import dataclass

from imlp.couplings.interpolate import Interpolate


@dataclass(frozen=True)
class Add(Interpolate):
    """`W <- W + alpha W_P`; after every step `W` would grow without bounds."""

    formula = "W + alpha W_P (RepMLPNet)"
    every = "epoch"
    word = "added"
    adds = True
