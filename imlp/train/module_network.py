"""A PyTorch model as the trainer sees a network: names, specs and shapes, for the module itself and its dense form.

The modules kept here are skeletons: their parameters and buffers have shapes but no numbers. Those are in a `Model`,
like those of the networks that imlp describes itself, and are put into a skeleton for the time of a call.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import prod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from imlp import reference
from imlp.errors import ConfigError, ModuleError, known
from imlp.networks import Layer
from imlp.nn.densify import replaced
from imlp.nn.factory import make
from imlp.nn.find import Plan, find, undisturbed
from imlp.nn.pairs import prior_numbers
from imlp.nn.weights import is_computed
from imlp.plugins import imported
from imlp.spec import Shape

SEED = "imlp.seed"  # a buffer beside the module's own: what the random numbers of its forward pass are drawn from


class ModuleNetwork:
    """A function that makes a module, with everything that is known of both forms of it before any number is drawn.

    `layers` are those that become dense, in the order of the forward pass.
    """

    is_module: ClassVar[bool] = True

    def __init__(self, name: str, image: Shape, build: Callable[..., nn.Module], densify: tuple[str, ...]):
        self.name, self.image, self._build = name, image, build
        module = build(seed=0)
        self.plan = find(module, image, densify or None)
        self._refuse_untrained(module, self.plan)
        self.layers = tuple(Layer(found.name, found.spec, found.kind) for found in self.plan.layers)
        bare = _without_numbers(module)
        self.skeletons = {False: bare, True: replaced(bare, self.plan, init="random")}
        self.classes, self.activations = self._sizes(module)
        self._ready: dict[Any, nn.Module] = {}

    @staticmethod
    def _refuse_untrained(module: nn.Module, plan: Plan) -> None:
        for found in plan.layers:
            own = module.get_submodule(found.name)
            if not found.name:
                raise ModuleError(f"the model is a single {found.kind}", "put it into a torch.nn.Sequential")
            for part in ("weight", "bias"):
                if is_computed(own, part):
                    problem = f"the {part} of {found.name} is made of other parameters, which the trainer cannot mix"
                    raise ModuleError(
                        problem, f"remove the parametrization, or leave it out: --densify '!{found.name}'"
                    )
            weight = getattr(own, "weight", None)
            if weight is None or not weight.requires_grad:
                raise ModuleError(f"{found.name} is not trained, so there is nothing to mix in", "leave it out")

    def _sizes(self, module: nn.Module) -> tuple[int, int]:
        """How many numbers come out for one image, and how many all modules compute on the way."""
        widths: list[int] = []

        def note(own: nn.Module, args: Any, result: Any) -> None:
            widths.append(result[0].numel() if isinstance(result, Tensor) and result.ndim else 0)

        hooks = [own.register_forward_hook(note) for own in module.modules() if not any(own.children())]
        like = next(module.parameters())
        with undisturbed(module), torch.no_grad():
            logits = module(torch.zeros(2, *self.image, dtype=like.dtype))
        for hook in hooks:
            hook.remove()
        if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModuleError(f"{self.name} returns {shape} for two images", "it has to return logits (N, classes)")
        return logits.shape[1], sum(widths)

    # What the trainer asks of a network

    def layer(self, name: str) -> Layer:
        """The layer called `name`."""
        if name == "head" and name not in self.interpolated:
            problem = f"{self.name} has no head that imlp knows of"
            raise ConfigError(problem, "let its last layer become dense as well: --densify '*'")
        return {layer.name: layer for layer in self.layers}[known(name, self.interpolated, f"layer of {self.name}")]

    @property
    def interpolated(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.layers)

    def operations(self, *, dense: bool) -> tuple[Layer, ...]:
        """The layers that have a prior; what else there is, only the module knows."""
        return self.layers

    def shapes(self, *, dense: bool) -> dict[str, Shape]:
        """The shape of every parameter that is trained, by the name that it has in the module."""
        parameters = self.skeletons[dense].named_parameters()
        return {name: tuple(parameter.shape) for name, parameter in parameters if parameter.requires_grad}

    def buffers(self, *, dense: bool) -> dict[str, Shape]:
        """The shapes of what a module holds besides: running statistics, parameters that are not trained, the seed."""
        trained = {
            name for name, p in self.skeletons[dense].named_parameters(remove_duplicate=False) if p.requires_grad
        }
        state = {name: own for name, own in self.skeletons[dense].state_dict().items() if isinstance(own, Tensor)}
        return {SEED: ()} | {name: tuple(own.shape) for name, own in state.items() if name not in trained}

    def n_parameters(self, *, dense: bool) -> int:
        return sum(map(prod, self.shapes(dense=dense).values()))

    @property
    def n_interpolated(self) -> int:
        return self.plan.numbers

    # Numbers

    def made(self, *, seed: int, dense: bool) -> nn.Module:
        """The module with the numbers that its function draws; a dense form takes from it what is not replaced."""
        return self._build(seed=stream(seed, "i-mlp" if dense else "prior"))

    def skeleton(self, *, dense: bool, like: Tensor) -> nn.Module:
        """The module to put numbers into, with its other tensors (buffers that are not saved) as `like`."""
        key = (dense, like.dtype, like.device)
        if key not in self._ready:
            module = self.skeletons[dense] if not self._ready else copy.deepcopy(self.skeletons[dense])
            for own in module.modules():
                for name in own._non_persistent_buffers_set & set(own._buffers):
                    tensor = own._buffers[name]
                    if tensor is not None:
                        own._buffers[name] = tensor.to(like.device, like.dtype if tensor.is_floating_point() else None)
            self._ready[key] = module
        return self._ready[key]

    def trained(self, arrays: Mapping[str, np.ndarray], *, dense: bool) -> nn.Module:
        """A module with these numbers, for images from 0 to 1: `mean` and `std` say how they were standardised."""
        skeleton = copy.deepcopy(self.skeletons[dense])
        state = {name: torch.tensor(arrays[name]) for name in skeleton.state_dict()}
        skeleton.load_state_dict(state, assign=True)
        like = next(skeleton.parameters())
        return nn.Sequential(Standardise(arrays["mean"], arrays["std"], like), skeleton)

    def reference_error(self, *, seed: int = 0) -> float:
        """The largest difference between a layer of the module and its matrix in the reference, relative, in float64.

        Both are given what reaches the layer when the module runs on two random images.
        """
        module = self.made(seed=seed, dense=False).double()
        errors: list[float] = []

        def compare(found: Any, own: nn.Module, args: Any, kwargs: Any, result: Tensor) -> None:
            x = next(iter((*args, *kwargs.values()))).detach().flatten(1).numpy()
            weight, bias = prior_numbers(own, found.spec, like=result)
            small = np.zeros(found.spec.bias_shape) if bias is None else bias.numpy()
            expected = reference.apply(found.spec, weight.numpy(), small, x)
            difference = np.abs(result.detach().flatten(1).numpy() - expected).max()
            errors.append(float(difference / max(np.abs(expected).max(), 1e-30)))

        for found in self.plan.layers:
            own = module.get_submodule(found.name)
            own.register_forward_hook(partial(compare, found), with_kwargs=True)
        images = torch.randn(2, *self.image, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        with undisturbed(module), torch.no_grad():
            module(images)
        return max(errors)


class Standardise(nn.Module):
    """`(x - mean) / std`, by channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: np.ndarray, std: np.ndarray, like: Tensor):
        super().__init__()
        for name, numbers in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(numbers).to(like).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def module_network(
    name: str, image: Shape, classes: int | None, options: tuple[tuple[str, Any], ...], densify: str
) -> ModuleNetwork:
    """The network that a function from outside makes for these images and classes; made once for each text of it."""
    return _module_network(name, imported(name).digest, tuple(image), classes, options, densify)


@lru_cache(maxsize=8)
def _module_network(
    name: str, digest: str, image: Shape, classes: int | None, options: tuple[tuple[str, Any], ...], densify: str
) -> ModuleNetwork:
    build = partial(make, name, image=image, classes=classes, options=dict(options))
    return ModuleNetwork(name, image, build, tuple(part.strip() for part in densify.split(",") if part.strip()))


def stream(seed: int, purpose: str) -> int:
    """A seed for torch: each purpose draws from a stream of its own."""
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:7], "little")


def _without_numbers(module: nn.Module) -> nn.Module:
    """A copy whose parameters and saved buffers have no storage; what shares a tensor still shares it."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for own in module.modules():
        for name, buffer in own._buffers.items():
            if buffer is not None and name not in own._non_persistent_buffers_set:
                memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(module, memo)
