"""How far a configuration is from another one, such as the paper's, but for what the paper leaves open."""

import dataclasses
from math import ceil
from typing import Any

from imlp.couplings.setting import shown
from imlp.data.cifar import LAYOUTS
from imlp.train.config import Config

OPEN = ("augment", "crop_area", "crop_aspect", "inputs", "validation")  # see docs/experiments.md
OPEN_OPTIONS = ("activated", "residual", "first_channels", "first_stride", "first_kernel", "first_padding")
OF_THE_USER = ("seed", "lanes", "backend", "dtype", "products", "compile", "deterministic")
LENGTH = ("epochs", "batch", "train_size")  # what the steps follow from


def shortfall(config: Config, wanted: Config) -> str:
    """What a run lacks to be one with the wanted settings; nothing if it is one.

    >>> shortfall(Config(data="cifar10", train_size=10000, epochs=10), Config(data="cifar10"))
    '790 of 39,100 steps'
    """
    if config.data != wanted.data:
        return f"run on {config.data}, not on {wanted.data}"
    if any(getattr(config, name) != getattr(wanted, name) for name in LENGTH):
        steps, needed = _steps(config), _steps(dataclasses.replace(wanted, validation=config.validation))
        if steps is not None and needed is not None and steps != needed:
            return f"{steps:,} of {needed:,} steps" if steps < needed else f"{steps:,} steps instead of {needed:,}"
        if config.epochs < wanted.epochs:
            return f"{config.epochs:,} of {wanted.epochs:,} epochs"
    for f in dataclasses.fields(Config):
        own, other = getattr(config, f.name), getattr(wanted, f.name)
        if f.name == "source" and not other:  # a file that only names a network does not say what its text is
            continue
        if f.metadata["changes_result"] and f.name not in (*OPEN, *OF_THE_USER) and _closed(own) != _closed(other):
            return f"{f.name.replace('_', ' ')} {shown(own)} instead of {shown(other)}"
    return ""


def _steps(config: Config) -> int | None:
    """All steps of a run; None if the number of images is not known."""
    layout = LAYOUTS.get(config.data)
    images = config.train_size or (len(layout.train) * layout.train_rows if layout else None)
    return None if images is None else config.epochs * ceil((images - config.validation) / config.batch)


def _closed(value: Any) -> Any:
    """Options of the network without those that the paper leaves open."""
    pairs = isinstance(value, tuple) and value and isinstance(value[0], tuple)
    return tuple(pair for pair in value if pair[0] not in OPEN_OPTIONS) if pairs else value
