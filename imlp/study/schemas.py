"""The shapes of the files that `reproduce` and `search` write, against which whoever reads them checks them."""

from typing import Any

from imlp.train.run_reader import NUMBER

MAYBE = NUMBER | None
EXPERIMENT = {
    **dict.fromkeys(("name", "title", "asks", "budget", "command"), str),
    "arms": [{"name": str, "key": str}],
    "table": [
        {"arm": str, "model": str, "n": int} | dict.fromkeys(("mean", "std", "paper", "paper_std", "difference"), MAYBE)
    ],
    "verdicts": [dict.fromkeys(("claim", "verdict", "because"), str)],
    "paper": [{"arm": str, "model": str, "alpha": MAYBE, "value": MAYBE, "std": MAYBE}],
}
FINAL = {
    "title": str, "lane": dict | None, "validation": MAYBE,
    "test": {"mean": NUMBER, "std": MAYBE, "n": int, "by_seed": {...: NUMBER}},
}  # fmt: skip


def search(content: dict[str, Any]) -> dict[str, Any]:
    """The shape of `search.json`; `final` is empty until the search has ended."""
    return {
        "over": str, "every": str, "network": str, "data": str, "epochs": int, "seed": int,
        "validation": {"share": NUMBER, "images": int, "of": int},
        "prior": MAYBE,
        "trials": [{
            "number": int, "title": str, "lane": {"every": str}, "kind": str, "alphas": {...: NUMBER}, "state": str,
            "values": [NUMBER], "value": MAYBE, "run": list,
        }],
        "importances": {...: NUMBER},
        "chosen": {"number": int, "title": str, "lane": dict, "value": NUMBER, "alpha": {...: str}},
        "final": type(None) if content.get("final") is None else [FINAL],
    }  # fmt: skip
