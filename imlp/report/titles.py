"""What the page calls runs: their settings in words."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from imlp.train.config import Config

NOT_TOLD = (
    "network",
    "data",
    "seed",
    "lanes",
    "products",
    "source",
    "held_out",
)  # said anyway, or runs of an arm differ in it
PAIRS = {
    "cnn": "CNN pair",
    "mixer": "MLP-Mixer pair",
    "mlp1": "MLP1 pair",
    "mlp2": "MLP2 pair",
    "resnet": "ResNet pair",
}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
CROPS = {
    "pad": "crops with black margins",
    "pad-mean": "crops with margins of the mean colour",
    "resized": "resized crops",
    "none": "no crops",
}
WORDS: dict[str, Callable[[Any], str | None]] = {
    "augment": CROPS.get,
    "inputs": {"unit": "pixels from 0 to 1", "standardised": "standardised pixels"}.get,
    "labels": "{} labels".format,
    "train_size": lambda n: "all images" if n is None else f"{n:,} images",
    "test_size": lambda n: "all test images" if n is None else f"{n:,} test images",
    "validation": lambda n: f"{n:,} images held out" if n else "no images held out",
    "crop_area": lambda text: f"of {text.replace(',', ' to ')} of the area",
    "crop_aspect": lambda text: f"of aspect {text.replace(',', ' to ')}",
    "epochs": "{:,} epochs".format,
    "batch": "batches of {:,}".format,
    "lr": "learning rate {:g}".format,
    "densify": "dense layers {}".format,
    "activated": lambda layers: f"norms after layers {' and '.join(map(str, layers))}",
    "residual": lambda yes: "residual" if yes else "not residual",
}


def arm_titles(configs: Sequence[Config]) -> list[str]:
    """Network and data, and whatever else tells the arms apart; where that is much, only what is not the default.

    >>> arm_titles([Config(data="cifar10"), Config(data="cifar10", augment="none")])
    ['CNN pair on CIFAR-10: crops with black margins', 'CNN pair on CIFAR-10: no crops']
    """
    fields = [f for f in dataclasses.fields(Config) if f.metadata["changes_result"] and f.name not in NOT_TOLD]
    apart = [f for f in fields if len({getattr(c, f.name) for c in configs}) > 1]

    def title(config: Config) -> str:
        told = [f.name for f in apart if len(apart) == 1 or getattr(config, f.name) != f.default]
        words = ", ".join(filter(None, (_in_words(name, getattr(config, name)) for name in told)))
        data = DATA.get(config.data, Path(config.data).name)
        data += f" (validation {config.held_out:g})" if config.held_out else ""
        return f"{PAIRS.get(config.network, config.network_name)} on {data}" + (f": {words}" if words else "")

    return list(map(title, configs))


def _in_words(name: str, value: Any) -> str:
    if name == "options":
        return ", ".join(_in_words(*option) for option in value)
    return (name in WORDS and WORDS[name](value)) or f"{name.replace('_', ' ')} {shown(value)}"


def shown(value: Any) -> str:
    """A setting's value as a table writes it.

    >>> shown(None), shown(True), shown((("patch", 4),)), shown((1, 2)), shown(1e-4)
    ('all', 'yes', 'patch=4', '1 2', '0.0001')
    """
    match value:
        case None:
            return "all"
        case bool():
            return "yes" if value else "no"
        case ((str(), _), *_):
            return ", ".join(f"{name}={shown(option)}" for name, option in value)
        case tuple():
            return " ".join(map(shown, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
