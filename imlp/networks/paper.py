"""The paper's four networks, with the sizes of its tables as defaults."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from imlp import kinds
from imlp.errors import SpecError
from imlp.networks.language import Activation, DenseOnly, Image, Layer, Mean, Network, Norm, Operation, Residual
from imlp.spec import Conv, Shared


def cnn(
    image: Sequence[int] = kinds.IMAGE,
    classes: int = 10,
    *,
    width: int | Sequence[int] = 1024,
    strides: Sequence[int] = (1, 2, 2, 2, 2, 1),
    kernel: int = 3,
    learned_norm: bool = False,
    activated: Sequence[int] | None = None,
) -> Network:
    """S-CNN and S-MLP (table 2): a convolution for each of `strides`, each with `width` outputs in all.

    `activated` are the numbers of the layers, counted from 1, that LayerNorm and GELU follow: all but the last unless
    given. The caption of table 2 has them after "Layers-1 and Layers-5", which may also be read as (1, 5).

    Erratum: the text says stride 2 throughout, but the shapes of table 2 need strides 1, 2, 2, 2, 2, 1.
    """
    layers = convolutions(as_image(image), width, strides, kernel)
    every = range(1, len(layers) + 1)
    numbers = every[:-1] if activated is None else activated
    if isinstance(numbers, str) or not isinstance(numbers, Sequence) or any(k not in every for k in numbers):
        remedy = f"give a list of layers from 1 to {len(layers)}, for example [1, {len(layers) - 1}]"
        raise SpecError(f"activated is {numbers!r}", remedy)
    body: list[Operation] = []
    for n, layer in enumerate(layers, start=1):
        body += _with_norm_and_gelu([layer], learned_norm) if n in numbers else [layer]
    return Network("cnn", as_image(image), classes, tuple(body))


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
) -> Network:
    """MLP-Mixer and its I-MLP (table 3): `W~ P`, then `depth` times `W~ T`, `T W~` and `W~`, `W~`.

    Each pair is `x + mix(LN(x))`, or `mix(LN(x))` with `residual=False`; `hidden` sizes are those inside a pair.
    """
    embed = kinds.make("patch-embed", image=as_image(image), patch=patch, dim=channels)
    patches = embed.matrix_shape[0] // channels
    sizes = {"patches": patches, "dim": channels, "hidden": token_hidden}
    tokens = [(kind, kinds.make(kind, **sizes)) for kind in ("token-mix-in", "token-mix-out")]
    hidden = channel_hidden or channels
    mixes = [("channel-mix", Shared(patches, *ends)) for ends in ((channels, hidden), (hidden, channels))]
    body: list[Operation] = [Layer("embed", embed, "patch-embed")]
    for b in range(1, depth + 1):
        for name, ((kind1, spec1), (kind2, spec2)) in (("token", tokens), ("channel", mixes)):
            pair = f"block{b}.{name}"
            mix = (
                Norm(f"{pair}.norm", channels, learned_norm),
                Layer(f"{pair}1", spec1, kind1),
                Activation("gelu"),
                Layer(f"{pair}2", spec2, kind2),
            )
            body += [Residual(pair, mix)] if residual else mix
    body += [Norm("norm", channels, learned_norm), Mean(patches)]
    return Network("mixer", as_image(image), classes, tuple(body))


def mlp1(
    image: Sequence[int] = kinds.IMAGE,
    classes: int = 10,
    *,
    width: int = 1024,
    depth: int = 14,
    strides: Sequence[int] = (1, 2, 2, 2, 2, 1),
    kernel: int = 3,
    learned_norm: bool = True,
) -> Network:
    """MLP-1 (appendix H): `depth` hidden layers, of which the first have an S-CNN as prior, one for each of `strides`.

    The prior ends there, with its own head; the layers above are the I-MLP's alone. Norm and GELU follow every
    hidden layer, in the prior too.
    """
    layers = convolutions(as_image(image), width, strides, kernel)
    if depth < len(layers):
        raise SpecError(f"depth is {depth}, but there are {len(layers)} strides", "give at most one stride per layer")
    numbers = range(len(layers) + 1, depth + 1)
    upper = [Layer(f"dense{n}", Shared(1, width, width), "dense", interpolated=False) for n in numbers]
    body = [*_with_norm_and_gelu(layers, learned_norm), DenseOnly(tuple(_with_norm_and_gelu(upper, learned_norm)))]
    return Network("mlp1", as_image(image), classes, tuple(body))


def mlp2(
    image: Sequence[int] = kinds.IMAGE,
    classes: int = 10,
    *,
    first_channels: int = 12,
    first_stride: int = 2,
    first_kernel: int | None = None,
    first_padding: int | None = None,
    width: int = 1024,
    depth: int = 6,
    kernel: int = 3,
    learned_norm: bool = True,
) -> Network:
    """MLP-2 (appendix H): a wide first layer, which alone is interpolated, and `depth - 1` layers of `width`.

    The rest of its prior continues as an S-CNN: stride 2 until 2 x 2 pixels are left, and stride 1 from there. The
    first layer's kernel is `kernel` and its padding half of it, unless given: 48 channels, stride 4, kernel 11 and
    padding 4 are AlexNet's first layer.
    """
    size_of_first = kernel if first_kernel is None else first_kernel
    padding = size_of_first // 2 if first_padding is None else first_padding
    first = Conv(as_image(image), first_channels, size_of_first, first_stride, padding)
    size, strides = min(first.out_shape[1:]), []
    for _ in range(depth - 1):
        strides.append(2 if size > 2 else 1)
        size = -(-size // strides[-1])
    rest = convolutions(first.out_shape, width, strides, kernel, first=2) if strides else []
    layers = [Layer("conv1", first, "conv"), *(replace(layer, interpolated=False) for layer in rest)]
    body = _with_norm_and_gelu(layers, learned_norm)
    return Network("mlp2", as_image(image), classes, tuple(body))


def as_image(shape: Sequence[int]) -> Image:
    if len(shape) != 3:
        raise SpecError(f"image is {shape!r}", "give (channels, height, width)")
    c, h, w = shape
    return c, h, w


def _with_norm_and_gelu(layers: Iterable[Layer], learned: bool) -> list[Operation]:
    """Each layer, followed by LayerNorm over all of its outputs and GELU."""
    body: list[Operation] = []
    for layer in layers:
        body += [layer, Norm(f"{layer.name}.norm", layer.spec.matrix_shape[0], learned), Activation("gelu")]
    return body


def convolutions(
    shape: Image, width: int | Sequence[int], strides: Sequence[int], kernel: int, *, first: int = 1
) -> list[Layer]:
    """`conv1`, `conv2`, ... from number `first` on: each as wide as the dense layer beside it."""
    if not strides:
        raise SpecError(f"strides is {strides!r}", "give one for each convolution, for example [1, 2, 2]")
    widths = [width] * len(strides) if isinstance(width, int) else list(width)
    if len(widths) != len(strides):
        raise SpecError(f"{len(widths)} widths for {len(strides)} strides", "give as many of each, or a single width")
    layers = []
    for n, (m_out, stride) in enumerate(zip(widths, strides, strict=True), start=first):
        spec = convolution(f"conv{n}", shape, m_out, kernel, stride)
        layers.append(Layer(f"conv{n}", spec, "conv"))
        shape = spec.out_shape
    return layers


def convolution(name: str, shape: Image, width: int, kernel: int, stride: int) -> Conv:
    """A convolution with `width` outputs and this many channels; `name` is for the message if there is none."""
    one = Conv(shape, 1, kernel, stride, kernel // 2)
    _, h, w = one.out_shape
    if width < h * w or width % (h * w):
        problem = f"{name}: the dense layer has {width} outputs, but a convolution onto {h} x {w} pixels"
        remedy = f"use a width of {max(1, width // (h * w)) * h * w}, or other strides"
        raise SpecError(f"{problem} has a multiple of {h * w}", remedy)
    return replace(one, out_channels=width // (h * w))
