"""What the page calls runs: their settings in words."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from imlp.couplings.setting import shown
from imlp.train.config import Config

NOT_TOLD = ("network", "data", "seed", "lanes", "products", "source", "held_out")  # said anyway, or an arm has several
PAIRS = {"cnn": "CNN", "mixer": "MLP-Mixer", "mlp1": "MLP1", "mlp2": "MLP2", "resnet": "ResNet"}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
WORDS = {  # a setting, or one of its values; others are called by their names
    "augment pad": "crops with a black margin",
    "augment pad-mean": "crops with a margin in the mean colour",
    "augment resized": "resized crops",
    "augment none": "no crops or flips",
    "crop_area": "crops of {} of the area",
    "crop_aspect": "crops with width over height {}",
    "inputs standardised": "standardised pixels",
    "inputs unit": "pixels from 0 to 1",
    "validation": "{} images held out",
    "train_size": "{} training images",
    "test_size": "{} test images",
    "epochs": "{} epochs",
    "batch": "batches of {}",
    "lr": "learning rate {}",
    "activated": "norms and GELU after layers {}",
}


def arm_titles(configs: Sequence[Config]) -> list[str]:
    """Network and data, and the settings that tell the arms apart; of several, only those that are not the default.

    >>> arm_titles([Config(data="cifar10"), Config(data="cifar10", augment="none")])
    ['CNN pair on CIFAR-10: crops with a black margin', 'CNN pair on CIFAR-10: no crops or flips']
    """
    fields = [f for f in dataclasses.fields(Config) if f.metadata["changes_result"] and f.name not in NOT_TOLD]
    apart = [f for f in fields if len({getattr(c, f.name) for c in configs}) > 1]

    def title(config: Config) -> str:
        told = [f.name for f in apart if len(apart) == 1 or getattr(config, f.name) != f.default]
        words = ", ".join(filter(None, (_in_words(name, getattr(config, name)) for name in told)))
        pair = f"{PAIRS[config.network]} pair" if config.network in PAIRS else config.network_name
        data = DATA.get(config.data, Path(config.data).name)
        data += f" (validation {config.held_out:g})" if config.held_out else ""
        return f"{pair} on {data}" + (f": {words}" if words else "")

    return list(map(title, configs))


def _in_words(name: str, value: Any) -> str:
    if name == "options":
        return ", ".join(_in_words(*option) for option in value)
    word = name.replace("_", " ")
    if isinstance(value, bool):
        return word if value else f"not {word}"
    text = f"{value:,}" if isinstance(value, int) else shown(value).replace(" ", " and ").replace(",", " to ")
    return WORDS.get(f"{name} {value}", WORDS.get(name, f"{word} {{}}")).replace("{}", text)
