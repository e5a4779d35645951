"""What the page, the figures and the tables all show, which `gather` takes from the runs once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imlp.report.matrices import Matrices
from imlp.study.outcomes import PaperPoint, SearchOutcome, Verdict
from imlp.study.scores import Arm, Score
from imlp.study.two_lines import V
from imlp.train.config import Lane


@dataclass(frozen=True)
class Epoch:
    """A model after an epoch, over the seeds that have come so far."""

    epoch: int
    accuracy: float  # per cent
    spread: float | None  # its standard deviation
    n: int  # seeds
    metrics: dict[str, float]  # the means of all other numbers of metrics.jsonl


@dataclass(frozen=True)
class ModelData:
    """The prior or a lane of an arm."""

    title: str
    lane: Lane | None  # None: the prior
    score: Score | None  # after the last epoch of finished runs
    parameters: int | None
    seconds: float | None  # of a run that holds it, on average
    remark: str  # what is missing of it, and why
    epochs: list[Epoch]
    meter: dict[str, dict[str, float | None]]  # the bias meter after the last epoch, by layer

    @property
    def mean(self) -> float | None:
        return self.score.mean if self.score else None

    @property
    def std(self) -> float | None:
        return self.score.std if self.score else None


@dataclass(frozen=True)
class Series:
    """Lanes that differ in alpha alone, smallest first, and the two lines of figure 2's V."""

    name: str
    scores: list[Score]
    fit: V | None

    @property
    def alphas(self) -> list[float]:
        return [score.alpha or 0.0 for score in self.scores]

    @property
    def is_curve(self) -> bool:
        """Whether a line through its points says anything: one alpha beside 0 is a point."""
        return sum(alpha > 0 for alpha in self.alphas) > 1


@dataclass(frozen=True)
class ArmData:
    """All that is shown of an arm."""

    id: str  # names its files and its part of the page
    name: str
    arm: Arm
    models: list[ModelData]  # the prior first
    series: list[Series]
    points: Sequence[PaperPoint]  # all with an alpha and a value
    verdicts: Sequence[Verdict]  # on the paper's claims, for runs without an experiment
    matrices: Matrices | str  # or why there are none
    warnings: list[str]

    @property
    def is_finished(self) -> bool:
        return any(run.result for run in self.arm.runs)

    @property
    def seeds(self) -> int:
        return max((model.score.n for model in self.models if model.score), default=0)

    @property
    def has_curve(self) -> bool:
        """Whether accuracy against alpha is the figure to show first."""
        return any(len(series.scores) > 3 for series in self.series)

    @property
    def alphas(self) -> list[float]:
        """All that the alpha figure shows, the paper's too."""
        return sorted({a for s in self.series for a in s.alphas} | {point.alpha or 0.0 for point in self.points})


@dataclass(frozen=True)
class SearchData:
    """A search, and the arms that hold its runs."""

    id: str
    folder: Path
    outcome: SearchOutcome
    arms: list[ArmData]

    @property
    def name(self) -> str:
        return f"Search over {self.outcome.over}: {self.outcome.network} on {self.outcome.data}"

    @property
    def layers(self) -> list[str]:
        """Those that have an alpha each; none where one alpha is for all of them."""
        several = [trial.alphas for trial in self.outcome.trials if len(trial.alphas) > 1]
        return list(dict.fromkeys(name for alphas in several for name in alphas))
