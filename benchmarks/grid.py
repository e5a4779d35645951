"""What the paper's whole grid costs, from the times of real steps on this machine. Prints tables in Markdown.

Run: python benchmarks/grid.py [--threads 2] [--seeds 5] [--epochs 100] [--lanes-at-once 9] [--machines 4,16]

The grid: alpha 0 and 13 alphas from 1e-4 to 1, mixed after every epoch and after every step, several seeds, both
priors, CIFAR-10 and CIFAR-100. Each network takes a few real steps on noise with as many lanes as a run has, `--rounds`
times. Evaluation is counted as in `reproduce --list`: a test image costs a third of a training image, twice per epoch.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path

import measure
import numpy as np
from rich.console import Console
from rich.progress import track

from imlp.data import Dataset
from imlp.machine import facts_of_this_machine
from imlp.study.cost import CIFAR, EVALUATION
from imlp.train.config import Config, Lane
from imlp.train.lane import lanes_of
from imlp.train.loop import Trainer

ALPHAS = "0,1e-4..1:13log"
DATA = 2  # CIFAR-10 and CIFAR-100, whose steps differ by the head alone
BATCH = 128


def steps(network: str, at_once: int, threads: int, rounds: int) -> tuple[float, float]:
    """Seconds per step of a run whose lanes mix after every epoch, and of one whose lanes mix after every step."""
    x = np.random.default_rng(0).integers(0, 256, (4 * BATCH, 3, 32, 32), np.uint8)
    y = np.arange(len(x)) % 10
    noise = Dataset("noise", x, y, x[:10], y[:10], tuple(map(str, range(10))))
    times: dict[str, list[float]] = {"epoch": [], "step": []}
    for _ in range(rounds):
        for every, own in times.items():
            lanes = tuple(Lane(f"0.{k}", every=every) for k in range(1, at_once + 1))
            config = Config(network=network, data="noise", lanes=lanes, threads=threads, batch=BATCH)
            own.append(Trainer(config, noise, Path()).seconds_a_step())
    by_epoch, by_step = (statistics.median(own) for own in times.values())
    return by_epoch, by_step


def groups(at_once: int) -> Iterator[tuple[int, int]]:
    """For each run of a seed, how many of its lanes mix after every epoch and how many after every step."""
    lanes = lanes_of(ALPHAS, "epoch,step")
    for start in range(0, len(lanes), at_once):
        stepping = sum(lane.steps is not None for lane in lanes[start : start + at_once])
        yield len(lanes[start : start + at_once]) - stepping, stepping


def on(machines: int, runs: list[float]) -> float:
    """Seconds until the last run ends. Each machine does one run at a time, and the longest runs start first."""
    busy = [0.0] * machines
    for run in sorted(runs, reverse=True):
        first = busy.index(min(busy))
        busy[first] += run
    return max(busy)


def print_table(heads: list[str], rows: list[list[str]]) -> None:
    """Print a table in Markdown, and an empty line after it."""
    for row in (heads, ["---"] * len(heads), *rows):
        print("| " + " | ".join(row) + " |")
    print()


def main(
    threads: int = 2, seeds: int = 5, epochs: int = 100, lanes_at_once: int = 9, machines: str = "4,16", rounds: int = 3
) -> None:
    counts = [int(count) for count in machines.split(",")]
    waiting = track(("cnn", "mixer"), "timing steps", console=Console(stderr=True), transient=True)
    found = {network: steps(network, lanes_at_once, threads, rounds) for network in waiting}
    by_run: list[list[str]] = []
    by_machines: list[list[str]] = []
    everything: list[float] = []
    for network, (by_epoch, by_step) in found.items():
        number = epochs * (CIFAR[0] + 2 * EVALUATION * CIFAR[1]) / BATCH
        each = [number * (by_epoch * a + by_step * b) / lanes_at_once for a, b in groups(lanes_at_once)]
        runs = DATA * seeds * each
        everything += runs
        step_ms = [f"{1e3 * seconds:.0f}" for seconds in (by_epoch, by_step)]
        run_hours = [f"{seconds / 3600:.1f}" for seconds in (min(each), max(each))]
        by_run.append([network, *step_ms, str(len(runs)), *run_hours])
        by_machines.append([network, *(f"{on(k, runs) / 3600:.0f}" for k in (1, *counts))])
    by_machines.append(["both", *(f"{on(k, everything) / 3600:.0f}" for k in (1, *counts))])
    step_heads = ["a step, mixing every epoch (ms)", "a step, mixing every step (ms)"]
    print_table(["prior", *step_heads, "runs", "shortest run (h)", "longest run (h)"], by_run)
    print_table(["prior", "one machine (h)", *(f"{count} machines (h)" for count in counts)], by_machines)
    facts = ", ".join(f"{name} {value}" for name, value in facts_of_this_machine().items() if name != "because")
    lanes = f"{len(lanes_of(ALPHAS, 'epoch,step'))} lanes in runs of {lanes_at_once}, each with its own prior"
    print(f"{seeds} seeds, {epochs} epochs, {lanes}, on {threads} threads; checkpoints add at most a tenth. {facts}.")


if __name__ == "__main__":
    measure.run(main)
