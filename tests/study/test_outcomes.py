"""`experiment.json`: every key that is needed is asked for by its name."""

import copy
import dataclasses
import json

import pytest

from imlp.errors import RunError
from imlp.study.outcomes import ArmName, ExperimentOutcome, OutcomeRow, PaperPoint, Verdict, read_outcome

ROW = OutcomeRow(
    arm="CNN pair", model="S-CNN", mean=60.0, std=None, interval=[59.0, 61.0], n=1, paper=62.6, paper_std=1.2,
    difference=-2.6,
)  # fmt: skip
OUTCOME = ExperimentOutcome(
    name="figure2", title="Figure 2", asks="Is there a V?", budget="smoke", command="python cli.py reproduce figure2",
    shortfall="on shapes", arms=[ArmName("CNN pair", "0")], table=[ROW],
    verdicts=[Verdict("it rises", "holds", "it does")], paper=[PaperPoint("CNN pair", "S-CNN", None, 62.6, 1.2)],
)  # fmt: skip
OPTIONAL = {"shortfall", "table.interval", "verdicts.missing"}


def without_each_key(value, path=()):
    """The value without one of its keys, for each of them; of a list only the last item is tried."""
    if isinstance(value, dict):
        for key in value:
            yield ".".join((*path, key)), {k: v for k, v in value.items() if k != key}
            yield from ((name, value | {key: inner}) for name, inner in without_each_key(value[key], (*path, key)))
    elif isinstance(value, list) and value:
        yield from ((name, [*value[:-1], inner]) for name, inner in without_each_key(value[-1], path))


def test_it_is_read_as_it_was_written_and_refused_without_any_of_its_keys(tmp_path):
    path, content = tmp_path / "file.json", dataclasses.asdict(OUTCOME)
    path.write_text(json.dumps(content))
    assert read_outcome(path, ExperimentOutcome) == OUTCOME
    names = set()
    for name, broken in without_each_key(copy.deepcopy(content)):
        names.add(name)
        path.write_text(json.dumps(broken))
        if name in OPTIONAL:
            read_outcome(path, ExperimentOutcome)
            continue
        with pytest.raises(RunError, match=r"file\.json.* is missing") as error:
            read_outcome(path, ExperimentOutcome)
        assert name.split(".")[-1] in str(error.value)
    assert len(names) > 20


@pytest.mark.parametrize(
    ("key", "value"), [("arms", {}), ("table", [3]), ("title", None), ("verdicts", [{"claim": 1}])]
)
def test_a_value_of_another_type_is_refused(key, value, tmp_path):
    path = tmp_path / "experiment.json"
    path.write_text(json.dumps(dataclasses.asdict(OUTCOME) | {key: value}))
    with pytest.raises(RunError, match=key):
        read_outcome(path, ExperimentOutcome)
