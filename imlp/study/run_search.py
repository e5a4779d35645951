"""`search`: the amount of inductive bias as something to optimise."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imlp.backend import backend as get_backend
from imlp.data import Dataset
from imlp.files import check_path
from imlp.study.cluster import Cluster, connected
from imlp.study.optuna_search import Search
from imlp.study.outcomes import SearchOutcome
from imlp.study.run_sweep import Runner
from imlp.study.search_space import check_trials
from imlp.study.tasks import Outcome, Task
from imlp.study.watcher import Watcher
from imlp.train import prepare
from imlp.train.config import Config, check_seeds

TRIALS = 32


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: its folder, and what its `search.json` holds."""

    folder: Path
    outcome: SearchOutcome

    def as_dict(self) -> dict[str, Any]:
        """What `search --json` prints."""
        return {"folder": str(self.folder), **dataclasses.asdict(self.outcome)}


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
    cluster: Cluster | None = None,
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
    check_trials(trials)
    check_path(out or "")
    get_backend(base.backend)  # before anything slow: it names what is missing
    data = data or prepare.load_data(base, watcher.progress)
    cadence = "both" if every in ("epoch,step", "step,epoch") else every or ""
    with connected(cluster, watcher):
        going = Search(
            base, data, Path(out) if out else None, over=over, every=cadence, common=dict(lane or {}), trials=trials,
            validation=validation, seeds=seeds, at_once=lanes_at_once, prune=prune, storage=storage,
            runs_at_once=cluster.runs(base) if cluster else 1,
        )  # fmt: skip
        runner = Runner(watcher, cluster, check)

        def run_batch(tasks: Sequence[Task], data: Dataset) -> list[Outcome]:
            if all(task.finished for task in tasks):
                return Runner(Watcher(), cluster)(tasks, data)
            folder, lanes = tasks[0].folder, sum(len(task.config.lanes) for task in tasks)
            if folder.parent.name == "final":
                watcher.noted(f"final: {lanes} lanes, on all training images, then the test")
            else:
                watcher.noted(f"{folder.name}: {lanes} lanes, judged on the images held out")
            return runner(tasks, data)

        outcome = going.run(run_batch)
    picture, record = going.folder / "search.png", going.folder / "search.json"
    if not picture.exists() or picture.stat().st_mtime < record.stat().st_mtime:
        from imlp.look import plot  # matplotlib takes a second to import

        plot.save(plot.search_figure(outcome), picture)
    return SearchResult(going.folder, outcome)
