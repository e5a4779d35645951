"""The paper's networks as data: what layers there are, in what order, and which of them are interpolated.

One description is run in two ways: *structured* (the prior: each layer holds its small weight) and *dense* (the
I-MLP: each layer holds the full matrix `(M_out, M_in)` of its spec). No arrays and no backend here. A fully connected
layer is a `Shared` spec with one row, whose matrix is its weight: the head is one, and so are layers without a prior.

>>> network = cnn()
>>> network.n_parameters(dense=False), network.n_parameters(dense=True), network.layers[1].spec.out_shape
(757982, 8405002, (4, 16, 16))
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from inspect import signature
from math import prod
from typing import Any

from imlp import kinds
from imlp.errors import SpecError
from imlp.spec import Conv, Shape, Shared, Spec

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
class Step:
    """One operation, as the backends run it: `op` is "linear", "norm", "gelu" or "mean"."""

    op: str
    name: str
    of: Any = None  # the Layer of a linear, the Norm of a norm, the number of rows of a mean


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
                if layer.spec.weight_shape is None:
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

        >>> cnn().layer("conv6").spec.matrix_shape
        (1024, 1024)
        """
        layers = {layer.name: layer for layer in (*self.layers, self.head)}
        return layers[known(name, layers, f"layer of {self.name}")]

    @property
    def interpolated(self) -> tuple[str, ...]:
        """The names of the layers that algorithm 1 moves towards the prior."""
        return tuple(layer.name for layer in self.layers if layer.interpolated)

    def sections(self, *, dense: bool) -> tuple[tuple[bool, tuple[Step, ...]], ...]:
        """The network as operations: for each block whether it is residual, and its steps; the head's come last."""
        sections = []
        for block in self.blocks:
            steps = list(_norm_step(block.name, block.norm))
            for layer in block.layers:
                if dense or not layer.dense_only:
                    steps += [Step("linear", layer.name, layer), *_norm_step(layer.name, layer.norm)]
                    steps += [Step("gelu", layer.name)] if layer.activation else []
            sections.append((block.residual, tuple(steps)))
        mean = [Step("mean", "mean", self.rows)] if self.rows > 1 else []
        tail = [*_norm_step("", self.norm), *mean, Step("linear", "head", self.head)]
        return *sections, (False, tuple(tail))

    def shapes(self, *, dense: bool) -> dict[str, Shape]:
        """The shape of every parameter by name, in order: `conv1.weight`, `conv1.bias`, ..., `head.bias`.

        >>> cnn().shapes(dense=False)["conv2.weight"], cnn().shapes(dense=True)["conv2.weight"]
        ((4, 1, 3, 3), (1024, 1024))
        """
        shapes: dict[str, Shape] = {}
        for _, steps in self.sections(dense=dense):
            for step in steps:
                if step.op == "linear":
                    spec = step.of.spec
                    shapes[f"{step.name}.weight"] = spec.matrix_shape if dense else spec.weight_shape
                    shapes[f"{step.name}.bias"] = spec.matrix_shape[:1] if dense else spec.bias_shape
                elif step.op == "norm" and step.of.learned:
                    shapes |= {f"{step.name}.{part}": (step.of.features,) for part in ("weight", "bias")}
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


def known(name: str, names: Iterable[str], what: str) -> str:
    """`name` if it is one of `names`; if not, an error with the nearest of them."""
    names = list(names)
    if name in names:
        return name
    near = get_close_matches(str(name), names, n=1)
    remedy = f"did you mean {near[0]!r}? " if near else ""
    raise SpecError(f"unknown {what}: {name!r}", f"{remedy}the known ones are {', '.join(names)}")


def _norm_step(name: str, norm: Norm | None) -> Iterator[Step]:
    if norm is not None:
        yield Step("norm", f"{name}.norm" if name else "norm", norm)


def cnn(
    image: Sequence[int] = kinds.IMAGE,
    classes: int = 10,
    *,
    width: int | Sequence[int] = 1024,
    strides: Sequence[int] = (1, 2, 2, 2, 2, 1),
    kernel: int = 3,
    learned_norm: bool = False,
    activated: Sequence[int] | None = None,
    interpolated: Iterable[str] | None = None,
) -> Network:
    """S-CNN and S-MLP (table 2): a convolution for each of `strides`, each with `width` outputs in all.

    `activated` are the numbers of the layers, counted from 1, that LayerNorm and GELU follow: all but the last unless
    given. The caption of table 2 has them after "Layers-1 and Layers-5", which may also be read as (1, 5).

    Erratum: the text says stride 2 throughout, but the shapes of table 2 need strides 1, 2, 2, 2, 2, 1.
    """
    layers = _convolutions(_image(image), width, strides, kernel, learned_norm)
    numbers = range(1, len(layers)) if activated is None else _layer_numbers(activated, len(layers))
    layers = [
        layer if n in numbers else replace(layer, norm=None, activation=None) for n, layer in enumerate(layers, start=1)
    ]
    return Network("cnn", _image(image), classes, (Block("trunk", tuple(layers)),)).interpolating(interpolated)


def mixer(
    image: Sequence[int] = kinds.IMAGE,
    classes: int = 10,
    *,
    patch: int = 8,
    channels: int = 128,
    depth: int = 2,
    token_hidden: int | None = None,
    channel_hidden: int | None = None,
    residual: bool = True,
    learned_norm: bool = False,
    interpolated: Iterable[str] | None = None,
) -> Network:
    """MLP-Mixer and its I-MLP (table 3): `W~ P`, then `depth` times `W~ T`, `T W~` and `W~`, `W~`.

    Each pair is `x + mix(LN(x))`, or `mix(LN(x))` with `residual=False`; `hidden` sizes are those inside a pair.
    """
    embed = kinds.make("patch-embed", image=_image(image), patch=patch, dim=channels)
    patches, norm = embed.matrix_shape[0] // channels, Norm(channels, learned_norm)
    sizes = {"patches": patches, "dim": channels, "hidden": token_hidden}
    tokens = [(kind, kinds.make(kind, **sizes)) for kind in ("token-mix-in", "token-mix-out")]
    hidden = channel_hidden or channels
    mixes = [("channel-mix", Shared(patches, *ends)) for ends in ((channels, hidden), (hidden, channels))]
    blocks = [Block("embed", (Layer("embed", embed, "patch-embed"),))]
    for b in range(1, depth + 1):
        for name, ((kind1, spec1), (kind2, spec2)) in (("token", tokens), ("channel", mixes)):
            first = Layer(f"block{b}.{name}1", spec1, kind1, activation="gelu")
            second = Layer(f"block{b}.{name}2", spec2, kind2)
            blocks.append(Block(f"block{b}.{name}", (first, second), norm, residual))
    network = Network("mixer", _image(image), classes, tuple(blocks), norm, rows=patches)
    return network.interpolating(interpolated)


def mlp1(
    image: Sequence[int] = kinds.IMAGE,
    classes: int = 10,
    *,
    width: int = 1024,
    depth: int = 14,
    strides: Sequence[int] = (1, 2, 2, 2, 2, 1),
    kernel: int = 3,
    learned_norm: bool = True,
    interpolated: Iterable[str] | None = None,
) -> Network:
    """MLP-1 (appendix H): `depth` hidden layers, of which the first have an S-CNN as prior, one for each of `strides`.

    The prior ends there, with a head of its own; the layers above are the I-MLP's alone. Norm and GELU follow every
    hidden layer, in the prior too.
    """
    layers = _convolutions(_image(image), width, strides, kernel, learned_norm)
    layers += [
        Layer(f"dense{n}", Shared(1, width, width), "dense", Norm(width, learned_norm), "gelu", False, dense_only=True)
        for n in range(len(layers) + 1, depth + 1)
    ]
    return Network("mlp1", _image(image), classes, (Block("trunk", tuple(layers)),)).interpolating(interpolated)


def mlp2(
    image: Sequence[int] = kinds.IMAGE,
    classes: int = 10,
    *,
    first_channels: int = 12,
    first_stride: int = 2,
    width: int = 1024,
    depth: int = 6,
    kernel: int = 3,
    learned_norm: bool = True,
    interpolated: Iterable[str] | None = ("conv1",),
) -> Network:
    """MLP-2 (appendix H): a wide first layer, which alone is interpolated, and `depth - 1` layers of `width`.

    The rest of its prior goes on as an S-CNN: stride 2 until 2 x 2 pixels are left, and stride 1 from there.
    """
    first = Conv(_image(image), first_channels, kernel, first_stride, kernel // 2)
    size, strides = min(first.out_shape[1:]), [first_stride]
    for _ in range(depth - 1):
        strides.append(2 if size > 2 else 1)
        size = -(-size // strides[-1])
    widths = [first.matrix_shape[0]] + [width] * (depth - 1)
    layers = _convolutions(_image(image), widths, strides, kernel, learned_norm)
    return Network("mlp2", _image(image), classes, (Block("trunk", tuple(layers)),)).interpolating(interpolated)


def _layer_numbers(numbers: Sequence[int], n: int) -> Sequence[int]:
    if not isinstance(numbers, Sequence) or isinstance(numbers, str) or any(k not in range(1, n + 1) for k in numbers):
        raise SpecError(f"activated is {numbers!r}", f"give a list of layers from 1 to {n}, for example [1, {n - 1}]")
    return numbers


def _image(shape: Sequence[int]) -> Image:
    if len(shape) != 3:
        raise SpecError(f"image is {shape!r}", "give (channels, height, width)")
    c, h, w = shape
    return c, h, w


def _convolutions(
    shape: Image, width: int | Sequence[int], strides: Sequence[int], kernel: int, learned_norm: bool
) -> list[Layer]:
    """`conv1`, `conv2`, ...: as many channels as make a convolution as wide as the dense layer beside it."""
    widths = [width] * len(strides) if isinstance(width, int) else list(width)
    if len(widths) != len(strides):
        raise SpecError(f"{len(widths)} widths for {len(strides)} strides", "give as many of each, or a single width")
    layers = []
    for n, (m_out, stride) in enumerate(zip(widths, strides, strict=True), start=1):
        one = Conv(shape, 1, kernel, stride, kernel // 2)
        _, h, w = one.out_shape
        if m_out < h * w or m_out % (h * w):
            raise SpecError(
                f"conv{n}: the dense layer has {m_out} outputs, but a convolution onto {h} x {w} pixels has a multiple "
                f"of {h * w}",
                f"use a width of {max(1, m_out // (h * w)) * h * w}, or other strides",
            )
        spec = replace(one, out_channels=m_out // (h * w))
        layers.append(Layer(f"conv{n}", spec, "conv", Norm(m_out, learned_norm), "gelu"))
        shape = spec.out_shape
    return layers


NETWORKS: dict[str, Callable[..., Network]] = {"cnn": cnn, "mixer": mixer, "mlp1": mlp1, "mlp2": mlp2}


def make(name: str, **options: Any) -> Network:
    """The network called `name`, with the paper's sizes where nothing else is given.

    >>> make("mixer", image=(3, 8, 8), patch=4, channels=6).n_parameters(dense=False)
    612
    """
    build = NETWORKS[known(name, NETWORKS, "network")]
    for option in options:
        known(option, signature(build).parameters, f"option of {name}")
    return build(**options)
