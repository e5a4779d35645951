"""What the experiments cost on this machine."""

from typing import Any

from imlp.data.dataset import ProgressCallback, silent
from imlp.paper import experiments
from imlp.paper.experiments import BUDGETS
from imlp.study.cost import seconds_of, speeds_of


def list_experiments(progress: ProgressCallback = silent) -> list[dict[str, Any]]:
    """Every experiment: its `name`, `title`, what it `asks`, and the `seconds` of each budget on this machine."""
    loaded = [experiments.read_experiment(name) for name in experiments.names()]
    plans = {e.name: {budget: e.plans(budget) for budget in BUDGETS} for e in loaded}
    speeds = speeds_of(
        (plan.base for budgets in plans.values() for arms in budgets.values() for plan in arms), progress
    )
    return [
        {
            "name": e.name,
            "title": e.content.title,
            "asks": e.asks,
            "seconds": {budget: seconds_of(plans[e.name][budget], e.seeds(budget), speeds) for budget in BUDGETS},
        }
        for e in loaded
    ]
