"""Numbers in the sentences of `findings.toml`: `{cnn-paper: S-CNN}` there is what the runs say, so none is outdated.

After a bar stands how it is read: `{cnn-paper: S-CNN | last five}`.
"""

import re
from collections.abc import Sequence

from archive import Record
from readings import at_lowest_loss, over_the_last

from imlp.errors import ConfigError
from imlp.study.scores import Arm, arms_of

CITED = re.compile(r"\{([\w-]+): ([^{}|]+?)(?: \| ([^{}|]+))?\}")
READ = {None: Arm.score, "last five": over_the_last, "lowest loss": at_lowest_loss}


def filled(text: str, records: Sequence[Record]) -> str:
    """A text with each number that it cites, in per cent with one decimal."""
    return CITED.sub(lambda match: _number(match, records), text)


def _number(match: re.Match[str], records: Sequence[Record]) -> str:
    name, model, how = match.groups()
    for record in (record for record in records if record.name == name):
        if how in ("seeds", "paper"):
            for row in (row for outcome in record.outcomes for row in outcome.table if row.model == model):
                if (value := row.n if how == "seeds" else row.paper) is not None:
                    return f"{value:.{0 if how == 'seeds' else 1}f}"
        for arm in arms_of(record.runs) if how in READ else ():
            lanes = {arm.prior_name: None} | {lane.title: lane for lane in arm.lanes}
            if model in lanes and (score := READ[how](arm, lanes[model])) is not None:
                return f"{score.mean:.1f}"
    remedy = "name a record, a model as its table does, and: nothing, last five, lowest loss, seeds or paper"
    raise ConfigError(f"{match[0]} is not on record", remedy)
