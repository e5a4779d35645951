"""What a coupling is: an object with its settings and its rule, which the trainer, both backends and `imlp.nn` use.

| kind | what it does | when |
|---|---|---|
| `Mixing` | changes `W` and `b`, by alpha | after each step or epoch that is due |
| `Branching` | makes `W` and `b` of parts, all trained; a `Blend` has the parts `matrix(w)` and `U` | in every pass |
| `Replacing` | makes a whole network of the prior, which then trains freely | once, after an epoch |

`W_P = matrix(w)` is the prior's matrix, `Pi(W) = matrix(project(W))` the nearest one of its kind, and `M` is 1 at the
entries that such a matrix can fill and 0 elsewhere. A coupling computes with the verbs that it is given, those of
either backend, and with operators that NumPy's arrays and torch's tensors share.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from imlp.couplings.schedule import Alpha
from imlp.errors import OUTSIDERS, ImlpError, OutsideError
from imlp.plugins import Outside
from imlp.spec import Spec
from imlp.verbs import LayerVerbs

if TYPE_CHECKING:
    from imlp.model import Model

# Of one layer: `weight` and `bias` (U), `prior.weight`, ..., and the coupling's own.
Parts: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Coupling:
    """Its fields are its settings: `setting(DEFAULT, HELP)`, from which the options of the command line follow."""

    name: ClassVar[str]
    formula: ClassVar[str] = ""  # for the help text
    needs_prior: ClassVar[bool] = True  # to be trained beside it
    takes: ClassVar[tuple[str, ...]] = ()  # which settings of a lane have a meaning for it
    outside: ClassVar[Outside | None] = None  # where a class comes from that is not one of the package
    knobs: ClassVar[tuple[str, ...]] = ("alpha",)  # what the methods of a `Mixing` are given as their last arguments
    every: ClassVar[str] = "epoch"  # how often it mixes, unless a lane says so
    word: ClassVar[str | None] = ""  # what a table says beside alpha; None: its name

    def __init_subclass__(cls) -> None:
        cls.name = vars(cls).get("name", cls.__name__.lower())

    @property
    def title(self) -> str:
        """What a table calls a lane that has it; of a `Mixing` its alpha is shown instead."""
        return self.name

    def alphas(self, alpha: Alpha) -> tuple[Alpha, ...]:
        """The alpha of each knob, for a lane's."""
        return (alpha,)

    def spelled(self, alpha: Alpha) -> dict[str, Any]:
        """The one spelling of a lane's alpha and of the settings that could also say it."""
        return {"alpha": alpha}

    def begins_after(self, epochs: int) -> int:
        """The epoch of a run, from 1, after which a lane begins that has it; 0: it trains from the start."""
        return 0

    def __reduce__(self) -> Any:
        """A class from a file travels to other processes with the file's text."""
        return _made, (self.outside or type(self), {name: getattr(self, name) for name in self.settings()})

    @classmethod
    def settings(cls) -> list[str]:
        """The names of its own settings."""
        return [f.name for f in dataclasses.fields(cls)]

    def call(self, method: str, *arguments: Any) -> Any:
        """What one of its methods returns; an error in code from outside the package is told with its line."""
        try:
            return getattr(self, method)(*arguments)
        except ImlpError:
            raise
        except OUTSIDERS as error:
            if self.outside is None:
                raise
            raise self.outside.failure(f"{self.outside.name}.{method}", error) from error


def _made(kind: type[Coupling] | Outside, settings: dict[str, Any]) -> Coupling:
    return (named_class(kind) if isinstance(kind, Outside) else kind)(**settings)


def named_class(outside: Outside) -> type[Coupling]:
    """The class that was named from outside the package, which from now on knows where it is from."""
    kind, bases = outside.value, (Mixing, Branching, Replacing)
    if not (isinstance(kind, type) and issubclass(kind, bases) and dataclasses.is_dataclass(kind)):
        remedy = "derive a class from imlp.couplings.Mixing, Branching, Blend or Replacing"
        raise OutsideError(f"{outside.place}:{outside.name} is no coupling", remedy)
    kind.outside = outside
    return kind


class Mixing(Coupling):
    """It has an alpha. Both methods return what they were given, changed in place or not."""

    takes = ("alpha", "every", "layers", "biases", "head", "moments", "align")
    every = "step"  # the paper's numbers require it
    word: ClassVar[str | None] = None

    def weight(self, verbs: LayerVerbs[Any], spec: Spec, W: Any, w: Any, alpha: float) -> Any:
        """`W (M_out, M_in)` after a step, where `w` is the prior's weight, or None without a prior."""
        raise NotImplementedError

    def bias(self, verbs: LayerVerbs[Any], spec: Spec, b: Any, b_w: Any, alpha: float) -> Any:
        """`b (M_out,)` after a step, where `b_w` is the prior's small bias, or None if it has none."""
        raise NotImplementedError


class Branching(Coupling):
    """It makes `W` and `b` of the parts of a layer in every pass, and pulls their gradients back to the parts."""

    needs_prior = False
    takes = ("layers",)

    def numbers(self, spec: Spec) -> dict[str, Any]:
        """What it trains per layer beside `U` and `w`, by name, with the values to start from."""
        return {}

    def made(self, verbs: LayerVerbs[Any], spec: Spec, parts: Parts) -> tuple[Any, Any]:
        """`W (M_out, M_in)` and `b (M_out,)`, which is None where the layer has none, as new arrays."""
        raise NotImplementedError

    def pulled_back(self, verbs: LayerVerbs[Any], spec: Spec, parts: Parts, dW: Any, db: Any) -> dict[str, Any]:
        """The gradient of each part, from those of `W` and `b`."""
        raise NotImplementedError

    def decay(self, part: str) -> float:
        """The weight decay of `w` ("prior"), of `U` ("rest"), or of one of its own numbers."""
        return 0.0

    def parts(self, spec: Spec) -> list[str]:
        """The names of all parts of a layer."""
        return ["weight", "bias", *(f"prior.{part}" for part in spec.shapes()), *self.numbers(spec)]


class Blend(Branching):
    """`W = matrix(w) + U`, or `g matrix(w) + (1 - g) U` with a share `g` of the prior's part, a number per layer.

    The backends add what the two parts compute, not the matrices, and pull gradients back the same way: that is faster.
    """

    def share(self, parts: Parts) -> Any:
        """`g`, or None for the plain sum."""
        return None

    def pulled_back_share(self, parts: Parts, dg: Any) -> dict[str, Any]:
        """The gradients of its own numbers, from that of `g`."""
        return {}

    def made(self, verbs: LayerVerbs[Any], spec: Spec, parts: Parts) -> tuple[Any, Any]:
        g = self.share(parts)
        alpha, b = 1.0 if g is None else float(g), parts.get("bias")
        W = verbs.interpolate(1 * parts["weight"], spec, prior_weight(spec, parts), alpha, add=g is None)
        if b is not None:
            b = verbs.interpolate_bias(1 * b, spec, parts.get("prior.bias"), alpha, add=g is None)
        return W, b


def prior_weight(spec: Spec, parts: Parts) -> Any:
    """`w` among the parts of a layer, as the verbs take it."""
    return spec.unnamed({part: parts[f"prior.{part}"].reshape(p.shape) for part, p in spec.parameters.items()})


class Replacing(Coupling):
    """A lane that has it sleeps at first, and begins with a network made of the whole prior."""

    def begins_after(self, epochs: int) -> int:
        """The epoch of a run, from 1, after which the lane begins."""
        raise NotImplementedError

    def replaced(self, verbs: LayerVerbs[Any], prior: "Model") -> dict[str, Any]:
        """The parameters of the dense network by name; what is not among them starts at 0."""
        raise NotImplementedError


class Move(NamedTuple):
    """What is done to one layer of one lane after a step."""

    coupling: Mixing
    alphas: tuple[float, ...]  # one for each of its knobs
    biases: bool = True
    moments: str = "keep"  # or zero: the optimizer starts again for the parameters that were moved


Moves: TypeAlias = Mapping[str, Sequence[Move | None]]  # for each layer one per lane; None leaves that lane untouched


@dataclass(frozen=True)
class Branch:
    """The layers of a lane that are made of parts: beside `U`, `NAME.weight`, they have `NAME.prior.weight`."""

    coupling: Branching
    layers: tuple[str, ...]

    def has(self, parameter: str) -> bool:
        """Whether a parameter is one of its parts."""
        return parameter.rpartition(".")[0].removesuffix(".prior") in self.layers

    def decay(self, parameter: str) -> float:
        """The weight decay of a parameter by its name."""
        layer, _, part = parameter.rpartition(".")
        if not self.has(parameter):
            return 0.0
        return self.coupling.decay(
            "prior" if layer not in self.layers else "rest" if part in ("weight", "bias") else part
        )
