"""The language in which a network is described: blocks of layers, their norms, and the operations they amount to.

One description is run in two ways: *structured* (the prior: each layer holds its small weight) and *dense* (the
I-MLP: each layer holds the full matrix `(M_out, M_in)` of its spec). No arrays and no backend here. A fully connected
layer is a `Shared` spec with one row, whose matrix is its weight: the head is one, and so are layers without a prior.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from imlp.errors import SpecError, known
from imlp.spec import Shape, Shared, Spec

Image = tuple[int, int, int]


@dataclass(frozen=True)
class Norm:
    """LayerNorm over each run of `features` numbers; `learned` gives it a scale and a shift."""

    features: int
    learned: bool = False


@dataclass(frozen=True)
class Layer:
    """A linear layer, then its norm, then its activation. `kind` is a name of `imlp.kinds`, or "dense".

    A layer that is `dense_only` belongs to the I-MLP and not to the prior (the upper layers of MLP-1).
    """

    name: str
    spec: Spec
    kind: str
    norm: Norm | None = None
    activation: str | None = None
    interpolated: bool = True
    dense_only: bool = False


@dataclass(frozen=True)
class Block:
    """Layers in order, after a norm of their own if there is one; `x + block(x)` if `residual`."""

    name: str
    layers: tuple[Layer, ...]
    norm: Norm | None = None
    residual: bool = False


@dataclass(frozen=True)
class Operation:
    """One operation, as the backends run it: `op` is "linear", "norm", "gelu" or "mean"."""

    op: str
    name: str
    details: Any = None  # the Layer of a linear, the Norm of a norm, the number of rows of a mean


@dataclass(frozen=True)
class Network:
    """Blocks, a last norm, the mean over `rows` equal runs of features, and a linear head."""

    name: str
    image: Image
    classes: int
    blocks: tuple[Block, ...]
    norm: Norm | None = None
    rows: int = 1

    def __post_init__(self) -> None:
        names = [layer.name for layer in self.layers]
        for name in names:
            if names.count(name) > 1 or name == "head":
                raise SpecError(f"{self.name} has two layers called {name!r}", "give each a name of its own")
        prior, dense = (self._width(dense) for dense in (False, True))
        if prior != dense:
            raise SpecError(
                f"{self.name}: head takes {dense} numbers in the I-MLP, but {prior} in the prior", "make them equal"
            )
        if not isinstance(self.classes, int) or self.classes < 2:
            raise SpecError(f"{self.name}: classes is {self.classes!r}", "give a whole number of at least 2")

    def _width(self, dense: bool) -> int:
        """How many numbers reach the head; every width on the way is checked."""
        width, source = prod(self.image), "the image"
        if self.blocks and self.blocks[0].norm is not None and self.blocks[0].norm.learned:
            raise SpecError(f"{self.name} begins with a learned norm", "put a layer before it, or use learned=False")
        for block in self.blocks:
            before = width
            self._check_norm(block.name, block.norm, width)
            for layer in block.layers:
                if layer.dense_only and not dense:
                    continue
                m_out, m_in = layer.spec.matrix_shape
                if m_in != width:
                    raise SpecError(
                        f"{self.name}: {layer.name} takes {m_in} numbers, but {source} gives {width}", "make them equal"
                    )
                if layer.activation not in (None, "gelu"):
                    raise SpecError(f"{layer.name} has activation {layer.activation!r}", "use gelu or None")
                if not layer.spec.parameters:
                    raise SpecError(
                        f"{layer.name} has no parameters: {layer.spec}", "put it in a Chain with one that has"
                    )
                width, source = m_out, layer.name
                self._check_norm(layer.name, layer.norm, width)
            if block.residual and width != before:
                raise SpecError(
                    f"{block.name} is residual: it takes {before} numbers and gives {width}",
                    "make them equal, or use residual=False",
                )
        self._check_norm("the last norm", self.norm, width)
        if width % self.rows:
            raise SpecError(f"{self.name}: the mean over {self.rows} rows of {width} numbers", "rows must divide them")
        return width // self.rows

    @staticmethod
    def _check_norm(name: str, norm: Norm | None, width: int) -> None:
        if norm is not None and width % norm.features:
            raise SpecError(f"{name} has a norm over {norm.features} of {width} numbers", f"use a divisor of {width}")

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers but the head, in order."""
        return tuple(layer for block in self.blocks for layer in block.layers)

    @property
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

    def sections(self, *, dense: bool) -> tuple[tuple[bool, tuple[Operation, ...]], ...]:
        """For each block whether it is residual, and its operations; those of the head come last."""
        sections = []
        for block in self.blocks:
            operations = list(_norm_operation(block.name, block.norm))
            for layer in block.layers:
                if dense or not layer.dense_only:
                    operations += [Operation("linear", layer.name, layer), *_norm_operation(layer.name, layer.norm)]
                    operations += [Operation("gelu", layer.name)] if layer.activation else []
            sections.append((block.residual, tuple(operations)))
        mean = [Operation("mean", "mean", self.rows)] if self.rows > 1 else []
        tail = [*_norm_operation("", self.norm), *mean, Operation("linear", "head", self.head)]
        return *sections, (False, tuple(tail))

    def shapes(self, *, dense: bool) -> dict[str, Shape]:
        """The shape of every parameter by name, in order: `conv1.weight`, `conv1.bias`, ..., `head.bias`.

        >>> from imlp.networks import cnn
        >>> cnn().shapes(dense=False)["conv2.weight"], cnn().shapes(dense=True)["conv2.weight"]
        ((4, 1, 3, 3), (1024, 1024))
        """
        shapes: dict[str, Shape] = {}
        for _, operations in self.sections(dense=dense):
            for operation in operations:
                if operation.op == "linear":
                    spec = operation.details.spec
                    own = {"weight": spec.matrix_shape, "bias": spec.matrix_shape[:1]} if dense else spec.shapes()
                    shapes |= {f"{operation.name}.{part}": shape for part, shape in own.items()}
                elif operation.op == "norm" and operation.details.learned:
                    shapes |= {f"{operation.name}.{part}": (operation.details.features,) for part in ("weight", "bias")}
        return shapes

    def n_parameters(self, *, dense: bool) -> int:
        """How many numbers are trained: in the I-MLP (`dense`) or in the prior."""
        return sum(prod(shape) for shape in self.shapes(dense=dense).values())

    @property
    def n_interpolated(self) -> int:
        """How many numbers of the I-MLP are interpolated: the weights and biases of its `interpolated` layers."""
        shapes = self.shapes(dense=True)
        return sum(prod(shapes[f"{name}.{part}"]) for name in self.interpolated for part in ("weight", "bias"))

    def interpolating(self, names: Iterable[str] | None) -> "Network":
        """The same network with exactly these layers interpolated (None: as they are)."""
        if names is None:
            return self
        chosen = check_layers(self, names)
        blocks = (
            replace(b, layers=tuple(replace(layer, interpolated=layer.name in chosen) for layer in b.layers))
            for b in self.blocks
        )
        return replace(self, blocks=tuple(blocks))


def check_layers(network: Network, names: Iterable[str]) -> tuple[str, ...]:
    """`names`, each of which must be a layer that the prior has too."""
    if isinstance(names, str):
        raise SpecError(f"layers is the string {names!r}", "give a list of names")
    shared = [layer.name for layer in network.layers if not layer.dense_only]
    return tuple(known(name, shared, f"layer of {network.name} with a prior") for name in names)


def _norm_operation(name: str, norm: Norm | None) -> Iterator[Operation]:
    if norm is not None:
        yield Operation("norm", f"{name}.norm" if name else "norm", norm)
