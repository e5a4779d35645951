"""What a run is: frozen dataclasses, written as TOML, every field documented and settable by an option."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import inf, isinf
from pathlib import Path
from typing import Any

from imlp import networks
from imlp.augment import AUGMENTATIONS
from imlp.backend import backend as get_backend
from imlp.couplings.schedule import alphas_of
from imlp.couplings.setting import (
    deciding,
    from_mapping,
    of_data,
    of_machine,
    of_training,
    options_of,
    setting,
    with_settings_of,
)
from imlp.errors import BackendError, ConfigError, ImlpError, known
from imlp.files import is_text, parse_toml, read_bytes, reason, shown
from imlp.networks import Network
from imlp.optimizers import OPTIMIZERS, LearningRate, Optimizer
from imlp.plugins import Outside, imported, is_outside, named_before, without_place
from imlp.train.lane import Lane, cadences_of, lanes_of, split_cadence

LIMITS = {  # of numbers: more must be a mistake
    "epochs": (1, 10_000_000), "batch": (1, 10_000_000), "seed": (0, 10**18), "threads": (0, 1024),
    "train_size": (1, inf), "test_size": (1, inf), "save_minutes": (0, inf), "validation": (0, inf),
    "held_out": (0, inf), "mixup": (0, 1000), "label_smoothing": (0, 0.99),
}  # fmt: skip
CHOICES = {
    "augment": AUGMENTATIONS, "labels": ("fine", "coarse"), "backend": ("accel", "reference"),
    "dtype": ("float32", "float64"), "inputs": ("standardised", "unit", "signed"), "products": ("full", "bfloat16"),
    "optimizer": tuple(OPTIMIZERS), "shift": ("none", "end", "epoch"),
}  # fmt: skip
MOST_SEEDS = 10_000
WIDEST, DEEPEST_NETWORK = 1_000_000, 1000  # of the network's options
RECIPES = Path(__file__).with_name("recipes")
ALONE = "none"  # as alpha: no lanes, the prior alone


@dataclass(frozen=True)
@with_settings_of(LearningRate, *OPTIMIZERS.values())
class Config:
    """Everything that determines a run, and a few settings of the machine that it runs on."""

    network: str = of_data(
        "cnn",
        "The pair: cnn, mixer, mlp1, mlp2 or resnet; or a function that makes a network or a PyTorch model: "
        "FILE.py:NAME, torchvision.models:resnet18.",
    )
    source: str | None = of_data(None, "SHA-256 of the source file of a network from outside the package.")
    options: tuple[tuple[str, Any], ...] = of_data(
        (), "Options of the network, NAME=VALUE: residual=false, patch=4, ...."
    )
    data: str = of_data("shapes", "shapes (embedded), cifar10, cifar100, a folder of class folders, or an .npz.")
    labels: str = of_data("fine", "fine, or coarse for the 20 superclasses of cifar100.")
    train_size: int | None = of_data(None, "Use only this many training images.")
    test_size: int | None = of_data(None, "Use only this many test images.")
    augment: str = of_data(
        "pad",
        "Random crops: pad (shift by up to 4, black outside), pad-mean (the mean colour), resized; all flip. Or none.",
    )
    crop_area: str = of_data("0.08,1", "Smallest and largest share of the area that resized cuts out.")
    crop_aspect: str = of_data("3/4,4/3", "Smallest and largest width over height that resized cuts out.")
    mixup: float = of_data(
        0.0,
        "Mix each image and its label with another one of the batch, by a share from Beta(A, A); 0: none.",
    )
    label_smoothing: float = of_training(0.0, "The share of each label that is spread evenly over all classes.")
    inputs: str = of_data(
        "standardised",
        "standardised (mean 0, deviation 1 by channel), unit: pixels from 0 to 1, or signed: from -1 to 1.",
    )
    validation: int = of_data(0, "Hold out this many training images, chosen by the seed, and report them separately.")
    held_out: float = of_data(
        0.0, "In a trial of search: the share of the training images that is tested instead of the test images."
    )
    densify: str = of_data(
        "",
        "For a PyTorch model: which layers become dense, like 'layer4*,!layer4.0.conv1'. Default: all convolutions, "
        "and linear layers that serve many rows.",
    )
    epochs: int = of_training(None, "Passes over the images. Default: 10 for shapes, otherwise the paper's 100.")
    batch: int = of_training(128, "Images per step.")
    optimizer: str = of_training("adam", f"The optimizer: {', '.join(OPTIMIZERS)}.")
    lr: float = of_training(
        None, "The learning rate. Default: 3e-4 for shapes, otherwise the paper's 1e-4; 0.01 with sgd."
    )
    seed: int = of_training(0, "Seed of the weights, the order of the images, crops and flips.")
    shift: str = of_training(
        "end",
        "The shift meter, how much one pixel changes what is computed: none, end (of the run), epoch (after each).",
        changes_result=False,
    )
    lanes: tuple[Lane, ...] = setting((Lane(),), "The I-MLPs, all beside one prior.")
    backend: str = of_machine("accel", "accel (PyTorch) or reference (NumPy, float64, to learn from).")
    dtype: str = of_machine("float32", "float32 or float64. The reference always computes in float64.")
    products: str = of_machine(
        "full",
        "bfloat16: multiply the matrices of dense layers in bfloat16, which is faster where the processor or GPU has "
        "it; weights stay in dtype.",
    )
    device: str = of_machine(
        "auto",
        "auto (cuda if there is one, otherwise cpu), cpu, cuda, cuda:1, or mps (untested).",
        changes_result=False,
    )
    threads: int = of_machine(0, "Threads of the CPU; 0 leaves the choice to torch.", changes_result=False)
    compile: bool = of_machine(False, "Compile the training step (needs a C++ compiler; slow start).")
    deterministic: bool = of_machine(False, "Use deterministic kernels only, also on CUDA.")
    save_minutes: float = of_machine(10.0, "Minutes between checkpoints within an epoch.", changes_result=False)
    keep_moments: bool = of_machine(
        False,
        "Keep the optimizer's state when a run has ended (up to three times the space), so that train --resume can add "
        "epochs.",
        changes_result=False,
    )

    def __post_init__(self) -> None:
        lanes = self.lanes if isinstance(self.lanes, (list, tuple)) else (self.lanes,)
        if {} in lanes and self.lanes is not lanes:
            raise ConfigError("lanes is an empty table", "write [] for a prior alone, or give an alpha")
        object.__setattr__(self, "lanes", tuple(from_mapping(Lane, lane) for lane in lanes))
        pairs = options_of("options", self.options)
        object.__setattr__(self, "options", tuple(pair for pair in pairs if pair[1] is not None))
        for name, value in self.options:
            largest = DEEPEST_NETWORK if name == "depth" else WIDEST
            numbers = [n for n in (value if isinstance(value, tuple) else (value,)) if isinstance(n, int | float)]
            if any(not abs(n) <= largest for n in numbers):
                raise ConfigError(f"{name} is {value!r:.40}", f"give numbers of at most {largest:,}")
        image = dict(self.options).get("image", (1, 1, 1))
        if not (isinstance(image, tuple) and len(image) == 3 and all(isinstance(size, int) for size in image)):
            raise ConfigError(f"image is {image!r}", "give [channels, height, width]")
        if not is_outside(self.network):
            networks.check_name(self.network)
            object.__setattr__(self, "source", None)
        elif self.source is None:  # named by the user, and not read from the folder of a run
            object.__setattr__(self, "source", imported(self.network).digest)
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ConfigError(f"{name} is {value!r}", f"give at least {least}")
            if value is not None and value > most:
                raise ConfigError(f"{name} is too large", f"give at most {most:,}")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", f"use {' or '.join(allowed)}")
        usual = OPTIMIZERS[self.optimizer].lr
        for name, value in (("epochs", 10), ("lr", 3e-4)) if self.data == "shapes" else (("epochs", 100), ("lr", 1e-4)):
            value = usual if name == "lr" and usual != Optimizer.lr else value
            object.__setattr__(self, name, value if getattr(self, name) is None else getattr(self, name))
        if self.products == "bfloat16" and (self.backend, self.dtype) != ("accel", "float32"):
            beside = "reference" if self.backend == "reference" else self.dtype
            raise ConfigError(f"products is bfloat16 with {beside}", "use it with the backend accel and dtype float32")
        _ = self.crop, self.optimizer_settings, self.learning_rate(1)  # which check them
        settings = {f.name for f in dataclasses.fields(OPTIMIZERS[self.optimizer])}
        for owner, f in ((owner, f) for owner, kind in OPTIMIZERS.items() for f in dataclasses.fields(kind)):
            if f.name not in settings and getattr(self, f.name) != f.default:
                remedy = f"leave it out, or add --optimizer {owner}"
                raise ConfigError(f"{f.name} is for the optimizer {owner}, not {self.optimizer}", remedy)
        for name, text in (("data", self.data), *((f"options.{name}", str(value)) for name, value in self.options)):
            if not is_text(text):
                raise ConfigError(f"{name} is {text!r:.60}, which is not UTF-8", "rename it")

    def learning_rate(self, steps: int) -> LearningRate:
        """The learning rate of each step, given the steps of an epoch."""
        return LearningRate(**self._own(LearningRate), lr=self.lr, epochs=self.epochs, steps=steps)

    @cached_property
    def optimizer_settings(self) -> Optimizer:
        """The optimizer with its settings, as the backends take it."""
        kind = OPTIMIZERS[self.optimizer]
        return kind(**self._own(kind))

    def _own(self, kind: type) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(kind) if f.metadata}

    @property
    def machine_settings(self) -> dict[str, Any]:
        """What a backend's `computing` sets for the time of a run."""
        return {name: getattr(self, name) for name in ("threads", "deterministic", "products")}

    @property
    def crop(self) -> dict[str, tuple[float, float]]:
        """Area and aspect of a `resized` crop as numbers."""
        return {
            "area": _range("crop_area", self.crop_area, largest=1.0),
            "aspect": _range("crop_aspect", self.crop_aspect),
        }

    def make_network(self, image: tuple[int, int, int] | None = None, classes: int | None = None) -> Network:
        """The network for images and classes of the data; its own defaults where they are not known yet."""
        sizes = {"image": image, "classes": classes}
        options = {**{name: value for name, value in sizes.items() if value is not None}, **dict(self.options)}
        network: Any = None
        if self.source is not None:
            outside = named_before(self.network, self.source)
            network = networks.from_outside(outside, **options) or self._make_module(outside, image, classes)
        try:
            network = network or networks.make(self.network, **options)
        except ImlpError:
            raise
        except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
            given = ", ".join(f"{name}={value!r}" for name, value in self.options)
            remedy = "give each option a value like its default"
            raise ConfigError(f"{self.network} cannot be made with {given}", remedy) from error
        if self.densify and not network.is_module:
            remedy = f"it is for PyTorch models: {self.network} is dense, and --layers says which layers are mixed"
            raise ConfigError(f"densify is {self.densify!r}", remedy)
        if classes is not None and network.classes < classes:
            problem = f"{self.network} has {network.classes} outputs, but the data have {classes} classes"
            as_many = f"give it as many: --options num_classes={classes}"
            raise ConfigError(problem, as_many if network.is_module else "leave the option out")
        return network  # a module answers as a Network does

    def _make_module(self, outside: Outside, image: tuple[int, int, int] | None, classes: int | None) -> Any:
        get_backend("accel")  # it names what is missing
        if self.compile:
            raise BackendError("the step of a PyTorch model is not compiled", "leave out --compile")
        from imlp.train.modules import module_network

        name, size = f"{outside.place}:{outside.name}", tuple(image or (3, 32, 32))
        network = module_network(name, outside.digest, size, classes, self.options, self.densify)
        if self.backend != "accel":
            raise ConfigError(f"backend is {self.backend!r}, but {self.network} is a PyTorch model", "use accel")
        return network

    @property
    def measure(self) -> str:
        """What its accuracies are measured on: the test images, or images held out in their place."""
        return "validation accuracy" if self.held_out else "test accuracy"

    @property
    def needs_prior(self) -> bool:
        """Whether any of the lanes needs a prior to be trained beside it; without lanes it is trained alone."""
        return not self.lanes or any(lane.needs_prior for lane in self.lanes)

    @property
    def network_name(self) -> str:
        """The network as a table or a file's name shows it, without the place of one from outside."""
        return self.network.rpartition(":")[2]

    @property
    def identity(self) -> str:
        """A hash of what determines the result: 16 hexadecimal digits, the same in every process.

        >>> Config().identity == Config(device="cpu", threads=2).identity != Config(seed=1).identity
        True
        """
        text = json.dumps(self._determining, sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def _determining(self) -> dict[str, Any]:
        lanes = [lane.identity for lane in self.lanes]
        return deciding(self) | {"network": without_place(self.network), "lanes": lanes}


def recorded(values: Mapping[str, Any]) -> Config:
    """The settings that a run's files state. Code from outside that they name is not run by reading them."""
    settings = {**values, "source": values.get("source") or ""} if isinstance(values, Mapping) else values
    if isinstance(settings, dict) and isinstance(settings.get("lanes"), list | tuple):
        settings["lanes"] = _recorded_lanes(settings["lanes"])
    return from_mapping(Config, settings)


def _recorded_lanes(lanes: Iterable[Any]) -> list[Any]:
    return [{"coupling_source": "", **lane} if isinstance(lane, Mapping) else lane for lane in lanes]


def check_seeds(seeds: int) -> int:
    """The number of seeds, if it is a plausible one: every seed is a separate run."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise ConfigError(f"seeds is {seeds!s:.40}", f"give 1 to {MOST_SEEDS:,}: each seed is a separate run")
    return seeds


def read(path: Path) -> dict[str, Any]:
    """The settings of a TOML file, not yet checked."""
    try:
        return parse_toml(read_bytes(path))
    except OSError as error:
        raise ConfigError(f"cannot read {shown(path)}: {reason(error)}", "name a TOML file that exists") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: {error}", "see config.toml of any run for an example") from error


def with_recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over those of the recipe that they name, a file beside this one; as they are if they name none."""
    settings = dict(values)
    if "recipe" not in settings:
        return settings
    names = sorted(path.stem for path in RECIPES.glob("*.toml"))
    return {**read(RECIPES / f"{known(str(settings.pop('recipe')), names, 'recipe')}.toml"), **settings}


def combined(values: Mapping[str, Any], settings: Mapping[str, Any]) -> Config:
    """The settings of a file with others over them.

    `options` are joined. Settings of a lane go to every lane; `alpha`, one text or several, replaces the lanes.
    """
    own, merged = with_recipe(settings), with_recipe(values)
    if "network" in own:
        merged.pop("source", None)
    lane = {f.name: own.pop(f.name) for f in dataclasses.fields(Lane) if f.name in own}
    base = merged.get("options", {})
    if "options" in own:
        if not isinstance(base, dict):
            raise ConfigError(f"options is {base!r}", "give a table of the network's options")
        own["options"] = {**base, **own["options"]}
    merged |= own
    there = merged.get("lanes")
    if there is None or "alpha" in lane:
        merged["lanes"] = _listed(lane.pop("alpha", None), **lane)
    elif lane or isinstance(there, list | tuple):
        if "coupling" in lane:
            lane["coupling_source"] = None
        each = _recorded_lanes(there if isinstance(there, list | tuple) else [there])
        merged["lanes"] = [{**one, **lane} if isinstance(one, Mapping) else one for one in each]
    return from_mapping(Config, merged)


def _listed(alphas: str | Iterable[str] | None, *, every: str | None = None, **common: Any) -> Iterable[Any]:
    """The lanes of a run: all that were listed, in order, and with several cadences as a sweep has them."""
    if alphas is None:  # the coupling's own
        return [{**common, "every": cadence} for cadence in cadences_of(every)] if every else [common]
    if list(alphas) == [ALONE] or alphas == ALONE:
        for name in common if every is None else ("every", *common):
            raise ConfigError(f"{name} is for lanes, and alpha {ALONE} has none", f"leave out --{name}")
        return []
    if every and "," in every:
        return lanes_of(alphas, every, **common)
    listed = [alpha for text in ([alphas] if isinstance(alphas, str) else alphas) for alpha in alphas_of(text)]
    split = [split_cadence(text) for text in listed]
    cadences = [(alpha, every if cadence is None else cadence) for alpha, cadence in split]
    return [{**common, "alpha": alpha} | ({} if cadence is None else {"every": cadence}) for alpha, cadence in cadences]


def to_toml(config: Config) -> str:
    """The whole configuration as TOML, each setting with its help text, that `read` reads again."""
    lines = []
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if f.name not in ("lanes", "options") and value is not None:
            lines += [f"# {f.metadata['help']}", f"{f.name} = {_toml(value)}"]
    lines += [] if config.lanes else ["# No lanes: the prior alone.", "lanes = []"]
    lines += ["", "[options]", *(f"{name} = {_toml(value)}" for name, value in config.options)]
    for lane in config.lanes:
        lines += ["", "[[lanes]]"]
        settings = {f.name: getattr(lane, f.name) for f in dataclasses.fields(lane) if f.name != "coupling_options"}
        lines += [f"{name} = {_toml(value)}" for name, value in settings.items() if value is not None]
        table = ", ".join(f"{name} = {_toml(value)}" for name, value in lane.coupling_options)
        lines += [f"coupling_options = {{ {table} }}"] if table else []
    return "\n".join(lines) + "\n"


def differences(one: Config, other: Config) -> list[str]:
    """The settings that determine the result and differ, one line each."""
    there, here = one._determining, other._determining
    return [
        f"{name}: {_shown(getattr(one, name))} there, {_shown(getattr(other, name))} here"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]


def _shown(value: Any) -> str:
    lanes = isinstance(value, tuple) and any(isinstance(item, Lane) for item in value)
    return "; ".join(lane.title for lane in value) if lanes else repr(value)


def _toml(value: Any) -> str:
    """Booleans, numbers, strings and lists of them look in TOML as they look in JSON, but for inf, nan and DEL."""
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(text, text.replace("\x7f", "\\u007f"))


def _range(name: str, text: str, largest: float = float("inf")) -> tuple[float, float]:
    """`0.4,1` or `3/4,4/3` as two numbers in order."""
    try:
        low, high = (float(Fraction(part)) for part in text.split(","))
    except (ValueError, ZeroDivisionError, OverflowError):
        low = high = 0.0
    if not 0 < low <= high <= largest:
        at_most = "" if isinf(largest) else f", at most {largest:g}"
        raise ConfigError(f"{name} is {text!r}", f"give two numbers above 0 in order{at_most}, for example 0.4,1")
    return low, high
