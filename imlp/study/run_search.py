"""`search`: the amount of inductive bias as something to optimise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imlp.backend import backend as get_backend
from imlp.data import Dataset
from imlp.files import check_path
from imlp.study.cluster import connected
from imlp.study.engine import run_tasks
from imlp.study.optuna_search import Search
from imlp.study.run_sweep import check_network
from imlp.study.tasks import Outcome, Task
from imlp.study.watcher import Watcher
from imlp.train import prepare
from imlp.train.config import Config, check_seeds
from imlp.train.loop import Trainer

if TYPE_CHECKING:
    from imlp.study.cluster import Cluster

TRIALS = 32


@dataclass(frozen=True)
class SearchResult:
    """What came of a search: its folder, and what its `search.json` holds (see `imlp.study.optuna_search`)."""

    folder: Path
    content: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """What `search --json` prints."""
        return {"folder": str(self.folder), **self.content}


def search(
    config: Config | None = None,
    over: str = "alpha",
    *,
    every: str | None = None,
    trials: int = TRIALS,
    validation: float = 0.1,
    seeds: int = 1,
    prune: bool = True,
    lane: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    lanes_at_once: int | None = None,
    storage: str | None = None,
    data: Dataset | None = None,
    cluster: "Cluster | None" = None,
    check: bool = True,
    watcher: Watcher | None = None,
) -> SearchResult:
    """Search for the best amount of inductive bias with Optuna, on images held out from the training set.

    Alpha 0 and alpha 1 are tried first. At the end the choice and these two are trained on all training images, and
    only then the test set is used. Call it again at any time: it resumes where it was, or returns its result.
    `imlp.train.loop.Interrupted` is raised if a signal stops it.

    - `config`: everything but the lanes; its `seed` draws the images held out and is the first seed of the test
    - `over`: `alpha`, `alpha-per-layer`, `schedule`; or `settings`, of a coupling that has no alpha
    - `every`: epoch, step, a number of steps; `both` or `epoch,step` searches the cadence as well; None: as for `sweep`
    - `trials`: how many lanes to try in all
    - `validation`: the share of the training images to hold out and to judge by
    - `seeds`: how many, for the test at the end
    - `prune`: stop lanes early that are below the median of earlier ones
    - `lane`: settings of every lane: `coupling`, `layers`, `biases`, `head`
    - `out`: the folder for everything; None: `runs/search-NETWORK-DATA-HASH`
    - `lanes_at_once`: lanes in one run; None: 8, or as many as memory allows
    - `storage`: the URL of a database that several machines share; None: a file in the folder
    - `data`, `cluster`, `check`, `watcher`: as for `sweep`
    """
    base, watcher = config or Config(), watcher or Watcher()
    check_seeds(seeds)
    check_path(out or "")
    get_backend(base.backend)  # before anything slow: it names what is missing
    data = data or prepare.load_data(base, watcher.progress)
    cadence = "both" if every in ("epoch,step", "step,epoch") else every or ""
    settings: dict[str, Any] = {
        "over": over, "every": cadence, "common": dict(lane or {}),
        "trials": trials, "validation": validation, "seeds": seeds, "prune": prune, "at_once": lanes_at_once,
        "storage": storage,
    }  # fmt: skip
    with connected(cluster, watcher):
        runs_at_once = cluster.runs(base) if cluster else 1
        going = Search(base, data, Path(out) if out else None, **settings, runs_at_once=runs_at_once)
        batches = _Batches(watcher, check=check, cluster=cluster)
        content = going.run(batches)
    _draw(content, going.folder / "search.png", again=batches.trained)
    return SearchResult(going.folder, content)


class _Batches:
    """Runs the batches of a search, in this process or on a cluster, after one check of the network."""

    def __init__(self, watcher: Watcher, *, check: bool, cluster: "Cluster | None"):
        self.watcher, self.check, self.cluster, self.trained = watcher, check, cluster, False

    def __call__(self, tasks: Sequence[Task], data: Dataset) -> list[Outcome]:
        if all(task.finished for task in tasks):
            return run_tasks(tasks, data, Watcher(), self.cluster)
        self.trained = True
        if self.check:
            self.check = False
            check_network(Trainer(tasks[0].config, data, tasks[0].folder), self.watcher)
        final = tasks[0].folder.parent.name == "final"
        lanes = sum(len(task.config.lanes) for task in tasks)
        text = "on all training images, then the test" if final else "judged on the images held out"
        self.watcher.noted(f"{'final' if final else tasks[0].folder.name}: {lanes} lanes, {text}")
        return run_tasks(tasks, data, self.watcher, self.cluster)


def _draw(content: dict[str, Any], path: Path, *, again: bool) -> None:
    if again or not path.exists():
        from imlp.look import plot  # matplotlib takes a second to import

        plot.save(plot.search_figure(content), path)
