"""Where the numbers of an arm come from: its runs and how far they came, their settings and machines, and warnings."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from imlp.study.report.data import RunData
from imlp.study.scores import Arm
from imlp.train.run_reader import Run


def run_data(run: Run) -> RunData:
    """Where a run lies, how far it got and what started it."""
    done = max((row["epoch"] for row in run.rows), default=0)
    state = f"unfinished: {done} of {run.config.epochs} epochs"
    if run.result is not None:
        stopped = [stop["lane"] for stop in run.result["stopped"]]
        state = f"finished; stopped: lane {', '.join(map(str, stopped))}" if stopped else "finished"
    return RunData(
        folder=_relative(run.folder),
        seed=run.config.seed,
        lanes=len(run.config.lanes),
        state=state,
        finished=run.result is not None,
        seconds=run.seconds if run.times else None,
        started=str(run.env.get("started", "")),
        command=str(run.env.get("command", "")),
    )


def _relative(folder: Path) -> str:
    """As seen from here, if it is below: a page that is passed on need not name a home."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def warnings(arm: Arm, runs: list[RunData]) -> list[str]:
    """What a reader must know before believing a mean."""
    found = [f"{seen.folder} is {seen.state}; it is in no mean." for seen in runs if not seen.finished]
    for run, seen in zip(arm.runs, runs, strict=True):
        for stop in (stop for stop in (run.result or {}).get("stopped", ()) if "reason" not in stop):
            title = run.config.lanes[stop["lane"]].title
            where = f"epoch {stop['epoch']}, step {stop['step']}, from {stop['layer']} on"
            found.append(f"{title} stopped in {seen.folder}: its loss was not finite in {where}.")
    for lane in arm.lanes:
        curves: dict[int, set[tuple[float, ...]]] = {}  # by seed; an equal run changes no mean
        for run in arm.runs:
            if run.result and (key := run.key_of(lane)) is not None:
                curves.setdefault(run.config.seed, set()).add(tuple(row["test_accuracy"] for row in run.of(key)))
        differing = [str(seed) for seed, own in sorted(curves.items()) if len(own) > 1]
        if differing:
            seeds = f"seed{'s' * (len(differing) > 1)} {', '.join(differing)}"
            found.append(f"{lane.title} was run more than once with {seeds}, and differently; the last folder counts.")
    return found


def settings(arm: Arm) -> list[tuple[str, str]]:
    """Every setting but seed and lanes; those of the machine may differ between the runs."""
    names = [f.name for f in dataclasses.fields(arm.config) if f.name not in ("seed", "lanes")]
    rows = [(name, _distinct(shown(getattr(run.config, name)) for run in arm.runs)) for name in names]
    seeds = ", ".join(map(str, sorted({run.config.seed for run in arm.runs})))
    return [*rows, ("seeds", seeds), ("identity without seed and lanes", arm.key)]


def environment(arm: Arm) -> list[tuple[str, str]]:
    """What `env.json` says, each value once; command and start are listed with the runs."""
    names = dict.fromkeys(name for run in arm.runs for name in run.env if name not in ("command", "started"))
    return [(name, _distinct(str(run.env.get(name, "")) for run in arm.runs)) for name in names]


def why_missing(run: Run, key: int | str) -> str:
    """Why a run has no last accuracy of a model; nothing if it has one."""
    if run.result is None:
        return f"seed {run.config.seed} is unfinished"
    stop = next((stop for stop in run.result["stopped"] if stop["lane"] == key), None)
    return f"seed {run.config.seed} {stop.get('reason', 'stopped')} in epoch {stop['epoch']}" if stop else ""


def _distinct(values: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(values))


def shown(value: Any) -> str:
    """A setting's value as the page writes it."""
    match value:
        case None:
            return "all"
        case bool():
            return "yes" if value else "no"
        case ((str(), _), *_):
            return ", ".join(f"{name}={shown(option)}" for name, option in value)
        case tuple():
            return " ".join(map(shown, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
