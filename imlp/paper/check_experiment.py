"""Checks of an experiment's file when it is read, before any run: its numbers and claims."""

import inspect
from collections.abc import Collection, Mapping
from typing import Any, get_type_hints

from imlp.errors import ConfigError, known
from imlp.paper.claims import CLAIMS, NAMING
from imlp.study.outcomes import typed
from imlp.train.config import from_mapping
from imlp.train.lane import Lane, lanes_of, with_epochs


def check_claim(claim: Mapping[str, Any], arms: Collection[str], budgets: Collection[str]) -> None:
    """Refuse a claim that could only fail later: its settings are the parameters of the function that judges it."""
    settings = dict(claim)
    text, kind = typed(str, settings.pop("claim", None), "claim"), known(settings.pop("kind", ""), CLAIMS, "kind")
    if "needs" in settings:
        known(settings.pop("needs"), budgets, "budget")
    hints, parameters = get_type_hints(CLAIMS[kind]), inspect.signature(CLAIMS[kind]).parameters
    for name, value in settings.items():
        typed(hints[known(name, [*parameters][1:], f"setting of the claim {kind}")], value, name)
        if name in ("arm", "larger", "smaller"):
            known(value, arms, "arm")
        elif name == "arms":
            for arm in value:
                known(arm, arms, "arm")
        elif name in NAMING:
            models = value if isinstance(value, list) else [value]
            if not models:
                raise ConfigError(f"{name} of the claim {text!r:.60} is empty", "name at least one model")
            for model in models:
                lane = {key: setting for key, setting in model.items() if key != "arm"}
                from_mapping(Lane, with_epochs(lane, 100))
                known(model.get("arm", "" if name != "lanes" else settings.get("arm")), arms, "arm")
    for name, parameter in [*parameters.items()][1:]:
        if name not in settings and parameter.default is parameter.empty and name != "every":
            raise ConfigError(f"the claim {text!r:.60} has no {name}", f"{kind} needs it")
    lanes_of(settings.get("alphas", [settings.get("alpha", "0")]), settings.get("every"))
    Lane(coupling=settings.get("coupling", "interpolate"))
    between = settings.get("between", [0, 1])
    if len(between) != 2 or not 0 <= between[0] <= between[1] <= 1:
        raise ConfigError(f"between is {between!r:.60}", "give two alphas in order")
