"""Brings runs of earlier versions up to date: `python results/migrate.py FOLDER` (default: this record).

It renames `mode` to `coupling` in their settings, names the parts of the bias meter as they are
called today, writes each run's identity as it is computed now, and renames the folders and keys that hold it. What is
up to date stays as it is, byte for byte. This script goes when the last run begun before it is on record.
"""

import json
import sys
from pathlib import Path
from typing import Any

from imlp.files import parse_toml, write_whole
from imlp.study.scores import base_identity
from imlp.train.config import Config, recorded, to_toml
from imlp.train.run_folder import RunFolder

HERE = Path(__file__).resolve().parent
METER = {"share": "shared", "distance": "distance", "random": "random_shared"}  # in the order of today's rows


def migrate(folder: Path) -> list[Path]:
    """Migrate every run below a folder; the paths that were changed."""
    changed: list[Path] = []
    for path in RunFolder.find(folder):
        changed += _migrate_run(RunFolder(path))
    for path in sorted(folder.rglob("experiment.json")):
        changed += _migrate_experiment(path)
    return changed


def _migrate_run(run: RunFolder) -> list[Path]:
    values = parse_toml(run.config.read_bytes())
    for lane in values["lanes"]:
        if "mode" in lane:
            lane["coupling"] = lane.pop("mode")
    config = recorded(values)
    changed = _write(run.config, to_toml(config)) if values != parse_toml(run.config.read_bytes()) else []
    if run.metrics.exists():
        rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
        changed += _write(run.metrics, "".join(json.dumps(_renamed(row)) + "\n" for row in rows))
    former = config.identity
    if run.is_finished:
        result = json.loads(run.result.read_text())
        former, result["identity"] = result["identity"], config.identity
        result["models"] = [_renamed(row) for row in result["models"]]
        changed += _write(run.result, json.dumps(result, indent=2) + "\n")
    name = run.path.name.replace(former, config.identity)
    if name != run.path.name:
        run.path.rename(run.path.with_name(name))
        changed.append(run.path.with_name(name))
    return changed


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """A row with today's names in its bias meter."""
    meters = row.get("bias", {})
    for layer, measured in meters.items():
        if "share" in measured:
            meters[layer] = {new: measured[old] for old, new in METER.items()}
    return row


def _migrate_experiment(path: Path) -> list[Path]:
    """The key of each arm is the identity of its runs without seed and lanes."""
    outcome, configs = json.loads(path.read_text()), _configs(path.parent)
    for arm in outcome["arms"]:
        arm["key"] = base_identity(configs[arm["name"].lower().replace(" ", "-")])
    return _write(path, json.dumps(outcome, indent=2) + "\n")


def _configs(folder: Path) -> dict[str, Config]:
    """The settings of one run of each arm, by the name of the folder that it is in."""
    return {path.parent.name: RunFolder(path).read_config() for path in RunFolder.find(folder)}


def _write(path: Path, text: str) -> list[Path]:
    if text.encode() == path.read_bytes():
        return []
    with write_whole(path) as file:
        file.write(text.encode())
    return [path]


if __name__ == "__main__":
    for changed in migrate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE):
        print(changed)
