"""The language in which a network is described: the operations, and the tree that they make up.

One description is run in two ways: *structured* (the prior: each layer holds its small weight) and *dense* (the
I-MLP: each layer holds the full matrix `(M_out, M_in)` of its spec). No arrays and no backend here. A fully connected
layer is a `Shared` spec with one row, whose matrix is its weight: the head is one, and so are layers without a prior.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import ClassVar, TypeAlias

from imlp.errors import SpecError, known
from imlp.spec import Chain, Shape, Shared, Spec
from imlp.spec.base import check_noun

Image = tuple[int, int, int]
ACTIVATIONS = ("gelu", "relu")
NAME = r"[A-Za-z_][\w-]*(\.\w[\w-]*)*"  # alphas and files name layers too


@dataclass(frozen=True)
class Layer:
    """A linear layer. `kind` is a name of `imlp.kinds`, "dense", or one of your own: alphas may differ by kind."""

    name: str
    spec: Spec
    kind: str
    interpolated: bool = True


@dataclass(frozen=True)
class Norm:
    """LayerNorm over each run of `features` numbers; `learned` gives it a scale and a shift."""

    name: str
    features: int
    learned: bool = False


@dataclass(frozen=True)
class Activation:
    """`name` is gelu (the exact one) or relu."""

    name: str


@dataclass(frozen=True)
class Mean:
    """The mean over positions, of numbers in the order (position, channel), or (channel, position) as after a Conv."""

    positions: int
    channels_first: bool = False
    name: str = "mean"


@dataclass(frozen=True)
class Residual:
    """`x + body(x)`, or `shortcut(x) + body(x)`."""

    name: str
    body: tuple["Operation", ...]
    shortcut: Layer | None = None


@dataclass(frozen=True)
class DenseOnly:
    """Operations that belong to the I-MLP and not to the prior (the upper layers of MLP-1)."""

    body: tuple["Operation", ...]
    name: str = "dense only"


Operation: TypeAlias = Layer | Norm | Activation | Mean | Residual | DenseOnly


def walk(operations: Iterable[Operation]) -> Iterator[Layer | Norm | Activation | Mean]:
    """The leaves of the tree in order; a shortcut comes after the body beside it."""
    for operation in operations:
        match operation:
            case Residual():
                yield from walk(operation.body)
                yield from walk([operation.shortcut] if operation.shortcut else [])
            case DenseOnly():
                yield from walk(operation.body)
            case _:
                yield operation


def is_trained(operation: Operation) -> bool:
    """Whether it has parameters, or holds an operation that has."""
    return any(isinstance(leaf, Layer) or (isinstance(leaf, Norm) and leaf.learned) for leaf in walk([operation]))


@dataclass(frozen=True)
class Network:
    """Operations in order, followed by a linear head of the width that they end with."""

    name: str
    image: Image
    classes: int
    body: tuple[Operation, ...]

    is_module: ClassVar[bool] = False  # a PyTorch model, which answers as a network does

    def __post_init__(self) -> None:
        object.__setattr__(self, "body", tuple(self.body))
        if len(self.image) != 3 or not all(isinstance(size, int) and size > 0 for size in self.image):
            raise SpecError(f"{self.name}: image is {self.image!r}", "give (channels, height, width)")
        if not isinstance(self.classes, int) or self.classes < 2:
            raise SpecError(f"{self.name}: classes is {self.classes!r}", "give a whole number of at least 2")
        prior, dense = (self._width(dense) for dense in (False, True))
        if prior != dense:
            problem = f"{self.name}: head takes {dense} numbers in the I-MLP, but {prior} in the prior"
            raise SpecError(problem, "make them equal")
        names = [leaf.name for leaf in walk(self.body) if is_trained(leaf)]
        for name in names:
            if names.count(name) > 1 or name == "head":
                raise SpecError(f"{self.name} has two layers called {name!r}", "give each a different name")
            if not isinstance(name, str) or not re.fullmatch(NAME, name):
                remedy = "use letters, digits, _ and -, as in block1.in"
                raise SpecError(f"{self.name} has a layer called {name!r}", remedy)

    def _width(self, dense: bool) -> int:
        """How many numbers reach the head; every width on the way is checked."""
        return _flow(self.name, _without_dense_only(self.body, keep=dense), prod(self.image), "the image")[0]

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """All layers but the head, in order."""
        return tuple(leaf for leaf in walk(self.body) if isinstance(leaf, Layer))

    @cached_property
    def head(self) -> Layer:
        return Layer("head", Shared(1, self._width(dense=True), self.classes), "dense", interpolated=False)

    def layer(self, name: str) -> Layer:
        """The layer called `name`, or the head.

        >>> from imlp.networks import cnn
        >>> cnn().layer("conv6").spec.matrix_shape
        (1024, 1024)
        """
        layers = {layer.name: layer for layer in (*self.layers, self.head)}
        return layers[known(name, layers, f"layer of {self.name}")]

    @property
    def interpolated(self) -> tuple[str, ...]:
        """The names of the layers that algorithm 1 moves towards the prior."""
        return tuple(layer.name for layer in self.layers if layer.interpolated)

    def operations(self, *, dense: bool) -> tuple[Operation, ...]:
        """The tree as a backend runs it, head included; there is no `DenseOnly` left in it."""
        return self._forms[dense]

    @cached_property
    def _forms(self) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
        structured, dense = (_without_dense_only(self.body, keep=keep) for keep in (False, True))
        return (*structured, self.head), (*dense, self.head)

    def shapes(self, *, dense: bool) -> dict[str, Shape]:
        """The shape of every parameter by name, in order: `conv1.weight`, `conv1.bias`, ..., `head.bias`.

        >>> from imlp.networks import cnn
        >>> cnn().shapes(dense=False)["conv2.weight"], cnn().shapes(dense=True)["conv2.weight"]
        ((4, 1, 3, 3), (1024, 1024))
        """
        shapes: dict[str, Shape] = {}
        for leaf in walk(self.operations(dense=dense)):
            match leaf:
                case Layer(name, spec):
                    m_out, m_in = spec.matrix_shape
                    own = {"weight": (m_out, m_in), "bias": (m_out,)} if dense else spec.shapes()
                    shapes |= {f"{name}.{part}": shape for part, shape in own.items()}
                case Norm(name, features, learned=True):
                    shapes |= {f"{name}.{part}": (features,) for part in ("weight", "bias")}
        return shapes

    def buffers(self, *, dense: bool) -> dict[str, Shape]:
        """The shapes of what a step changes besides the parameters: nothing in these networks."""
        return {}

    @property
    def activations(self) -> int:
        """How many numbers the layers of the I-MLP compute for one image."""
        return sum(shape[0] for name, shape in self.shapes(dense=True).items() if name.endswith(".weight"))

    def n_parameters(self, *, dense: bool) -> int:
        """How many numbers are trained: in the I-MLP (`dense`) or in the prior."""
        return sum(prod(shape) for shape in self.shapes(dense=dense).values())

    @property
    def n_interpolated(self) -> int:
        """How many numbers of the I-MLP are interpolated: the weights and biases of its `interpolated` layers."""
        shapes = self.shapes(dense=True)
        return sum(prod(shape) for name, shape in shapes.items() if name.rpartition(".")[0] in self.interpolated)


def check_layers(network: Network, names: Iterable[str]) -> tuple[str, ...]:
    """`names`, each of which must be a layer that the prior has too."""
    if isinstance(names, str):
        raise SpecError(f"layers is the string {names!r}", "give a list of names")
    names = tuple(names)
    if twice := [name for n, name in enumerate(names) if name in names[:n]]:
        raise SpecError(f"layer {twice[0]} is named twice", "name each layer once")
    own = {layer.name for layer in network.layers}  # not the head
    with_prior = [leaf.name for leaf in walk(network.operations(dense=False)) if leaf.name in own]
    return tuple(known(name, with_prior, f"layer of {network.name} with a prior") for name in names)


def _without_dense_only(operations: Iterable[Operation], *, keep: bool) -> tuple[Operation, ...]:
    kept: list[Operation] = []
    for operation in operations:
        match operation:
            case DenseOnly(body):
                kept += _without_dense_only(body, keep=keep) if keep else ()
            case Residual(body=body):
                kept.append(replace(operation, body=_without_dense_only(body, keep=keep)))
            case _:
                kept.append(operation)
    return tuple(kept)


def _flow(owner: str, operations: Iterable[Operation], width: int, source: str) -> tuple[int, str]:
    """How many numbers come out of operations that `width` numbers from `source` go into, and from which of them.

    `owner` is the network's name; each width on the way is checked.
    """
    for operation in operations:
        match operation:
            case Layer(name):
                width, source = _layer_width(owner, operation, width, source), name
            case Norm(name, features):
                if width % features:
                    raise SpecError(f"{name} is a norm over {features} of {width} numbers", f"use a divisor of {width}")
            case Activation(name):
                known(name, ACTIVATIONS, f"activation of {owner}")
            case Mean(positions):
                if width % positions:
                    remedy = "positions must divide them"
                    raise SpecError(f"{owner}: the mean over {positions} positions of {width} numbers", remedy)
                width //= positions
            case Residual(name, body, shortcut):
                inner, last = _flow(owner, body, width, source)
                outer = width if shortcut is None else _layer_width(owner, shortcut, width, source)
                if inner != outer:
                    beside = f"{outer} numbers beside it" if shortcut is None else f"its shortcut {outer}"
                    remedy = "make them equal, or give it a shortcut" if shortcut is None else "make them equal"
                    raise SpecError(f"{name} is residual: its body ends with {inner} numbers, {beside}", remedy)
                width, source = inner, last
            case _:
                remedy = "use Layer, Norm, Activation, Mean, Residual and DenseOnly of imlp.networks"
                raise SpecError(f"{owner}: {operation!r:.60} is not an operation", remedy)
    return width, source


def _layer_width(owner: str, layer: Layer, width: int, source: str) -> int:
    if not isinstance(layer.spec, Spec):
        remedy = "a layer is a spec, which has a matrix; what depends on its data (attention, BatchNorm) has none"
        raise SpecError(f"{layer.name} has {layer.spec!r:.60} for a spec", remedy)
    for noun in layer.spec.parts if isinstance(layer.spec, Chain) else (layer.spec,):
        check_noun(noun)
    m_out, m_in = layer.spec.matrix_shape
    if m_in != width:
        raise SpecError(f"{owner}: {layer.name} takes {m_in} numbers, but {source} gives {width}", "make them equal")
    if not layer.spec.parameters:
        raise SpecError(f"{layer.name} has no parameters: {layer.spec}", "put it in a Chain with one that has")
    if not layer.spec.linear:
        remedy = "it can be built and drawn, but has no projection and no gradient: train one that is linear in them"
        raise SpecError(f"{layer.name}: the matrix of {layer.spec} is not linear in its parameters", remedy)
    return m_out
