"""`reproduce`: a table or figure of the paper by name, with the paper's numbers beside ours."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imlp.files import check_new, check_path, write_json
from imlp.paper.cost import CHOICE, overnight
from imlp.paper.experiments import Experiment, read_experiment
from imlp.study.cluster import Cluster, connected
from imlp.study.outcomes import ExperimentOutcome
from imlp.study.run_sweep import Runner, run_lanes
from imlp.study.scores import Arm, ArmPlan
from imlp.study.watcher import Watcher
from imlp.train.config import Config, check_seeds
from imlp.train.run_folder import refuse_links


@dataclass(frozen=True)
class ExperimentResult:
    """The result of an experiment: its folder, the runs that failed, its arms, and what its `experiment.json` holds."""

    folder: Path
    failed: list[dict[str, str]]  # as those of a `SweepResult`
    arms: dict[str, Arm]
    outcome: ExperimentOutcome

    def as_dict(self) -> dict[str, Any]:
        """What `reproduce --json` prints."""
        return {"folder": str(self.folder), "failed": self.failed, **dataclasses.asdict(self.outcome)}


def reproduce(
    name: str,
    *,
    budget: str = "smoke",
    every: str | None = None,
    seeds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    lanes_at_once: int | None = None,
    report: bool = True,
    command: str | None = None,
    cluster: Cluster | None = None,
    check: bool = True,
    watcher: Watcher | None = None,
) -> ExperimentResult:
    """Run an experiment of the paper: our numbers beside the paper's, and a verdict on each of its claims.

    Call it again at any time: what is finished is skipped, and what was interrupted is resumed.
    `imlp.train.loop.Interrupted` is raised if a signal stops it.

    - `name`, `budget`, `every`, `seeds`, `out`, `lanes_at_once`, `report`: as `reproduce --help` describes them
    - `settings`: of `Config`, over those of the experiment: `{"epochs": 2, "options": {"width": 256}}`
    - `command`: the command to record in `experiment.json`; None: this call
    - `cluster`, `check`, `watcher`: as for `sweep`
    """
    experiment, given, watcher = read_experiment(name), dict(settings or {}), watcher or Watcher()
    changed = given | ({"every": every} if every else {})
    plans = experiment.plans("paper" if budget == "overnight" else budget, **changed)
    folder = check_path(out or default_folder(experiment, budget, plans, changed))
    record, page = folder / "experiment.json", folder / "report.html"
    refuse_links([record, page, folder / CHOICE])
    if budget == "overnight":
        experiment, chosen = overnight(experiment, changed, seeds, folder, watcher.progress)
        watcher.noted(f"overnight: {chosen}")
        plans = experiment.plans(budget, **changed)
    n, first = check_seeds(experiment.seeds(budget) if seeds is None else seeds), given.get("seed", 0)
    check_new(page, force=not report, remedy="choose another folder with --out, or add --no-report")
    arms: dict[str, Arm] = {}
    failed: list[dict[str, str]] = []
    with connected(cluster, watcher):
        for plan in plans:
            where, span = folder / re.sub(r"\W+", "-", plan.name.lower()), range(first, first + n)
            refuse_links([where])
            runner = Runner(watcher, cluster, check)
            arm, failures = run_lanes(plan.base, plan.lanes, span, where, runner, at_once=lanes_at_once)
            arms |= {plan.name: arm} if arm else {}
            failed += failures
    outcome = experiment.outcome(arms, budget=budget, command=command or _call(name, budget, every, seeds, given))
    write_json(record, dataclasses.asdict(outcome))
    if report and arms:
        from imlp.report import write  # matplotlib takes a second to import

        write([folder], page, progress=watcher.progress)
    return ExperimentResult(folder, failed, arms, outcome)


def default_folder(experiment: Experiment, budget: str, plans: list[ArmPlan], given: Mapping[str, Any]) -> Path:
    """Its name says what was changed, so that two variations never share a folder."""
    changing = {"every", "recipe"} | {f.name for f in dataclasses.fields(Config) if f.metadata["changes_result"]}
    name = f"{Path(experiment.name).stem}-{budget}-{Path(plans[0].base.data).name}"
    changed = "".join(f"-{key}={given[key]}" for key in sorted((given.keys() & changing) - {"data", "seed"}))
    return Path("runs") / (name + re.sub(r"[^\w=.,-]+", "_", changed))


def _call(name: str, budget: str, every: str | None, seeds: int | None, given: Mapping[str, Any]) -> str:
    more = {"every": every, "seeds": seeds, "settings": dict(given) or None}
    changed = "".join(f", {key}={value!r}" for key, value in more.items() if value is not None)
    return f"imlp.paper.reproduce({name!r}, budget={budget!r}{changed})"
