"""Runs read back from their folders, finished or not, with every file checked as it is read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from imlp.errors import OutsideError, RunError
from imlp.files import check_path, parse_json, read_bytes, reason, shown
from imlp.train.callbacks import Row
from imlp.train.config import Config, Lane
from imlp.train.run_folder import ForeignError, RunFolder

NUMBER = int | float
MOST_LAYERS = 2000  # of the bias meter; to draw more takes minutes
LARGEST = 1e100  # of the numbers; sums of some more would be infinite
RUN_AGAIN = "run it again, or leave its folder out"
METER = {"shared": NUMBER, "random_shared": NUMBER, ...: NUMBER}  # some runs on record have no other parts


@dataclass(frozen=True)
class Run:
    """A run's folder; `result` is None while it is not finished."""

    folder: Path
    config: Config
    rows: list[Row]  # metrics.jsonl: one line per epoch and model
    times: list[dict[str, Any]]  # times.jsonl: where each epoch's seconds went
    env: dict[str, Any]  # nothing yet for a run that was killed in its first moments
    result: dict[str, Any] | None

    @property
    def seconds(self) -> float:
        """Wall time of all its epochs."""
        return sum(value for row in self.times for name, value in row.items() if name != "epoch")

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Its lanes as they are compared."""
        return tuple(lane.compared for lane in self.config.lanes)

    def of(self, lane: int | str) -> list[Row]:
        """The rows of a lane by its number, or of `"prior"`, by epoch."""
        return [row for row in self.rows if row["lane"] == lane]

    def rows_of(self, lane: Lane | None) -> list[Row]:
        """The same by the lane's settings, or of the prior (None); nothing if the run does not have it."""
        key = self.key_of(lane)
        return [] if key is None else self.of(key)

    def key_of(self, lane: Lane | None) -> int | str | None:
        """What its rows call a lane (the first of several equal ones), or the prior; None if it has none."""
        if lane is None:
            return "prior" if self.config.needs_prior else None
        return self.lanes.index(lane.compared) if lane.compared in self.lanes else None


def read_run(folder: Path) -> Run:
    """The run in a folder, finished or not."""
    files = RunFolder(folder)
    config = files.read_config()
    finished, numbers = files.result.exists(), range(len(config.lanes))
    model = {"lane": ("prior", *numbers), "test_accuracy": NUMBER}
    lane = {**model, "epoch": int, "bias": {...: METER}}
    environment = {"command": str, "started": str}
    pruned = {"lane": tuple(numbers), "epoch": int}
    result = {
        "models": [model],
        "stopped": [lambda stop: pruned if "reason" in stop else {**pruned, "step": int, "layer": str}],
        "parameters": {"prior": int, "dense": int},
    }
    rows = _lines(files.metrics, lambda row: {**model, "epoch": int} if row.get("lane") == "prior" else lane)
    ended = read_json(files.result, result) if finished else None
    try:
        _check_rows(rows, config, [stop["lane"] for stop in ended["stopped"]] if ended else [])
    except ValueError as error:
        raise RunError(f"cannot read {shown(files.metrics)}: {error}", RUN_AGAIN) from None
    return Run(
        folder=folder,
        config=config,
        rows=rows,
        times=_lines(files.times, {"epoch": int, ...: NUMBER}),
        env=read_json(files.environment, environment) if finished or files.environment.exists() else {},
        result=ended,
    )


def _check_rows(rows: list[Row], config: Config, stopped: list[int]) -> None:
    """Refuse rows that no run writes, each of which may be well formed by itself."""
    seen: dict[int, set[int | str]] = {}
    for row in rows:
        epoch, lane = row["epoch"], row["lane"]
        if not 1 <= epoch <= config.epochs or lane in seen.setdefault(epoch, set()):
            raise ValueError(f"epoch {epoch:.6g} of lane {lane} is there twice, or is none of {config.epochs:,}")
        if not 0 <= row["test_accuracy"] <= 1:
            raise ValueError(f"a test accuracy of {row['test_accuracy']:.6g}")
        if not all(isinstance(row.get(loss, 0.0), int | float) for loss in ("test_loss", "train_loss")):
            raise ValueError(f"the losses of epoch {epoch} of lane {lane} are no numbers")
        if len(row.get("bias", ())) > MOST_LAYERS:
            raise ValueError(f"the bias meter of {len(row['bias']):,} layers; {MOST_LAYERS:,} are the most")
        seen[epoch].add(lane)
    lanes = set().union(*seen.values()) - {"prior"}
    if seen and lanes - set(stopped) and seen[max(seen)] == {"prior"}:
        raise ValueError(f"epoch {max(seen)} has the prior's row alone")


def find_runs(folders: Iterable[Path], warn: Callable[[str], None] | None = None) -> list[Run]:
    """Every run in the folders and below them, each once; given `warn`, files of others are named to it and skipped."""
    places: dict[Path, None] = {}
    for folder in map(check_path, folders):
        here = RunFolder.find(folder) if folder.is_dir() else []
        if not here:
            raise RunError(f"there is no run in {folder}", "name folders that train, sweep or reproduce have written")
        places |= dict.fromkeys(path.resolve() for path in here)
    runs = []
    for folder in places:
        try:
            runs.append(read_run(folder))
        except ForeignError as error:
            if warn is None:
                raise
            warn(f"skipped: {error if isinstance(error.__cause__, OutsideError) else error.problem}")
    return runs


def read_json(path: Path, wanted: Any, remedy: str = RUN_AGAIN) -> Any:
    """What a file holds, if that has the wanted shape; an error that names the file if not."""
    try:
        record = parse_json(read_bytes(path))
        conform(record, wanted)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {shown(path)}: {reason(error)}", remedy) from error
    return record


def _lines(path: Path, wanted: Any) -> list[dict[str, Any]]:
    """The same of a file with one value per line; none where there is no file."""
    rows, where = [], ""
    try:
        for n, line in enumerate(read_bytes(path).decode().splitlines() if path.exists() else (), start=1):
            where = f", line {n}"
            rows.append(parse_json(line))
            conform(rows[-1], wanted)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {shown(path)}{where}: {reason(error)}", RUN_AGAIN) from error
    return rows


def conform(value: Any, wanted: Any, name: str = "") -> None:
    """Refuse a value of JSON that lacks something, with a ValueError that names it.

    A dict wants its keys, `...` standing for any; a list wants a list of what it holds; a tuple wants one of its
    values; a function is given an object and says what to want of it; a type wants an instance.

    >>> conform({"rows": [{"epoch": 1}, {}]}, {"rows": [{"epoch": int}]})
    Traceback (most recent call last):
    ValueError: 'rows[1].epoch' is missing
    """
    if isinstance(wanted, FunctionType):
        wanted = wanted(value) if isinstance(value, dict) else {}
    kind: Any = int | str if isinstance(wanted, tuple) else type(wanted) if isinstance(wanted, dict | list) else wanted
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))  # no boolean is a number
    if isinstance(value, int | float) and not abs(value) <= LARGEST:  # nor is NaN, infinity or what is close to it
        fits = False
    if not fits or (isinstance(wanted, tuple) and value not in wanted):
        raise ValueError(f"{name or 'what it holds'!r} cannot be {value!r:.40}")
    if isinstance(wanted, dict):
        for key, inner in wanted.items():
            for field in value if key is ... else [key]:
                path = f"{name}.{field}".lstrip(".")
                if field not in value:
                    raise ValueError(f"{path!r} is missing")
                conform(value[field], inner, path)
    if isinstance(wanted, list):
        for n, item in enumerate(value):
            conform(item, wanted[0], f"{name}[{n}]")
