"""Layers of a module chosen by name, glob or type."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from imlp.errors import ModuleError, did_you_mean

Layers: TypeAlias = str | type[nn.Module] | Iterable[str | type[nn.Module]] | None


def choose(modules: Mapping[str, nn.Module], layers: Layers, default: Iterable[str]) -> list[str]:
    """The names that `layers` chooses, in the order of `modules`; the default ones for None.

    A text is the name of a layer, of a part of the network (all layers in it), or of a type, or a glob; one that begins
    with `!` leaves layers out, and from the default ones if nothing is chosen beside it.
    """
    given = listed(layers)
    left_out = [text[1:] for text in given if isinstance(text, str) and text.startswith("!")]
    wanted = [what for what in given if not (isinstance(what, str) and what.startswith("!"))]
    for what in (*wanted, *left_out):
        if not any(matches(name, module, what) for name, module in modules.items()):
            remedy = f"{did_you_mean(_shown(what), modules)}there are {', '.join(modules) or 'none'}"
            raise ModuleError(f"layers has {_shown(what)}, which is none of the layers", remedy)
    chosen = [n for n, m in modules.items() if any(matches(n, m, what) for what in wanted)] if wanted else list(default)
    chosen = [name for name in chosen if not any(matches(name, modules[name], what) for what in left_out)]
    if layers is not None and not (chosen and given):
        raise ModuleError(f"layers is {layers!r}, which chooses no layer", f"there are {', '.join(modules) or 'none'}")
    return chosen


def listed(layers: Layers) -> list[Any]:
    several = isinstance(layers, Iterable) and not isinstance(layers, str | type)
    return [] if layers is None else list(layers) if several else [layers]  # type: ignore[arg-type]


def matches(name: str, module: nn.Module, what: Any) -> bool:
    if isinstance(what, type):
        return isinstance(module, what)
    if not isinstance(what, str):
        raise ModuleError(f"layers has {what!r}", "give names, globs like 'layer4*', or types like torch.nn.Conv2d")
    kinds = {kind.__name__ for kind in type(module).__mro__}
    return fnmatchcase(name, what) or fnmatchcase(name, f"{what}.*") or what in kinds


def _shown(what: Any) -> str:
    return what.__name__ if isinstance(what, type) else str(what)


def without(layers: Layers, names: Iterable[str]) -> list[str]:
    """What to give as `layers` to leave these out, too."""
    return [*map(_shown, listed(layers)), *(f"!{name}" for name in names)]


class Refused(NamedTuple):
    """A layer without a dense form: why, what of the reason is its own, and what could be done."""

    name: str
    reason: str
    detail: str = ""
    remedy: str = ""


class RefusedError(ModuleError):
    """All layers without a dense form, by reason."""

    def __init__(self, layers: list[Refused], given: Layers = None) -> None:
        self.layers = layers
        out = without(given, [one.name for one in layers])
        if len(layers) == 1:
            ((name, reason, detail, remedy),) = layers
            remedy = f"{remedy}leave it out: layers={out}" if name else f"{remedy}use it as it is"
            super().__init__(f"{name or 'the module'} has no dense form: {reason}{detail}", remedy)
            return
        reasons: dict[str, list[str]] = {}
        for one in layers:
            reasons.setdefault(one.reason, []).append(one.name)
        lines = ";\n".join(f"{reason}: {', '.join(names)}" for reason, names in reasons.items())
        remedy = f"leave them as they are: skip='refused', or layers={out}"
        super().__init__(f"{len(layers)} layers have no dense form:\n{lines}", remedy)

    def __str__(self) -> str:
        return f"{self.problem};\n{self.remedy}" if len(self.layers) > 1 else super().__str__()


def refusal(name: str, reason: str, detail: str = "", *, remedy: str = "") -> RefusedError:
    return RefusedError([Refused(name, reason, detail, remedy)])
