"""How a dense layer is tied to its prior: one file per coupling, and `schedule`: how alpha changes over time."""

from typing import Any, TypeAlias

from imlp.couplings.add import Add
from imlp.couplings.base import (
    Blend,
    Branch,
    Branching,
    Coupling,
    Mixing,
    Move,
    Moves,
    Parts,
    Replacing,
    named_class,
    prior_weight,
)
from imlp.couplings.gate import Gate
from imlp.couplings.interpolate import Interpolate
from imlp.couplings.pathway import Pathway
from imlp.couplings.relax import Relax
from imlp.couplings.self import Self
from imlp.couplings.setting import setting
from imlp.errors import ConfigError
from imlp.plugins import imported, is_outside, named_before

COUPLINGS: dict[str, type[Coupling]] = {
    kind.name: kind for kind in (Interpolate, Add, Self, Relax, Pathway, Gate)
}  # tables show lanes in this order

RELAX = Relax()
AnyCoupling: TypeAlias = str | type[Coupling] | Coupling  # a name, a class with its default settings, or an object


def class_of(name: str, source: str | None = None) -> type[Coupling]:
    """The coupling of this name, or the class that `FILE.py:Class` names, whose file is run.

    `source` is the SHA-256 that the file's text had when a run began: nothing is run then, the user has to have named
    that text.
    """
    if is_outside(name):
        return named_class(imported(name) if source is None else named_before(name, source, "coupling"))
    if name not in COUPLINGS:
        raise ConfigError(f"coupling is {name!r:.60}", f"use {', '.join(COUPLINGS)}, or FILE.py:Class")
    return COUPLINGS[name]


def coupling(which: AnyCoupling, **settings: Any) -> Coupling:
    """A coupling by its name or its class, with settings; or the object itself.

    >>> coupling("gate", gate=0.3)
    Gate(gate=0.3)
    """
    if isinstance(which, Coupling):
        return which
    kind = class_of(which) if isinstance(which, str) else which
    if not (isinstance(kind, type) and issubclass(kind, Coupling)):
        raise ConfigError(f"coupling is {kind!r:.60}", "give a name, or a class or an object of imlp.couplings")
    return kind(**settings)
