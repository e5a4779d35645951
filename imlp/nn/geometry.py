"""What a layer of torch computes, as a spec: read from the call that it makes when it runs, without numbers.

So neither its class nor its attributes have to be known: a layer that pads, makes its weight from others and then calls
one linear function of torch is what it calls. A layer that does anything else with its input or output has no spec.
"""

from contextlib import suppress
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from imlp.errors import OUTSIDERS, ImlpError, ModuleError, in_a_line
from imlp.nn.convnd import MODES, ConvNd
from imlp.nn.watch import copied, tensors
from imlp.spec import Conv, Shape, Shared, Spec

CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
LAYER_CLASSES = (*CONVOLUTIONS, nn.Linear, nn.AvgPool2d)
_CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
ARGUMENTS = {
    **{f"conv{n}d": _CONV for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _TRANSPOSED for n in (1, 2, 3)},
    "linear": ("input", "weight", "bias"),
    "avg_pool2d": ("input",),
    "pad": ("input", "pad", "mode", "value"),
}
SETTING = int, float, str, tuple, type(None)  # an attribute that a layer may compute by
OPTIONS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "mode": "constant", "value": None}


class _Stop(Exception):
    """The layer has come to its linear function."""


class _Calls(TorchFunctionMode):
    """Follows a layer's input through one padding and one linear function, and keeps what both were given, by name."""

    def __init__(self, x: Tensor, *, stop: bool = False) -> None:
        super().__init__()
        self.now, self.stop, self.alone = x, stop, True
        self.function, self.given, self.pad = "", dict[str, Any](), dict[str, Any]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        takes_it = any(tensor is self.now for tensor in tensors((args, kwargs)))
        known = takes_it and not self.function and name in ARGUMENTS and not (name == "pad" and self.pad)
        if known:
            given = OPTIONS | dict(zip(ARGUMENTS[name], args, strict=False)) | kwargs
            if name == "pad":
                self.pad = given
            else:
                self.function, self.given = name, given
                if self.stop:
                    raise _Stop
        result = func(*args, **kwargs)
        if known:
            self.now = result
        elif takes_it and any(True for _ in tensors(result)) and result is not self.now:
            self.alone = False
        return result


def plain_class(layer: nn.Module) -> type[nn.Module]:
    return next(kind for kind in LAYER_CLASSES if isinstance(layer, kind))


def is_own_class(layer: nn.Module) -> bool:
    if not isinstance(layer, LAYER_CLASSES):
        return False
    kind, plain = type(layer), plain_class(layer)
    return any(getattr(kind, m, None) is not getattr(plain, m, None) for m in ("forward", "_conv_forward"))


_known: "WeakKeyDictionary[nn.Module, tuple[Any, Spec]]" = WeakKeyDictionary()


def spec_of(layer: nn.Module, in_shape: Shape) -> Spec:
    """The spec of a layer for one input of this shape, without the batch."""
    plain = {name: value for name, value in vars(layer).items() if isinstance(value, SETTING) and name != "training"}
    now = (in_shape, type(layer).forward, plain)  # the knob asks at every step
    if layer not in _known or _known[layer][0] != now:
        _known[layer] = now, _found(layer, in_shape)
    return _known[layer][1]


def _found(layer: nn.Module, in_shape: Shape) -> Spec:
    bare = copied(layer, meta=True).eval()
    like = next(bare.parameters(), torch.empty(0))
    x = torch.empty(2, *in_shape, dtype=like.dtype, device="meta")
    try:
        with torch.no_grad(), _Calls(x) as calls:
            y = bare(x)
    except ImlpError:
        raise
    except OUTSIDERS as error:  # whatever its own code raises
        raise ModuleError(f"it cannot run alone: {in_a_line(error)}") from error
    name, given = calls.function, calls.given
    pools = name == "avg_pool2d"
    biased = given.get("bias") is not None
    other = (pools and is_own_class(layer)) or biased != (getattr(bare, "bias", None) is not None)
    if not name or not calls.alone or calls.now is not y or other:
        problem = f"its class {type(layer).__name__} computes something else than {plain_class(layer).__name__}"
        raise ModuleError(problem)
    if name != "linear" and len(in_shape) != (3 if pools else given["weight"].ndim - 1):
        raise ModuleError("it is called without a batch")
    if not pools and name != "linear":
        return _convolution(calls, in_shape, tuple(y.shape[1:]))
    if calls.pad:
        raise ModuleError("it pads its input")
    if pools:
        return _pooling(layer, in_shape, tuple(y.shape[1:]))
    m_out, m_in = given["weight"].shape
    return Shared(prod(in_shape[:-1]), m_in, m_out)


def _pooling(layer: Any, in_shape: Shape, out_shape: Shape) -> Spec:
    c = in_shape[0]
    spec = Conv(in_shape, c, kernel=layer.kernel_size, stride=layer.stride, padding=layer.padding, groups=c)  # type: ignore[arg-type]
    if spec.out_shape != out_shape or (any(spec.padding) and not layer.count_include_pad):
        raise ModuleError("it divides by another number at the border (ceil_mode, count_include_pad)")
    return spec


def _convolution(call: _Calls, in_shape: Shape, out_shape: Shape) -> Spec:
    """A `Conv` wherever there is one with the same taps, in one dimension with a height of 1; otherwise a `ConvNd`."""
    n, given, groups = len(in_shape) - 1, call.given, call.given["groups"]
    kernel, transposed = tuple(given["weight"].shape[2:]), call.function.startswith("conv_transpose")
    stride, dilation = (_each(given[name], n) for name in ("stride", "dilation"))
    if given["padding"] == "same":
        before = tuple(gap * (size - 1) // 2 for gap, size in zip(dilation, kernel, strict=True))
    else:
        before = (0,) * n if given["padding"] == "valid" else _each(given["padding"], n)
    mode = "zeros"
    if call.pad and any(call.pad["pad"]):
        sizes, mode = tuple(call.pad["pad"]), call.pad["mode"]
        mode = "zeros" if mode == "constant" and not call.pad["value"] else mode
        mixed = any(before) and mode != "zeros"
        if mode not in MODES or mixed or transposed or min(sizes) < 0 or len(sizes) > 2 * n:
            raise ModuleError("it pads in a way that is no padding of a convolution")
        firsts = (*sizes[::2], *(0,) * (n - len(sizes) // 2))
        before = tuple(already + first for already, first in zip(before, reversed(firsts), strict=True))
    if n <= 2 and mode == "zeros" and not transposed:
        reach = [gap * (size - 1) + 1 for gap, size in zip(dilation, kernel, strict=True)]
        padded = [size + 2 * pad for size, pad in zip(in_shape[1:], before, strict=True)]
        outputs = [(p - r) // s + 1 for p, r, s in zip(padded, reach, stride, strict=True)]
        if tuple(outputs) == out_shape[1:]:
            image = (in_shape[0], *(1,) * (2 - n), *in_shape[1:])
            ones, zeros = (1,) * (2 - n), (0,) * (2 - n)
            return Conv(image, out_shape[0], ones + kernel, ones + stride, zeros + before, ones + dilation, groups)  # type: ignore[arg-type]
    return ConvNd(in_shape, out_shape, kernel, stride, before, dilation, groups, mode, transposed)


def _each(value: Any, n: int) -> Shape:
    several = tuple(value) if isinstance(value, tuple | list) else (value,)
    return tuple(int(one) for one in (several * n if len(several) == 1 else several))


@torch.no_grad()
def computed_with(layer: nn.Module, part: str) -> Tensor | None:
    """The `weight` or `bias` that a layer with a class of its own makes of others; None if it is a parameter of it.

    A copy runs, up to the call of the linear function.
    """
    if not is_own_class(layer):
        return None
    runs = copied(layer).eval()
    kernel = getattr(layer, "kernel_size", ())
    gaps = getattr(layer, "dilation", ())  # and 16: it may reflect or wrap around more than the kernel reaches
    reach = [max(16, gap * (size - 1) + 1) for size, gap in zip(kernel, gaps, strict=True)]
    shape = (layer.in_channels, *reach) if kernel else (layer.in_features,)
    x = next(layer.parameters()).new_zeros(2, *shape)
    calls = _Calls(x, stop=True)
    with suppress(_Stop), calls:
        runs(x)
    made = calls.given.get(part)
    return None if made is runs._parameters.get(part) else made
