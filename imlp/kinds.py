"""The kinds of prior layer by name, with the paper's geometry as defaults: what `build-prior --kind` offers.

Here, and nowhere else, a kind and its geometry are checked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, getdoc, signature
from typing import Any

from imlp.errors import OutsideError, SpecError, did_you_mean, known
from imlp.plugins import Outside, called, imported, is_outside
from imlp.spec import Chain, Conv, Local, Patchify, Shared, Spec, Transpose

IMAGE = (3, 32, 32)
NO_NOUN = "derive a class from imlp.Spec; a layer that depends on its data (attention, BatchNorm) has no matrix"


@dataclass(frozen=True)
class Kind:
    """`build` makes the spec from `defaults`, any of which may be replaced."""

    equation: str
    meaning: str
    defaults: Mapping[str, Any]
    build: Callable[..., Spec]


def _conv(image: tuple[int, int, int], out_channels: int, **geometry: Any) -> Spec:
    return Conv(image, out_channels, **geometry)


def _local(image: tuple[int, int, int], out_channels: int, **geometry: Any) -> Spec:
    return Local(image, out_channels, **geometry)


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
_MIXER = {"patches": 16, "dim": 128, "hidden": None}

KINDS: dict[str, Kind] = {
    "conv": Kind("W_P = W_F", "a convolution: local, and the same at every place", _WINDOW, _conv),
    "local": Kind("W_P = W_L", "a convolution with weights of its own at every place", _WINDOW, _local),
    "patchify": Kind("L = P", "cuts the image into patches: a permutation", {"image": IMAGE, "patch": 8}, _patchify),
    "transpose": Kind("L = T", "swaps patches and channels: a permutation", {"rows": 16, "cols": 128}, Transpose),
    "shared": Kind(
        "W~ = I_R kron w",
        "one small layer for every row",
        {"rows": 16, "in_features": 128, "out_features": 128},
        Shared,
    ),
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
    """The kind called `kind`, or one of your own: `FILE.py:Class`, with the defaults of the class.

    >>> find("patchify").equation
    'L = P'
    """
    return _from_outside(imported(kind)) if is_outside(kind) else KINDS[known(kind, KINDS, "kind")]


def make(kind: str, **geometry: Any) -> Spec:
    """The spec of a kind, with the paper's geometry where none is given.

    >>> make("patchify", patch=4)
    Patchify(channels=3, height=32, width=32, patch=4)
    """
    found = find(kind)
    for name in geometry:
        if name not in found.defaults:
            flags = [_flag(kind, own) for own in found.defaults]
            hint = did_you_mean(_flag(kind, name), flags)
            problem = f"{_flag(kind, name)} does not apply to kind {kind}"
            raise SpecError(problem, f"{hint}it takes {', '.join(flags) or 'nothing'}")
    given = {**found.defaults, **geometry}
    missing = [name for name, value in given.items() if value is Parameter.empty]
    if missing:
        raise SpecError(f"{kind} needs {', '.join(missing)}", f"give it: --options {missing[0]}=VALUE")
    return found.build(**given)


def _from_outside(found: Outside) -> Kind:
    """A kind made of a class of nouns, or of a function that returns one."""
    value = found.value
    if not callable(value) or (isinstance(value, type) and not issubclass(value, Spec)):
        raise OutsideError(f"{found.name} of {found.place} is no noun", NO_NOUN)

    def build(**geometry: Any) -> Spec:
        spec = called(found, **{name: _frozen(own) for name, own in geometry.items()})
        if not isinstance(spec, Spec):
            raise OutsideError(f"{found.name} of {found.place} returns a {type(spec).__name__}", NO_NOUN)
        return spec

    try:
        defaults = {name: parameter.default for name, parameter in signature(value).parameters.items()}
    except (TypeError, ValueError):  # compiled
        raise OutsideError(f"{found.name} of {found.place} does not say what it takes", NO_NOUN) from None
    meaning = (getdoc(value) or "a noun of your own").partition("\n")[0].rstrip(".")
    return Kind(f"W_P = {found.name}", meaning, defaults, build)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _flag(kind: str, name: str) -> str:
    return f"--options {name}" if is_outside(kind) else "--" + name.replace("_", "-")
