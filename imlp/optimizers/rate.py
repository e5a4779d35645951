"""The learning rate over the steps of a run.

| text | learning rate of step t of T, counted from 0, where W steps are the warm-up |
|---|---|
| `constant` | `lr` |
| `cosine`, `cosine:E` | `lr (E + (1 - E) (1 + cos(pi s)) / 2)`, `s = (t - W) / (T - W)`; E is 0 unless given |
| `linear`, `linear:E` | `lr (E + (1 - E) (1 - s))` |
| `step:F:A:B:...` | `lr F^k` after k of the epochs A, B, ... |

In the warm-up it is `lr (t + 1) / W`.
"""

from dataclasses import dataclass
from functools import cached_property
from math import cos, pi

from imlp.couplings.schedule import NUMBER
from imlp.couplings.setting import of_training
from imlp.errors import ConfigError

REMEDY = (
    "write constant, cosine, linear, cosine:E or linear:E with E from 0 to 1, or step:F:EPOCH:EPOCH:... with a factor "
    "F from 1e-6 to 1 and whole numbers of epochs in order, below those of the run"
)


@dataclass(frozen=True)
class LearningRate:
    """The rate of each step; a run has `epochs` of `steps`.

    >>> rate = LearningRate("cosine", warmup=1, lr=0.1, epochs=5, steps=10)
    >>> [round(rate.at(step), 4) for step in (0, 9, 10, 30, 49)]
    [0.01, 0.1, 0.1, 0.05, 0.0002]
    """

    schedule: str = of_training(
        "constant",
        "The learning rate: constant; cosine or linear, to 0 at the end of the run (cosine:0.05: to a twentieth); "
        "step:0.1:30:60, times 0.1 after epochs 30 and 60.",
    )
    warmup: float = of_training(0.0, "Epochs in which the learning rate first rises in equal steps.")
    lr: float = 1e-4
    epochs: int = 1
    steps: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.warmup <= self.epochs:
            raise ConfigError(f"warmup is {self.warmup!r} epochs", f"give 0 to {self.epochs}, the epochs of the run")
        _ = self._parsed  # which checks it

    @cached_property
    def _parsed(self) -> tuple[str, tuple[float, ...]]:
        kind, *rest = self.schedule.split(":")
        numbers = tuple(float(number) for number in rest if NUMBER.fullmatch(number))
        match kind, numbers:
            case "constant", ():
                fits = True
            case "cosine" | "linear", () | (_,):
                fits = all(0 <= end <= 1 for end in numbers)
            case "step", (factor, _, *_):
                epochs = numbers[1:]
                fits = 1e-6 <= factor <= 1 and all(epoch % 1 == 0 for epoch in epochs)
                fits = fits and [0, *epochs, self.epochs] == sorted({0, *epochs, self.epochs})
            case _:
                fits = False
        if not fits or len(numbers) < len(rest):
            raise ConfigError(f"schedule is {self.schedule!r:.80}", REMEDY)
        return kind, numbers

    @property
    def depends_on_length(self) -> bool:
        """Whether a run with more epochs would have taken other steps from the start."""
        return self._parsed[0] in ("cosine", "linear")

    def at(self, step: int) -> float:
        """The learning rate of a step of the run, counted from 0."""
        warm = round(self.warmup * self.steps)
        if step < warm:
            return self.lr * ((step + 1) / warm)
        kind, numbers = self._parsed
        if kind == "constant":
            return self.lr
        if kind == "step":
            return self.lr * numbers[0] ** sum(step >= epoch * self.steps for epoch in numbers[1:])
        end, past = numbers[0] if numbers else 0.0, (step - warm) / (self.epochs * self.steps - warm)
        left = cos(pi / 2 * past) ** 2 if kind == "cosine" else 1 - past  # (1 + cos(pi s)) / 2, not rounded to 0
        return self.lr * (end + (1 - end) * left)
