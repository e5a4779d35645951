"""Runs that were begun by earlier versions, brought up to date."""

import json

import migrate
import tiny

from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import find_runs


def test_a_run_of_an_earlier_version_is_migrated_once(tmp_path):
    config = tiny.run(tmp_path / "new").config
    old = RunFolder(tmp_path / "old" / "seed0-0123456789abcdef")
    old.path.parent.mkdir()
    (tmp_path / "new").rename(old.path)
    old.config.write_text(old.config.read_text().replace("coupling = ", "mode = "))
    result, rows = (json.loads(old.result.read_text()), old.metrics.read_text().splitlines())
    for meter in (meter for row in result["models"] for meter in row.get("bias", {}).values()):
        random, shared = meter.pop("random_shared"), meter.pop("shared")
        meter.update(share=shared, random=random)
    old.metrics.write_text("\n".join([*rows[:-1], json.dumps(result["models"][-1])]) + "\n")
    old.result.write_text(json.dumps({**result, "identity": "0123456789abcdef"}, indent=2) + "\n")

    assert len(migrate.migrate(tmp_path)) == 4
    (run,) = find_runs([tmp_path])
    assert run.folder.name == f"seed0-{config.identity}"
    assert run.result is not None
    assert run.result["identity"] == config.identity
    assert list(run.rows[-1]["bias"]["conv1"]) == ["shared", "distance", "random_shared"]
    assert run.rows[:-1] == [json.loads(row) for row in rows[:-1]]
    assert migrate.migrate(tmp_path) == []
