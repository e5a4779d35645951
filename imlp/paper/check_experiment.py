"""Checks of an experiment's file when it is read: its arms, budgets, numbers and claims, before any run."""

import inspect
from collections.abc import Mapping
from typing import Any

from imlp.errors import ConfigError, known
from imlp.paper.claims import CLAIMS, NAMING, dip
from imlp.train.config import check_seeds, from_mapping
from imlp.train.lane import Lane, lanes_of, with_epochs
from imlp.train.run_reader import NUMBER, conform, optional


def check_content(content: Mapping[str, Any]) -> None:
    """Refuse an experiment that lacks something or holds what could only fail later: ValueError or `ConfigError`."""
    arm = {"name": str, "more": [dict], "settings": dict, "every": str, "alphas": str | list}
    arm |= dict.fromkeys(content.get("budgets", ()), dict)
    conform(content, {"title": str, "asks": str, "arms": [dict], "budgets": {...: dict}})
    conform(content, optional(settings=dict, assumed_std=NUMBER, paper=[dict], claims=[dict]))
    conform(content, {"arms": [lambda own: optional(**arm)(own) | {"name": str, "alphas": str | list}]})
    conform(content, {"budgets": {...: optional(seeds=int, alphas=str | list, every=str, settings=dict)}})
    arms = [own["name"] for own in content["arms"]]
    if not arms or len(set(arms)) < len(arms):
        raise ConfigError(f"its arms are called {', '.join(arms) or 'nothing'}", "give each arm a name of its own")
    for table in (*content["arms"], *content["budgets"].values()):
        alphas = table.get("alphas", "0")
        conform([alphas] if isinstance(alphas, str) else alphas, [str], "alphas")
        check_seeds(table.get("seeds", 3))
    for row in content.get("paper", ()):
        _check_row(row, arms)
    for claim in content.get("claims", ()):
        _check_claim(claim, arms, content["budgets"])


def _check_row(row: Mapping[str, Any], arms: list[str]) -> None:
    """A row of the paper's numbers: an arm, perhaps a lane, and for each data set a value with perhaps its std."""
    conform(row, {"arm": tuple(arms)})
    conform(row, optional(lane=dict))
    if "lane" in row:
        from_mapping(Lane, row["lane"])
    for data, numbers in row.items():
        if data not in ("arm", "lane"):
            own = numbers if isinstance(numbers, list) else [numbers]
            conform(own, [NUMBER], f"paper.{data}")
            if not 1 <= len(own) <= 2:
                raise ConfigError(f"paper.{data} is {numbers!r:.40}", "give a number, or a number and its deviation")


def _check_claim(claim: Mapping[str, Any], arms: list[str], budgets: Mapping[str, Any]) -> None:
    conform(claim, {"kind": str, "claim": str})
    kind = known(claim["kind"], CLAIMS, "kind of claim")
    if "needs" in claim:
        conform(claim, {"needs": tuple(budgets)})
    settings = {name: value for name, value in claim.items() if name not in ("kind", "claim", "needs")}
    judge = dip if kind == "no-dip" else CLAIMS[kind]
    parameters = {name: own for name, own in inspect.signature(judge).parameters.items() if name != "evidence"}
    for name in settings:
        known(name, parameters, f"setting of the claim {kind}")
    for name, own in parameters.items():
        if name not in settings and own.default is own.empty and name != "every":
            raise ConfigError(f"the claim {claim['claim']!r:.60} has no {name}", f"{kind} needs it")
    several = {name for name, own in parameters.items() if "Sequence" in str(own.annotation)}
    conform(settings, optional(arm=tuple(arms), larger=tuple(arms), smaller=tuple(arms), shared=NUMBER))
    conform(settings, optional(between=[NUMBER], alphas=[str], alpha=str, every=str, coupling=str))
    for name in settings.keys() & set(NAMING):
        conform(settings, {name: [dict] if name in several else dict})
        for named in settings[name] if name in several else [settings[name]]:
            _check_named({"arm": arms[0], **named} if name == "lanes" else named, arms)
        if not settings[name]:
            raise ConfigError(f"{name} of the claim {claim['claim']!r:.60} is empty", "name at least one model")
    lanes_of(settings.get("alphas", [settings.get("alpha", "0")]), settings.get("every"))
    Lane(coupling=settings.get("coupling", "interpolate"))
    between = settings.get("between", [0, 1])
    if len(between) != 2 or not 0 <= between[0] <= between[1] <= 1:
        raise ConfigError(f"between is {between!r:.60}", "give two alphas in order")


def _check_named(name: Mapping[str, Any], arms: list[str]) -> None:
    """A model that a claim names: an arm, and a lane's settings unless it is the prior."""
    conform(name, {"arm": tuple(arms)})
    from_mapping(Lane, with_epochs({key: value for key, value in name.items() if key != "arm"}, 100))
