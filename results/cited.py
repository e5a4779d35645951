"""Numbers in the sentences of `findings.toml`: `{cnn-paper: S-CNN}` there is what the runs say, so none is outdated.

After a bar stands how it is read: `{cnn-paper: S-CNN | last five}`. Two models with a minus between them are compared:
`{cnn-paper: S-CNN - S-MLP (alpha 0)}`.
"""

import re
from collections.abc import Sequence

from archive import Record
from epochs import at_best, at_lowest_loss, over_the_last

from imlp.errors import ConfigError
from imlp.study.scores import Arm, arms_of

CITED = re.compile(r"\{([\w-]+): ([^{}|]+?)(?: \| ([^{}|]+))?\}")
READ = {
    "last five": over_the_last,
    "lowest loss": at_lowest_loss,
    "highest": at_best,
}
WAYS = f"nothing, {', '.join(READ)}, seed N, std, seeds or paper"


def filled(text: str, records: Sequence[Record]) -> str:
    """A text with each number that it cites, in per cent with one decimal."""
    return CITED.sub(lambda match: _number(match, records), text)


def _number(match: re.Match[str], records: Sequence[Record]) -> str:
    name, models, how = match.groups()
    record = next((record for record in records if record.name == name), None)
    values = [_value(record, model, how) for model in models.split(" - ")] if record else [None]
    if None in values:
        raise ConfigError(f"{match[0]} is not on record", f"name a record, a model as its table does, and: {WAYS}")
    return f"{values[0] - sum(values[1:]):.{0 if how == 'seeds' else 1}f}"  # type: ignore[operator]


def _value(record: Record, model: str, how: str | None) -> float | None:
    if how in ("std", "seeds", "paper"):
        of = {"std": "std", "seeds": "n", "paper": "paper"}[how]
        rows = [row for outcome in record.outcomes for row in outcome.table if row.model == model]
        return next((value for row in rows if (value := getattr(row, of)) is not None), None)
    for arm in arms_of(record.runs):
        for lane in (None, *arm.lanes):
            if model == (arm.prior_name if lane is None else lane.title):
                score = READ.get(how or "", Arm.score)(arm, lane)
                if score is not None and (how or "").startswith("seed "):
                    return score.by_seed.get(int(how.removeprefix("seed ")))  # type: ignore[union-attr]
                return score.mean if score and (how is None or how in READ) else None
    return None
