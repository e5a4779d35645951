"""Layers of a module chosen by name, glob or type."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from torch import nn

from imlp.errors import ModuleError, did_you_mean

Layers: TypeAlias = str | type[nn.Module] | Iterable[str | type[nn.Module]] | None


def choose(modules: Mapping[str, nn.Module], layers: Layers, default: Iterable[str]) -> list[str]:
    """The names that `layers` chooses, in the order of `modules`; the default ones for None.

    A text is the name of a layer, the name of a part of the network (all layers in it), or a glob; one that begins
    with `!` leaves layers out, and from the default ones if nothing is chosen beside it.

    >>> model = nn.ModuleDict({"stem": nn.Conv2d(3, 8, 3), "head": nn.Linear(8, 2)})
    >>> choose(dict(model.named_children()), ["!head"], default=["stem", "head"])
    ['stem']
    """
    given = [] if layers is None else [layers] if isinstance(layers, str | type) else list(layers)
    left_out = [text[1:] for text in given if isinstance(text, str) and text.startswith("!")]
    wanted = [what for what in given if not (isinstance(what, str) and what.startswith("!"))]
    for what in (*wanted, *left_out):
        if not any(matches(name, module, what) for name, module in modules.items()):
            raise ModuleError(
                f"layers has {_shown(what)}, which is none of the layers",
                f"{did_you_mean(_shown(what), modules)}there are {', '.join(modules) or 'none'}",
            )
    chosen = [n for n, m in modules.items() if any(matches(n, m, what) for what in wanted)] if wanted else list(default)
    return [name for name in chosen if not any(matches(name, modules[name], what) for what in left_out)]


def matches(name: str, module: nn.Module, what: Any) -> bool:
    """Whether a name, glob or type means this layer."""
    if isinstance(what, type):
        return isinstance(module, what)
    if not isinstance(what, str):
        raise ModuleError(f"layers has {what!r}", "give names, globs like 'layer4*', or types like torch.nn.Conv2d")
    return fnmatchcase(name, what) or fnmatchcase(name, f"{what}.*")


def _shown(what: Any) -> str:
    return what.__name__ if isinstance(what, type) else str(what)
