"""PyTorch models of others in the trainer: a `ModuleNetwork` answers as a network does, and computes for accel.

The modules kept here are skeletons: their parameters and buffers have shapes but no numbers. Those are in a `Model`,
like those of the networks that imlp describes itself, and are put into a skeleton for the time of a call. Autograd
computes the gradients. The random numbers of a step (dropout) depend on the seed and the step only: a run resumes
exactly.
"""

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, fx, nn

from imlp.accel import apply
from imlp.accel.precision import LinearInBfloat16, multiplied_in
from imlp.couplings import Branch, Branching, prior_weight
from imlp.errors import ConfigError, ModuleError, known
from imlp.model import Model, shapes_of
from imlp.networks import Activation, Layer, Mean, Norm, Operation, Residual
from imlp.nn.branches import of_parts
from imlp.nn.compare import verify
from imlp.nn.densify import check_room, replaced
from imlp.nn.factory import make
from imlp.nn.find import Plan, find
from imlp.nn.pairs import is_computed, prior_numbers
from imlp.nn.watch import undisturbed
from imlp.spec import Shape, Spec

SEED = "imlp.seed"  # a buffer beside the module's own: what the random numbers of its forward pass are drawn from

Tensors = Mapping[str, Tensor]


class ModuleNetwork:
    """A function that makes a module, with everything that is known of both forms of it before any number is drawn.

    `layers` are those that become dense, in the order of the forward pass.
    """

    is_module: ClassVar[bool] = True

    def __init__(self, name: str, image: Shape, build: Callable[..., nn.Module], densify: tuple[str, ...]):
        self.name, self.image, self._build = name, image, build
        module = build(seed=0)
        self.plan = find(module, image, densify or None)
        _refuse_untrained(module, self.plan)
        self.layers = tuple(Layer(layer.name, layer.spec, layer.kind) for layer in self.plan.layers)
        self.interpolated, self.n_interpolated = tuple(layer.name for layer in self.layers), self.plan.numbers
        like, pools = torch.empty(0, dtype=torch.float64), (f for f in self.plan.layers if f.kind == "AvgPool2d")
        self.fixed = {  # a prior that is not trained
            f"{pool.name}.weight": prior_numbers(module.get_submodule(pool.name), pool.spec, like=like)[0]
            for pool in pools
        }
        bare = _without_numbers(module)
        self.skeletons = {False: bare, True: replaced(bare, self.plan, init="random")}
        self.classes, self.activations = self._sizes(module)

    def _sizes(self, module: nn.Module) -> tuple[int, int]:
        """How many numbers come out for one image, and how many all modules compute on the way."""
        results: list[tuple[str, Tensor]] = []
        like = next(module.parameters())
        with undisturbed(module), torch.no_grad(), ExitStack() as hooks:
            _watch(module, results, hooks)
            logits = module(torch.zeros(2, *self.image, dtype=like.dtype))
        if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModuleError(f"{self.name} returns {shape} for two images", "it has to return logits (N, classes)")
        return logits.shape[1], sum(result[0].numel() for _, result in results if result.ndim)

    # What the trainer asks of a network

    def layer(self, name: str) -> Layer:
        """The layer called `name`."""
        if name == "head" and name not in self.interpolated:
            problem = f"{self.name} has no head that imlp knows of"
            raise ConfigError(problem, "let its last layer become dense as well: --densify '*'")
        return {layer.name: layer for layer in self.layers}[known(name, self.interpolated, f"layer of {self.name}")]

    def operations(self, *, dense: bool) -> tuple[Layer, ...]:
        """The layers that have a prior; only the module knows the others."""
        return self.layers

    def shapes(self, *, dense: bool) -> dict[str, Shape]:
        """The shape of every parameter that is trained, by the name that it has in the module."""
        parameters = self.skeletons[dense].named_parameters()
        return {name: tuple(parameter.shape) for name, parameter in parameters if parameter.requires_grad}

    def buffers(self, *, dense: bool) -> dict[str, Shape]:
        """The shapes of what a module holds besides: running statistics, parameters that are not trained, the seed."""
        parameters = self.skeletons[dense].named_parameters(remove_duplicate=False)
        trained = {name for name, parameter in parameters if parameter.requires_grad}
        state = {name: value for name, value in self.skeletons[dense].state_dict().items() if isinstance(value, Tensor)}
        state |= {} if dense else self.fixed
        return {SEED: ()} | {name: tuple(value.shape) for name, value in state.items() if name not in trained}

    def n_parameters(self, *, dense: bool) -> int:
        return sum(map(prod, self.shapes(dense=dense).values()))

    # What accel asks of it

    def init(
        self,
        *,
        dense: bool,
        seed: int,
        lanes: int | None,
        branches: Sequence[Branch | None],
        dtype: torch.dtype,
        device: Any,
    ) -> Model:
        """The prior, its dense form, or `lanes` of them: matrices are drawn as `nn.Linear` is, all else by the module.

        Branches start with the prior's own numbers; a coupling's own differ between lanes, so `Model.start` sets them.
        """
        drawn = self._drawn(seed, dense=dense)
        prior = self._drawn(seed, dense=False) if any(branches) else {}
        widths = {layer.name: layer.spec.matrix_shape[1] for layer in self.layers} if dense else {}
        rng = torch.Generator().manual_seed(stream(seed, "matrices"))
        plain, buffers = self.shapes(dense=dense), self.buffers(dense=dense)

        def first(name: str, shape: Shape) -> Tensor:
            m_in = widths.get(name.rpartition(".")[0])
            if name in plain and m_in is not None:
                return torch.empty(shape, dtype=dtype).uniform_(-(m_in**-0.5), m_in**-0.5, generator=rng)
            if name in plain or name in buffers:
                return torch.tensor(seed) if name == SEED else drawn[name]
            return prior[name.replace(".prior.", ".")].view(shape) if ".prior." in name else torch.zeros(shape)

        def stack(name: str, shape: Shape) -> Tensor:
            numbers = first(name, shape)
            numbers = numbers.to(dtype if numbers.is_floating_point() else numbers.dtype)
            return (numbers.clone() if lanes is None else numbers.repeat(lanes, *[1] * numbers.ndim)).to(device)

        shapes = shapes_of(self, dense=dense, branches=branches)  # type: ignore[arg-type]
        parameters = {name: stack(name, shape) for name, shape in shapes.items()}
        model = Model.start(self, dense, lanes, parameters, branches)  # type: ignore[arg-type]
        model.buffers = {name: stack(name, shape) for name, shape in buffers.items()}
        return model

    def forward(self, lane: Model, x: Tensor, seen: list[tuple[str, Tensor]] | None = None) -> Tensor:
        """The logits of a model without lanes, in evaluation mode; `seen` is given each module's name and result."""
        return self._call(lane, lane.parameters, lane.buffers, x, training=False, seen=seen)

    def loss_and_backward(
        self, lane: Model, x: Tensor, y: Tensor, *, keep: bool
    ) -> tuple[Tensor, Callable[[Callable[[dict[str, Tensor]], None]], None]]:
        """The loss of a model without lanes in training mode, and the way back, which hands over the gradients.

        A parameter that the loss does not depend on has none. With `keep`, the way back also keeps what the pass has
        made of the buffers: a step that is refused leaves them as they were.
        """
        leaves = {name: parameter.detach().requires_grad_() for name, parameter in lane.parameters.items()}
        buffers = {name: buffer.clone() for name, buffer in lane.buffers.items()}
        with torch.enable_grad():
            loss = nn.functional.cross_entropy(self._call(lane, leaves, buffers, x, training=True), y)

        def backward(receive: Callable[[dict[str, Tensor]], None]) -> None:
            for name, buffer in buffers.items() if keep else ():
                lane.buffers[name].copy_(buffer)
            gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            receive({name: gradient for name, gradient in zip(leaves, gradients, strict=True) if gradient is not None})

        return loss.detach(), backward

    def _call(
        self,
        lane: Model,
        parameters: Tensors,
        buffers: Tensors,
        x: Tensor,
        *,
        training: bool,
        seen: list[tuple[str, Tensor]] | None = None,
    ) -> Tensor:
        """The module on a batch of flat images, with these parameters and buffers, which it may change."""
        module = self.skeletons[lane.dense].train(training)
        numbers = {name: parameters[name] for name in self.shapes(dense=lane.dense)}
        numbers |= {name: buffer for name, buffer in buffers.items() if name not in (SEED, *self.fixed)}
        for name, buffer in module.named_buffers():
            if name not in buffers:  # it is not saved
                numbers[name] = buffer.to(x.device, x.dtype if buffer.is_floating_point() else buffer.dtype)
        if SEED not in lane.scratch:  # read once: on a device it would have to be waited for; all lanes have the same
            lane.scratch[SEED] = int(buffers[SEED])
        with ExitStack() as until_called:
            until_called.enter_context(torch.random.fork_rng([x.device] if x.device.type == "cuda" else []))
            for layer in self.layers:
                if (branch := lane.branch_of(layer.name)) is not None:
                    parts = replace(lane, parameters=dict(parameters)).parts_of(layer.name, branch.coupling)
                    hook = partial(_with_all_parts, layer.spec, branch.coupling, parts)
                    submodule = module.get_submodule(layer.name)
                    until_called.enter_context(submodule.register_forward_hook(hook, with_kwargs=True))
            if seen is not None:
                _watch(module, seen, until_called)
            if lane.dense and multiplied_in() == "bfloat16":
                until_called.enter_context(LinearInBfloat16())
            torch.manual_seed(stream(lane.scratch[SEED], f"step {lane.step}"))
            logits: Tensor = torch.func.functional_call(module, numbers, (x.view(-1, *self.image),))
        return logits

    # Numbers

    def made(self, *, seed: int, dense: bool) -> nn.Module:
        """The module with the numbers that its function draws; a dense form takes from it what is not replaced."""
        return self._build(seed=stream(seed, "i-mlp" if dense else "prior"))

    def _drawn(self, seed: int, *, dense: bool) -> Tensors:
        state = self.made(seed=seed, dense=dense).state_dict(keep_vars=True)
        fixed = {} if dense else self.fixed
        return {name: tensor.detach() for name, tensor in state.items() if isinstance(tensor, Tensor)} | fixed

    def trained(self, arrays: Mapping[str, np.ndarray], *, dense: bool) -> nn.Module:
        """The prior or its dense form with these numbers, for images from 0 to 1; `mean` and `std` are among them."""
        skeleton = copy.deepcopy(self.skeletons[dense])
        state = {name: torch.tensor(arrays[name]) for name in skeleton.state_dict()}
        skeleton.load_state_dict(state, assign=True)
        like = next(skeleton.parameters())
        return nn.Sequential(Standardise(arrays["mean"], arrays["std"], like), skeleton).eval()

    def largest_error(self) -> float:
        """The largest difference between a layer of the module and its matrix, relative, in float64, on two images."""
        module = self.made(seed=0, dense=False).double()
        images = torch.randn(2, *self.image, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        check_room(self.plan, module)
        by_layer = verify(replaced(module, self.plan, init="prior"), module, images)
        return max(row["error"] for name, row in by_layer.items() if name != "output")


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


def trained_module(operations: Iterable[Operation], numbers: Mapping[str, np.ndarray]) -> nn.Module:
    """A network of matrices, with its numbers, as a module of torch's own parts.

    With `mean` and `std` among the numbers it standardises images first.
    """
    graph, parts = fx.Graph(), dict[str, Any]()

    def call(name: str, part: nn.Module, x: Any) -> Any:
        name = name.replace(".", "_").replace("-", "_")  # `block1.token1` is the attribute `block1_token1`
        while name in parts or hasattr(fx.GraphModule, name):
            name += "_"
        parts[name] = part
        return fx.Proxy(graph.call_module(name, (x.node,)))

    def run(operations: Iterable[Operation], x: Any) -> Any:
        for operation in operations:
            match operation:
                case Layer(name, spec):
                    x = call(
                        name, _with_numbers(nn.Linear(spec.matrix_shape[1], spec.matrix_shape[0]), name, numbers), x
                    )
                case Norm(name, features, learned):
                    norm = nn.LayerNorm(features, elementwise_affine=learned)
                    x = x.unflatten(-1, (-1, features))
                    x = call(name, _with_numbers(norm, name, numbers), x).flatten(-2)
                case Activation(name):
                    x = getattr(nn.functional, name)(x)
                case Mean(positions, channels_first):
                    runs = x.unflatten(-1, (-1, positions) if channels_first else (positions, -1))
                    x = runs.mean(-1 if channels_first else -2)
                case Residual(body=body, shortcut=shortcut):
                    x = run([shortcut] if shortcut else [], x) + run(body, x)
        return x

    x: Any = fx.Proxy(graph.placeholder("images"))
    if "mean" in numbers:
        before = Standardise(numbers["mean"], numbers["std"], like=torch.tensor(numbers["head.bias"]))
        parts |= {f"_before.{name}": buffer for name, buffer in before.named_buffers()}
        mean, std = (fx.Proxy(graph.get_attr(f"_before.{name}")) for name in ("mean", "std"))
        x = (x - mean) / std
    graph.output(run(operations, x.flatten(1)).node)
    return fx.GraphModule(parts, graph).eval()


def _with_numbers(part: nn.Module, name: str, numbers: Mapping[str, np.ndarray]) -> nn.Module:
    part.load_state_dict({key: torch.tensor(numbers[f"{name}.{key}"]) for key in part.state_dict()}, assign=True)
    return part


@lru_cache(maxsize=8)
def module_network(
    name: str, digest: str, image: Shape, classes: int | None, options: tuple[tuple[str, Any], ...], densify: str
) -> ModuleNetwork:
    """The network that a function from outside makes for these images and classes; made once for each text of it."""
    build = partial(make, name, image=image, classes=classes, options=dict(options))
    return ModuleNetwork(name, image, build, tuple(part.strip() for part in densify.split(",") if part.strip()))


def stream(seed: int, purpose: str) -> int:
    """A seed for torch: each purpose draws from a separate stream."""
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:7], "little")


def _with_all_parts(
    spec: Spec,
    coupling: Branching,
    parts: Tensors,
    dense: nn.Module,
    args: tuple[Tensor, ...],
    kwargs: Tensors,
    y_u: Tensor,
) -> Tensor:
    """What a layer of several parts computes, from what its dense part has: a hook, after those that it is bound to."""
    (x,) = (*args, *kwargs.values())  # a module may name its input
    x = x.reshape(-1, spec.matrix_shape[1])

    def prior() -> Tensor:
        return apply(spec, prior_weight(spec, parts), parts.get("prior.bias"), x).view(y_u.shape)

    return of_parts(coupling, spec, parts, x, y_u, prior)


def _watch(module: nn.Module, seen: list[tuple[str, Tensor]], hooks: ExitStack) -> None:
    """Note the result of each innermost module, by its name, until `hooks` is closed."""

    def note(name: str, submodule: nn.Module, args: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            seen.append((name, result))

    for name, submodule in module.named_modules():
        if not any(submodule.children()):
            hooks.enter_context(submodule.register_forward_hook(partial(note, name)))


def _refuse_untrained(module: nn.Module, plan: Plan) -> None:
    for layer in plan.layers:
        submodule = module.get_submodule(layer.name)
        if not layer.name:
            raise ModuleError(f"the model is a single {layer.kind}", "put it into a torch.nn.Sequential")
        for part in ("weight", "bias"):
            if is_computed(submodule, part):
                problem = f"the {part} of {layer.name} is made of other parameters, which the trainer cannot mix"
                raise ModuleError(problem, f"remove the parametrization, or leave it out: --densify '!{layer.name}'")
        if not isinstance(submodule, nn.AvgPool2d) and not submodule.weight.requires_grad:
            raise ModuleError(f"{layer.name} is not trained, so there is nothing to mix in", "leave it out")


def _without_numbers(module: nn.Module) -> nn.Module:
    """A copy whose parameters and saved buffers have no storage; what shares a tensor still shares it."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for submodule in module.modules():
        for name, buffer in submodule._buffers.items():
            if buffer is not None and name not in submodule._non_persistent_buffers_set:
                memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(module, memo)
