"""What the page, the figures and the tables all show: plain numbers, which `gather` takes from the runs once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imlp.study.report.weights import Weights
from imlp.study.two_lines import V


@dataclass(frozen=True)
class ModelData:
    """The prior or a lane of an arm: its last accuracy over the seeds, and mean and spread at each epoch."""

    title: str
    alpha: float | None  # None: the prior, or an alpha that is not one number
    prior: bool
    setting: str  # the lane's alpha as it was written, or what else its coupling is set by
    knobs: tuple[float, float] | None  # alphas of locality and of sharing, of the plain MLP and with the coupling self
    cadence: str
    parameters: int | None
    by_seed: dict[int, float]  # per cent
    mean: float | None
    std: float | None
    seconds: float | None  # of a run that holds it, on average
    remark: str  # what is missing of it, and why
    epochs: list[int]
    accuracy: list[float]  # per cent, by epoch
    spread: list[float | None]  # its standard deviation
    seeds: list[int]  # how many of them
    layers: list[str]  # of the bias meter
    random: dict[str, list[float | None]]  # the parts of a random matrix, by layer; None: an older version's run
    parts: dict[str, list[list[float | None]]]  # shared, local and outside, by layer and epoch
    distance: list[list[float | None]]  # None: without a prior there is none
    shade: float | None  # where its alpha stands among those of the arm, from 0 to 1; None for the prior
    series: int  # which of the arm's series it belongs to, or, for a schedule, has the cadence of; or -1


@dataclass(frozen=True)
class Series:
    """Lanes that differ in alpha alone: accuracy against alpha, and the two lines of figure 2's V."""

    name: str
    alphas: list[float]
    means: list[float]
    stds: list[float | None]
    ns: list[int]
    fit: V | None

    @property
    def is_curve(self) -> bool:
        """Whether a line through its points says anything: one alpha beside 0 is a point."""
        return sum(alpha > 0 for alpha in self.alphas) > 1


@dataclass(frozen=True)
class RunData:
    """One run's folder and how far it has come."""

    folder: str
    seed: int
    lanes: int
    state: str
    finished: bool
    seconds: float | None  # None: it has no times on record
    started: str
    command: str


@dataclass(frozen=True)
class ArmData:
    """All that is shown of an arm."""

    id: str  # names its files and its part of the page
    name: str
    key: str
    measure: str  # test accuracy or validation accuracy
    prior_name: str
    models: list[ModelData]  # the prior first
    series: list[Series]
    paper: list[dict[str, Any]]  # the paper's points: alpha, value, std
    runs: list[RunData]
    settings: list[tuple[str, str]]
    environment: list[tuple[str, str]]
    weights: Weights | str  # or why there are none
    warnings: list[str]
    verdicts: list[dict[str, str]]  # on the paper's claims, for runs without an experiment

    @property
    def length(self) -> tuple[str, str]:
        """Epochs, and images of each."""
        settings = dict(self.settings)
        return settings["epochs"], settings["train_size"]

    @property
    def is_one_run(self) -> bool:
        return len(self.runs) == 1

    @property
    def has_curve(self) -> bool:
        """Whether accuracy against alpha is the figure to show first."""
        return any(len(series.alphas) > 3 for series in self.series)

    @property
    def alphas(self) -> list[float]:
        """All that the alpha figure shows, the paper's too."""
        return sorted({a for s in self.series for a in s.alphas} | {point["alpha"] for point in self.paper})

    @property
    def ticks(self) -> list[float]:
        """0 if it is there, then the decades; the alphas themselves where they span fewer than two."""
        above = [alpha for alpha in self.alphas if alpha > 0]
        decades = [10.0**k for k in range(-300, 1) if above and 0.999 * above[0] <= 10.0**k <= 1.001 * above[-1]]
        return [0.0] * (0.0 in self.alphas) + (decades if len(decades) > 1 else above[:8])


@dataclass(frozen=True)
class SearchData:
    """A search by what its `search.json` holds."""

    id: str  # names its files and its part of the page
    folder: Path
    content: dict[str, Any]

    @property
    def name(self) -> str:
        return f"Search over {self.content['over']}: {self.content['network']} on {self.content['data']}"

    @property
    def finished(self) -> bool:
        return self.content["final"] is not None

    @property
    def layers(self) -> list[str]:
        """Those that have an alpha each; none where one alpha is for all of them."""
        several = [trial["alphas"] for trial in self.content["trials"] if len(trial["alphas"]) > 1]
        return list(dict.fromkeys(name for alphas in several for name in alphas))

    def holds(self, arm: ArmData) -> bool:
        """Whether runs of the arm lie in its folder."""
        return any(Path(run.folder).absolute().is_relative_to(self.folder) for run in arm.runs)
