"""Sweeps of the tiny network on this machine, in the test's own process."""

import dataclasses
from pathlib import Path

import tiny_runs

from imlp.study.tasks import plan, run_here
from imlp.study.watcher import Watcher
from imlp.train.lane import lanes_of

BASE = tiny_runs.config()
LANES = lanes_of("0,0.01,1", "epoch,3")


class Watch(Watcher):
    """Keeps the tasks and their outcomes."""

    def __init__(self):
        self.outcomes = []

    def planned(self, tasks):
        self.tasks = list(tasks)

    def ended(self, outcome):
        self.outcomes.append(outcome)


def sweep(folder: Path, *, lanes=LANES, seeds=(0, 1), at_once=99, stop=10**9, base=BASE, data=None):
    """`stop` ends it after so many steps."""
    stopper = tiny_runs.StopAt(stop)
    tasks = [
        dataclasses.replace(task, callbacks=(stopper,)) for task in plan(base, lanes, seeds, folder, at_once=at_once)
    ]
    return run_here(tasks, data or tiny_runs.data(), Watch())
