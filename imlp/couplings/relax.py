"""`relax` (d'Ascoli et al. 2019): the dense network is the prior from an epoch on, and trains freely."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imlp.couplings.base import Replacing
from imlp.couplings.setting import setting
from imlp.errors import ArrayError, ConfigError
from imlp.verbs import LayerVerbs

if TYPE_CHECKING:
    from imlp.model import Model


@dataclass(frozen=True)
class Relax(Replacing):
    """The prior as a dense network: trunk, head and norms."""

    relax_after: int | None = setting(
        None, "With relax: the epoch after which W becomes the prior. Default: half of them."
    )

    formula = "become the prior, then train freely"

    def __post_init__(self) -> None:
        if self.relax_after is not None and self.relax_after < 1:
            raise ConfigError(f"relax_after is {self.relax_after!r}", "give the number of an epoch, from 1")

    @property
    def title(self) -> str:
        when = "half of the epochs" if self.relax_after is None else f"epoch {self.relax_after}"
        return f"relaxed after {when}"

    def begins_after(self, epochs: int) -> int:
        after = max(1, epochs // 2) if self.relax_after is None else self.relax_after
        if after > epochs:
            raise ConfigError(f"{self.title}, of {epochs} epochs", f"give relax_after from 1 to {epochs}")
        return after

    def replaced(self, verbs: LayerVerbs[Any], prior: "Model") -> dict[str, Any]:
        network, small = prior.network, {**prior.buffers, **prior.parameters}
        specs, dense = {layer.name: layer.spec for layer in network.layers}, {}
        for name, shape in network.shapes(dense=True).items():
            layer, _, part = name.rpartition(".")
            spec = specs.get(layer)
            if spec is not None and all(f"{layer}.{number}" in small for number in spec.parameters):
                if part == "weight":
                    dense[name] = verbs.matrix(spec, prior.weight_of(layer, spec), layout="dense")
                elif name in small:
                    dense[name] = verbs.expand_bias(spec, small[name])
            elif name in small and tuple(small[name].shape) == shape:
                dense[name] = small[name]
            else:
                problem = f"{network.name} has {name}, and its prior nothing like it: it cannot become the prior"
                raise ArrayError(problem, "relax a network whose prior has all of its layers")
        return dense
