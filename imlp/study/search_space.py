"""What a search tries: a lane for each set of parameters that Optuna proposes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from imlp.errors import BackendError, ConfigError, install_hint
from imlp.train.config import Lane, from_mapping

OVER = ("alpha", "alpha-per-layer")
LEAST, ZERO = 1e-4, 1e-5  # alpha is log-uniform from ZERO to 1, and what is drawn below LEAST means 0
MOST_TRIALS = 1_000_000

Parameters: TypeAlias = dict[str, Any]


def check_trials(trials: int) -> None:
    """Refuse a number of trials that nobody can run, before anything slow is done with it."""
    if trials > MOST_TRIALS:
        raise ConfigError("--trials is too large", f"give at most {MOST_TRIALS:,}")


def import_optuna() -> Any:
    """Optuna, silent but for warnings; an error with the remedy where it is missing."""
    try:
        import optuna
    except ImportError:
        raise BackendError("search needs Optuna", install_hint("search")) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@dataclass(frozen=True)
class Space:
    """What is searched: a lane for each set of parameters."""

    over: str
    every: str  # epoch, step, a number of steps, or both
    layers: tuple[str, ...]  # that the lanes mix
    common: Mapping[str, Any] = field(default_factory=dict)  # settings of every lane

    def __post_init__(self) -> None:
        if self.over not in OVER:
            raise ConfigError(f"--over is {self.over!r}", f"use {' or '.join(OVER)}")
        if not self.layers:
            raise ConfigError("the network has no layers to mix", "choose one that has, for example cnn")

    def lane(self, trial: Any) -> Lane:
        """The lane of an Optuna trial, or of anything that suggests values as one does."""
        drawn = {name: self._alpha(trial, name) for name in self._names}
        alpha = next(iter(drawn.values()))
        if len(set(drawn.values())) > 1:
            alpha = ",".join(f"{name.removeprefix('alpha ')}={value}" for name, value in drawn.items())
        if alpha == "0":
            every = "epoch"
        elif self.every == "both":
            every = trial.suggest_categorical("every", ("epoch", "step"))
        else:
            every = self.every
        return from_mapping(Lane, {"alpha": alpha, "every": every, **self.common})

    @property
    def known(self) -> list[Parameters]:
        """What is tried first: alpha 0, the plain MLP, and alpha 1, all of the prior, at each cadence."""
        full: Parameters = dict.fromkeys(self._names, 1.0)
        cadences = [{"every": "epoch"}, {"every": "step"}] if self.every == "both" else [{}]
        return [dict.fromkeys(self._names, ZERO), *(full | cadence for cadence in cadences)]

    @property
    def _names(self) -> list[str]:
        return [f"alpha {layer}" for layer in self.layers] if self.over == "alpha-per-layer" else ["alpha"]

    def _alpha(self, trial: Any, name: str) -> str:
        drawn = trial.suggest_float(name, ZERO, 1.0, log=True)
        return f"{drawn:.3g}" if drawn >= LEAST else "0"
