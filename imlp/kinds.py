"""The kinds of prior layer by name, with the paper's geometry as defaults: what `build-prior --kind` offers.

Here, and nowhere else, a kind and its geometry are checked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, getdoc, signature
from typing import Any

from imlp.errors import OutsideError, SpecError, known
from imlp.plugins import Outside, imported, is_outside
from imlp.spec import Chain, Conv, Local, Patchify, Shared, Spec, Transpose, Window

IMAGE = (3, 32, 32)
NO_NOUN = "derive a class from imlp.Spec; a layer that depends on its data (attention, BatchNorm) has no matrix"


@dataclass(frozen=True)
class Kind:
    """`build` makes the spec from `defaults`, any of which may be replaced."""

    equation: str
    meaning: str
    defaults: Mapping[str, Any]
    build: Callable[..., Spec]


def _window(noun: type[Window], image: tuple[int, int, int], **geometry: Any) -> Spec:
    return noun(image, **geometry)


def _patchify(image: tuple[int, int, int], patch: int) -> Patchify:
    return Patchify(*image, patch=patch)


def _patch_embed(image: tuple[int, int, int], patch: int, dim: int) -> Spec:
    cut = _patchify(image, patch)
    patches = cut.grid[0] * cut.grid[1]
    return Chain(cut, Shared(patches, cut.matrix_shape[1] // patches, dim))


def _token_mix_in(patches: int, dim: int, hidden: int | None) -> Spec:
    return Chain(Transpose(patches, dim), Shared(dim, patches, patches if hidden is None else hidden))


def _token_mix_out(patches: int, dim: int, hidden: int | None) -> Spec:
    return Chain(Shared(dim, patches if hidden is None else hidden, patches), Transpose(dim, patches))


def _channel_mix(patches: int, dim: int, hidden: int | None) -> Spec:
    return Shared(patches, dim, dim if hidden is None else hidden)


_WINDOW = {"image": IMAGE, "out_channels": 1, "kernel": 3, "stride": 1, "padding": 1, "dilation": 1, "groups": 1}
_SHARED = {"rows": 16, "in_features": 128, "out_features": 128}
_MIXER = {"patches": 16, "dim": 128, "hidden": None}

KINDS: dict[str, Kind] = {
    "conv": Kind("W_P = W_F", "a convolution: local, and the same at every place", _WINDOW, partial(_window, Conv)),
    "local": Kind("W_P = W_L", "a convolution with separate weights at every place", _WINDOW, partial(_window, Local)),
    "patchify": Kind("L = P", "cuts the image into patches: a permutation", {"image": IMAGE, "patch": 8}, _patchify),
    "transpose": Kind("L = T", "swaps patches and channels: a permutation", {"rows": 16, "cols": 128}, Transpose),
    "shared": Kind("W~ = I_R kron w", "one small layer for every row", _SHARED, Shared),
    "patch-embed": Kind(
        "W_P = W~ P", "one small layer for every patch", {"image": IMAGE, "patch": 8, "dim": 128}, _patch_embed
    ),
    "token-mix-in": Kind("W_P = W~ T", "mixes the patches of each channel (input transposed)", _MIXER, _token_mix_in),
    "token-mix-out": Kind(
        "W_P = T W~", "mixes the patches of each channel (output transposed)", _MIXER, _token_mix_out
    ),
    "channel-mix": Kind("W_P = W~", "mixes the channels of each patch", _MIXER, _channel_mix),
}


def find(kind: str) -> Kind:
    """The kind called `kind`, or one of your own: `FILE.py:Class`, with the defaults of the class."""
    return _from_outside(imported(kind)) if is_outside(kind) else KINDS[known(kind, KINDS, "kind")]


def make(kind: str, **geometry: Any) -> Spec:
    """The spec of a kind, with the paper's geometry where none is given.

    >>> make("patchify", patch=4)
    Patchify(channels=3, height=32, width=32, patch=4)
    """
    chosen = find(kind)
    for name in geometry:
        known(name, chosen.defaults, f"geometry of kind {kind}")
    given = {**chosen.defaults, **geometry}
    missing = [name for name, value in given.items() if value is Parameter.empty]
    if missing:
        raise SpecError(f"{kind} needs {', '.join(missing)}", f"give it: --options {missing[0]}=VALUE")
    return chosen.build(**given)


def _from_outside(outside: Outside) -> Kind:
    """A kind made of a class of nouns, or of a function that returns one."""
    value, name = outside.value, f"{outside.name} of {outside.place}"
    if not callable(value) or (isinstance(value, type) and not issubclass(value, Spec)):
        raise OutsideError(f"{name} is no noun", NO_NOUN)

    def build(**geometry: Any) -> Spec:
        spec = outside.call(**{name: frozen(size) for name, size in geometry.items()})
        if not isinstance(spec, Spec):
            raise OutsideError(f"{name} returns a {type(spec).__name__}", NO_NOUN)
        return spec

    try:
        defaults = {name: parameter.default for name, parameter in signature(value).parameters.items()}
    except (TypeError, ValueError):  # compiled
        raise OutsideError(f"{name} does not say what it takes", NO_NOUN) from None
    meaning = (getdoc(value) or "a noun of your own").partition("\n")[0].rstrip(".")
    return Kind(f"W_P = {outside.name}", meaning, defaults, build)


def frozen(value: Any) -> Any:
    """Lists and what they hold as tuples."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value
