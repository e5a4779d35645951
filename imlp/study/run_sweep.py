"""`sweep`: one prior and many alphas for each seed, over many seeds."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imlp.backend import backend as get_backend
from imlp.couplings import Mixing, class_of
from imlp.data import Dataset
from imlp.errors import ConfigError
from imlp.files import check_path
from imlp.study.cluster import Cluster, connected
from imlp.study.scores import Arm, arms_of, base_identity
from imlp.study.tasks import Outcome, Task, lanes_at_once, plan, run_here
from imlp.study.watcher import Watcher
from imlp.train import prepare
from imlp.train.config import Config, Lane, check_seeds
from imlp.train.lane import lanes_of
from imlp.train.loop import Trainer
from imlp.train.run_folder import RunFolder, locked
from imlp.train.run_reader import find_runs

ALPHAS = "0,1e-4..1:9log"
SEEDS = 3


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep: its folder, the runs that failed, and the accuracies over all seeds."""

    folder: Path
    failed: list[dict[str, str]]  # each with its `run`, its `error`, and where its traceback is: `log`
    arm: Arm | None  # the runs that finished, with their scores; None: every run has failed

    def as_dict(self) -> dict[str, Any]:
        """What `sweep --json` prints; the prior has `lane` None, and accuracies are in per cent."""
        runs, scores = (self.arm.runs, self.arm.scores) if self.arm else ((), [])
        asked = {lane.compared: lane for run in runs for lane in run.config.lanes}  # in the words of who asked for them
        models = [
            {"lane": dataclasses.asdict(asked[score.lane]) if score.lane else None}
            | {"mean": score.mean, "std": score.std, "n": score.n, "by_seed": score.by_seed}
            for score in scores
        ]
        return {"folder": str(self.folder), "failed": self.failed, "models": models}


def sweep(
    config: Config | None = None,
    alphas: str | Iterable[str] = ALPHAS,
    *,
    every: str | None = None,
    seeds: int = SEEDS,
    lane: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    lanes_at_once: int | None = None,
    data: Dataset | None = None,
    cluster: Cluster | None = None,
    check: bool = True,
    watcher: Watcher | None = None,
) -> SweepResult:
    """Train many alphas beside one prior, for several seeds: accuracy against alpha, with error bars.

    Call it again at any time: what is finished is skipped, what was interrupted is resumed, and new alphas or seeds are
    added to what is there. `imlp.train.loop.Interrupted` is raised if a signal stops it.

    - `config`: everything but the lanes; its `seed` is the first seed
    - `lane`: settings of every lane: `coupling`, `layers`, `biases`, `head`
    - `alphas`, `every`, `seeds`, `out`, `lanes_at_once`: the options of the command, which `sweep --help` describes
    - `data`: images in memory; None: those that `config` names
    - `cluster`: runs go to this Ray cluster instead of this process
    - `check`: compare the network with the reference first
    - `watcher`: is told of the progress; nothing is printed without one
    """
    base, watcher = config or Config(), watcher or Watcher()
    check_seeds(seeds)
    lanes = sweep_lanes(alphas, every, lane or {})
    name = f"sweep-{base.network_name}-{Path(base.data).name}-{base_identity(base)}"
    folder = check_path(out or Path("runs") / name)
    span, runner = range(base.seed, base.seed + seeds), Runner(watcher, cluster, check)
    with connected(cluster, watcher):
        arm, failed = run_lanes(base, lanes, span, folder, runner, data=data, at_once=lanes_at_once)
    return SweepResult(folder, failed, arm)


def sweep_lanes(alphas: str | Iterable[str], every: str | None, lane: Mapping[str, Any]) -> tuple[Lane, ...]:
    """The lanes of a sweep; a coupling without an alpha has one unless alphas are given for it, which is refused."""
    mixes = issubclass(class_of(lane.get("coupling", "interpolate")), Mixing)
    unset = alphas in (ALPHAS, [ALPHAS]) and not mixes
    return lanes_of("0" if unset else alphas, every, **lane)


@dataclass
class Runner:
    """Runs tasks in this process, or on the cluster that it is connected to; a signal stops them with nothing lost."""

    watcher: Watcher
    cluster: Cluster | None = None
    check: bool = True  # the network against the reference, once, before anything is trained

    def __call__(self, tasks: Sequence[Task], data: Dataset) -> list[Outcome]:
        if self.check and not all(task.finished for task in tasks):
            self.check = False
            trainer = Trainer(tasks[0].config, data, tasks[0].folder)
            if checked := prepare.check_network(trainer, self.watcher.progress):
                self.watcher.noted(checked)
        try:
            if self.cluster is None:
                return run_here(tasks, data, self.watcher)
            from imlp.study.cluster.driver import run_on_ray

            return run_on_ray(tasks, data, self.watcher, self.cluster)
        finally:
            self.watcher.close()


def run_lanes(
    base: Config,
    lanes: Sequence[Lane],
    seeds: Sequence[int],
    folder: Path,
    runner: Runner,
    *,
    data: Dataset | None = None,
    at_once: int | None = None,
) -> tuple[Arm | None, list[dict[str, str]]]:
    """Plan the runs of these lanes and seeds, and run them: those that finished as one arm, and those that failed."""
    if at_once is not None and at_once < 1:
        raise ConfigError(f"--lanes-at-once is {at_once}", "give at least 1")
    get_backend(base.backend)  # before anything slow: it names what is missing
    data = data or prepare.load_data(base, runner.watcher.progress)
    Trainer(dataclasses.replace(base, lanes=tuple(lanes), seed=seeds[0]), data, folder)  # refuses what cannot be run
    room = runner.cluster.room(base) if runner.cluster is not None else None
    at_once = at_once or lanes_at_once(base, data, len(lanes), room)
    with locked(folder):  # two sweeps in one folder would plan and train the same runs
        outcomes = runner(plan(base, lanes, seeds, folder, at_once=at_once, digest=data.digest), data)
    finished = [outcome.task.folder for outcome in outcomes if outcome.result is not None]
    failed = [
        {"run": str(o.task.folder), "error": o.error, "log": str(RunFolder(o.task.folder).log)}
        for o in outcomes
        if o.error is not None
    ]
    return arms_of(find_runs(finished))[0] if finished else None, failed
