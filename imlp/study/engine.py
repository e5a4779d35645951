"""Where the tasks of a study run: in this process, or on a Ray cluster."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from imlp.data import Dataset
from imlp.study.tasks import Outcome, Task, run_here
from imlp.study.watcher import Watcher
from imlp.train.signals import stopping_on_signals

if TYPE_CHECKING:
    from imlp.study.cluster import Cluster


def run_tasks(
    tasks: Sequence[Task], data: Dataset, watcher: Watcher, cluster: "Cluster | None" = None
) -> list[Outcome]:
    """All tasks, in this process or on the cluster that it is connected to; a signal stops them with nothing lost."""
    try:
        if cluster is None:
            return run_here(tasks, data, watcher, stopping_on_signals)
        from imlp.study.cluster.driver import run_on_ray

        return run_on_ray(tasks, data, watcher, stopping_on_signals, cluster=cluster)
    finally:
        watcher.close()
