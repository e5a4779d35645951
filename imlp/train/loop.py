"""Algorithm 1: one prior and all lanes in lockstep on the same batches.

Each epoch: train the prior and every lane, independently, on the same batches; mix each lane with the prior; evaluate.
A lane with a cadence in steps mixes after its steps instead. Test accuracy is measured after the mixing, and before it
as well. Order, crops and flips of step `s` of epoch `e` are drawn from `(seed, e, s)` alone, so that a run that goes on
from any step draws what it would have drawn.
"""

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from imlp import augment
from imlp.backend import backend as get_backend
from imlp.errors import FileError, NonFiniteError, RunError
from imlp.files import parse_json, write_whole
from imlp.model import Model, not_finite, shared
from imlp.study.prior_recording import PLAYS, PriorPath
from imlp.train import checkpoint, machine
from imlp.train.callbacks import Callback, Row
from imlp.train.config import Config, differences, from_mapping, read, to_toml
from imlp.train.data import Dataset
from imlp.train.lanes import Mixer

MOMENTS = ("adam.first.", "adam.second.")  # how the names of Adam's moments begin
SAVED = ("active", "epoch", "step", "rows", "stopped", "times")  # of a State, beside its models and losses
OWN = (  # the files of a run, in the order in which they are deleted: what is left at any moment is a run or none
    "result.json", "checkpoint", "stopped-lane*", "prior-path", "plays.json", "env.json", "metrics.jsonl",
    "times.jsonl", "run.png", "tensorboard", "lane*.*", "prior.*", "error.log", ".*.part", "config.toml",
)  # fmt: skip
LOG = "error.log"  # of a run of a sweep that has failed: the traceback
ORDER, CROPS = 1, 2  # streams of the seed; 0 is the initial weights
EVALUATE = 1000  # images at a time
QUICK = 1.0  # seconds: a checkpoint that takes less is written after every epoch,
SAVING = 0.1  # one that takes more only as often as to take at most this share of the time


class Interrupted(RunError):
    """The run was asked to stop, and has written a checkpoint first."""


@dataclass
class State:
    """Where a run is: what a checkpoint holds."""

    prior: Model
    lanes: Model | None  # None: every lane has stopped
    active: list[int]  # which of the configuration's lanes the stack holds
    epoch: int = 0  # epochs that are complete, their mixing and evaluation included
    step: int = 0  # steps of the epoch under way
    losses: list[Any] = field(default_factory=list)  # sums over its images: the prior's, and one a lane
    rows: list[Row] = field(default_factory=list)  # of metrics.jsonl
    stopped: list[dict[str, Any]] = field(default_factory=list)
    times: list[dict[str, Any]] = field(default_factory=list)  # of times.jsonl: where each epoch's seconds went


class Trainer:
    """A run of `config` on `data` in `folder`: `run()` starts it or goes on with it, and gives what came out."""

    path: PriorPath | None = None  # records the prior's path, or plays it instead of training the prior

    def __init__(self, config: Config, data: Dataset, folder: Path, callbacks: Sequence[Callback] = ()):
        self.config, self.data, self.folder, self.callbacks = config, data, folder, list(callbacks)
        self.network = config.make_network(data.image, data.n_classes)
        self.mixer = Mixer(self.network, config.lanes, config.epochs)
        self.backend: Any = get_backend(config.backend)
        self.device = machine.device(config)
        self.steps = -(-len(data.x) // config.batch)
        self.stop_requested: str | None = None  # set by a signal's handler; looked at after each step

    def run(self, *, resume: bool = False, again: bool = False) -> dict[str, Any]:
        """Train to the end and write `result.json`; `resume` goes on with the run in the folder, `again` deletes it."""
        with locked(self.folder), machine.settings(self.config), machine.out_of_memory_explained(self):
            machine.check_memory(self)
            if again:
                self._delete()
            self.saved, self.saving = time.monotonic(), 0.0
            self.state = self._start(resume)
            self._place_data()
            self._tell("started", self)
            while not self._ended:
                self._epoch()
            if self._all_retired:
                self.save()
            result = self._result()
            self._write("result.json", json.dumps(result, indent=2) + "\n")
            self._tell("ended", self, result)
            return result

    # Starting, and going on

    def _start(self, resume: bool) -> State:
        self._check_same(resume)
        if checkpoint.found(self.folder / "checkpoint") and not resume:
            raise RunError(f"there is a run in {self.folder}", "go on with it: --resume; or start it anew: --again")
        for left_over in (*self.folder.glob(".*.part"), *self.folder.glob("checkpoint/.*.part")):
            left_over.unlink(missing_ok=True)  # of a process that was killed while it wrote; the lock is ours
        loaded = checkpoint.newest(self.folder / "checkpoint", lambda text: self._tell("warned", text))
        if loaded is None:
            self._write("config.toml", to_toml(self.config))
        else:
            self._check_identity(loaded[1].get("run"))
        if loaded is None or not (self.folder / "env.json").exists():
            self._write("env.json", json.dumps(machine.environment(), indent=2) + "\n")
        if loaded is not None:
            state = self._restored(*loaded)
            if self._extends(from_mapping(Config, read(self.folder / "config.toml"))):
                (self.folder / "result.json").unlink(missing_ok=True)
                self._write("config.toml", to_toml(self.config))
            return state
        if self._plays:
            self._write(PLAYS, json.dumps({"prior": self._plays}) + "\n")
        else:
            (self.folder / PLAYS).unlink(missing_ok=True)
        return self._new_state()

    def _delete(self) -> None:
        """Delete the run in the folder, and nothing that is not one; the lock is held."""
        if (self.folder / "config.toml").exists():
            from_mapping(Config, read(self.folder / "config.toml"))  # refuses a file that only has the name
        elif any(path.name not in (".lock", LOG) and path.suffix != ".part" for path in self.folder.iterdir()):
            raise RunError(f"{self.folder} is not a run's folder", "--again deletes runs only; choose another --out")
        for path in [path for pattern in OWN for path in self.folder.glob(pattern)]:
            try:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            except OSError as error:
                raise FileError(f"cannot delete {path}: {error.strerror or error}", "delete it by hand") from error

    def _new_state(self) -> State:
        options = {"seed": self.config.seed, "dtype": self.dtype, "device": self.device}
        prior = self.backend.init(self.network, dense=False, **options)
        lanes = self.backend.init(self.network, dense=True, lanes=len(self.config.lanes), **options)
        state = State(prior, lanes, list(range(len(self.config.lanes))))
        self._reset_losses(state)
        return state

    @property
    def dtype(self) -> str:
        return "float64" if self.config.backend == "reference" else self.config.dtype

    def _check_same(self, resume: bool) -> None:
        """Refuse a folder that holds another run, with what is different; to resume, it may have more epochs now."""
        path = self.folder / "config.toml"
        if not path.exists():
            return
        there: Config = from_mapping(Config, read(path))
        changed = differences(there, self.config)
        resumed = resume and checkpoint.found(self.folder / "checkpoint")
        if changed and not (resumed and self._extends(there)):
            raise RunError(
                f"{self.folder} holds another run ({'; '.join(changed)})", "choose another folder with --out"
            )

    def _extends(self, there: Config) -> bool:
        """Whether this is that run with more epochs, and all lanes were mixed then as they are with more epochs."""
        longer = there.epochs < self.config.epochs
        if not longer or differences(dataclasses.replace(there, epochs=self.config.epochs), self.config):
            return False
        earlier = Mixer(self.network, there.lanes, there.epochs)
        lanes, epochs = range(len(there.lanes)), range(there.epochs)
        return all(earlier.alphas(lane, e) == self.mixer.alphas(lane, e) for lane in lanes for e in epochs)

    @property
    def _plays(self) -> str | None:
        """The run of its sweep whose prior it takes, if it trains none itself."""
        return self.path.run.name if self.path is not None and self.path.plays else None

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint says about the run that it belongs to."""
        cadences = self.path.cadences if self.path is not None else None
        return {"config": dataclasses.asdict(self.config), "plays": self._plays, "cadences": cadences}

    def _check_identity(self, said: dict[str, Any] | None) -> None:
        """Refuse a folder whose files are not those that its checkpoint (of old ones: None) was written beside."""
        path, remedy = self.folder / "config.toml", "put it back as it was, or choose another folder with --out"
        if not path.exists():
            raise RunError(f"{path} is missing, which says what the checkpoints beside it are of", remedy)
        there: Config = from_mapping(Config, said["config"]) if said else self.config
        changed = differences(there, self.config)
        if changed and not self._extends(there):
            raise RunError(f"{path} is not that of the checkpoints beside it ({'; '.join(changed)})", remedy)
        path = self.folder / PLAYS
        if said and said["plays"] is not None and _read_json(path) != {"prior": said["plays"]}:
            problem = f"{path} is missing or not what it was: this run took its prior from {said['plays']}"
            raise RunError(problem, f"put back {json.dumps({'prior': said['plays']})}, or delete {self.folder}")
        if path.exists() and self._plays is None:
            raise RunError(f"{self.folder} took its prior from another run of its sweep", "go on with that sweep")
        if said and self.path is not None:
            self.path.check(said["cadences"])

    def _restored(self, arrays: dict[str, np.ndarray], saved: dict[str, Any]) -> State:
        if saved["data"] != self.data.digest:
            raise RunError(
                f"the data are not those that {self.folder} was trained on",
                "restore them, or choose another folder with --out",
            )
        groups: dict[str, dict[str, np.ndarray]] = {"prior": {}, "lanes": {}}
        for name, array in arrays.items():
            group, _, rest = name.partition("/")
            groups[group][rest] = array
        own = {name: saved[name] for name in SAVED}
        if not any(name.startswith(MOMENTS) for name in groups["prior"]):
            if saved["epoch"] < self.config.epochs and saved["active"]:
                problem = f"{self.folder} ended after {saved['epoch']} epochs and kept its weights, not Adam's moments"
                remedy = "train all epochs again, with --again; with --keep-moments more can be added later"
                raise RunError(problem, remedy)
            for part in groups.values():
                names = [name for name in part if not name.startswith("adam.")]
                part |= {prefix + name: np.zeros_like(part[name]) for prefix in MOMENTS for name in names}
        place = {"dtype": self.dtype, "device": self.device}
        prior = self.backend.load(self.network, groups["prior"], dense=False, **place)
        lanes = self.backend.load(self.network, groups["lanes"], dense=True, **place) if groups["lanes"] else None
        losses = [self.backend.place(np.array(sums), device=self.device) for sums in saved["losses"]]
        state = State(prior, lanes, losses=losses, **own)
        self._write_lines("metrics.jsonl", state.rows)
        self._write_lines("times.jsonl", state.times)
        return state

    def save(self) -> None:
        """Write a checkpoint of where the run is."""
        state, begin = self.state, time.monotonic()
        whole = self.config.keep_moments or not self._ended
        arrays: dict[str, np.ndarray] = {}
        for kind, model in (("prior/", state.prior), ("lanes/", state.lanes)):
            if model is not None:
                numbers = shared(model, self.backend.to_numpy)  # there may be no room for copies
                arrays |= {kind + name: numbers[name] for name in numbers if whole or not name.startswith(MOMENTS)}
        own = {name: getattr(state, name) for name in SAVED}
        losses = [self.backend.to_numpy(sums).tolist() for sums in state.losses]
        mean, std = self.data.statistics(self.config.inputs)
        data: dict[str, Any] = {"mean": mean.tolist(), "std": std.tolist()}
        data |= {"data": self.data.digest, "image": self.data.image, "classes": self.data.n_classes}
        if self.path is not None:
            self.path.sync()
        saved = {**own, **data, "losses": losses, "run": self._identity()}
        checkpoint.save(self.folder / "checkpoint", arrays, saved, keep=checkpoint.KEPT if whole else 1)
        self.saved = time.monotonic()
        self.saving = self.saved - begin

    def _place_data(self) -> None:
        place: Callable[..., Any] = self.backend.place
        self.x, self.x_test = (place(images, device=self.device) for images in (self.data.x, self.data.x_test))
        held_out = self.data.x_validation
        self.x_validation = None if held_out is None else place(held_out, device=self.device)

    def memory(self) -> dict[str, int]:
        """Bytes that the run needs, about."""
        itemsize, images = np.dtype(self.dtype).itemsize, len(self.data.x) + len(self.data.x_test)
        sizes = {"batch": self.config.batch, "itemsize": itemsize, "images": images}
        return machine.memory(self.network, lanes=len(self.config.lanes), **sizes)

    def seconds_a_step(self, steps: int = 3) -> float:
        """How long a step takes, from a few real ones whose result is thrown away."""
        machine.check_memory(self)
        with machine.settings(self.config), machine.out_of_memory_explained(self):
            self.state = self._new_state()
            self._place_data()
            times = []
            for k in range(steps + 1):
                begin = time.perf_counter()
                self._step(np.arange(k, k + self.config.batch) % len(self.data.x))
                for total in self.state.losses:
                    self.backend.to_numpy(total)  # waits for the device
                times.append(time.perf_counter() - begin)
            return float(np.median(times[1:]))

    def finished(self) -> dict[str, Any] | None:
        """The result of this very run on these very data, if it is in the folder."""
        try:
            found = parse_json((self.folder / "result.json").read_bytes())
            same = (found["identity"], found["data_digest"]) == (self.config.identity, self.data.digest)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if same and (self.folder / "config.toml").exists() else None

    # One epoch

    def _epoch(self) -> None:
        state, config = self.state, self.config
        begin = time.monotonic()
        order = np.random.default_rng([config.seed, ORDER, state.epoch]).permutation(len(self.data.x))
        while state.step < self.steps:
            batch = order[state.step * config.batch : (state.step + 1) * config.batch]
            with np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is found and told
                self._step(batch)
            state.step += 1
            self._tell("stepped", self, len(batch))
            late = time.monotonic() - self.saved > 60 * config.save_minutes and state.step < self.steps
            if (late or self.stop_requested is not None) and self._all_finite():  # if not, the next step finds it
                self.save()
                if self.stop_requested is not None:
                    where = f"in epoch {state.epoch + 1} after step {state.step} of {self.steps}"
                    problem = f"stopped by {self.stop_requested} {where}"
                    raise Interrupted(problem, "nothing is lost: go on with --resume")
        self._refuse_non_finite_sums()
        self._refuse_non_finite_weights()
        trained = time.monotonic()
        with np.errstate(over="ignore", invalid="ignore"):
            rows, spent = self._close_epoch()
        state.rows += rows
        state.epoch, state.step = state.epoch + 1, 0
        self._reset_losses(state)
        seconds = {"train": trained - begin, **spent}
        state.times.append({"epoch": state.epoch, **{name: round(value, 3) for name, value in seconds.items()}})
        self._write_lines("metrics.jsonl", state.rows)
        self._write_lines("times.jsonl", state.times)
        rested = time.monotonic() - self.saved > self.saving / SAVING
        if state.epoch == config.epochs or self.saving < QUICK or rested:
            self.save()
        self._tell("epoch_ended", self, rows, seconds)

    def _step(self, batch: np.ndarray) -> None:
        """One batch for the prior and for all lanes, then what is due after it."""
        state, config = self.state, self.config
        rng = np.random.default_rng([config.seed, CROPS, state.epoch, state.step])
        draw = augment.draw(config.augment, len(batch), self.data.image, rng=rng, **config.crop)
        x = self._batch(self.x, batch, draw)
        y = self.backend.place(self.data.y[batch], device=self.device)
        settings: dict[str, Any] = {"lr": config.lr, "betas": (config.beta1, config.beta2), "eps": config.eps}
        settings |= {"compile": config.compile, "check": self._check_finite}
        losses = [self._step_of_prior(x, y, settings)]
        while state.lanes is not None:
            try:
                losses.append(self.backend.train_step(state.lanes, x, y, **settings))
                break
            except NonFiniteError as error:
                where = f"its loss is not finite in epoch {state.epoch + 1}, step {state.step + 1}"
                self._stop_lanes(dict.fromkeys(error.lanes, error.layer), state.step + 1, f"{where}, from {{}} on")
        for total, loss in zip(state.losses, losses, strict=True):
            total += loss * len(batch)
        due = self.mixer.due_after_step(state.active, state.epoch * self.steps + state.step + 1)
        if due and state.lanes is not None:
            self.mixer.mix(self.backend, state.lanes, state.prior, state.active, due, state.epoch)

    def _step_of_prior(self, x: Any, y: Any, settings: dict[str, Any]) -> Any:
        """Train the prior on the batch, or take its weights from the record; its loss, or 0."""
        state, path = self.state, self.path
        if path is not None and path.plays:
            for name, array in path.play(state.epoch, state.step + 1).items():
                state.prior.parameters[name][...] = self.backend.place(array, device=self.device)
            return 0.0
        try:
            loss = self.backend.train_step(state.prior, x, y, **settings)
        except NonFiniteError as error:
            where = f"in epoch {state.epoch + 1}, step {state.step + 1}, from {error.layer} on"
            raise self._prior_failed(f"loss is not finite {where}") from error
        if path is not None and state.step + 1 in path.moments(state.epoch):
            arrays = {name: self.backend.to_numpy(p) for name, p in state.prior.parameters.items()}
            path.record(state.epoch, state.step + 1, arrays)
        return loss

    def _prior_failed(self, how: str) -> RunError:
        good = any(_finite(_part(arrays, "prior/")) for arrays, _ in self._whole_checkpoints())
        kept = "its last good state is in checkpoint/; " if good else ""
        return RunError(f"the prior's {how}", f"{kept}try a smaller --lr")

    @property
    def _check_finite(self) -> bool:
        """At every step where that costs nothing; on a device that would have to be waited for, at every 50th."""
        return self.device == "cpu" or self.state.step % 50 == 0

    def _refuse_non_finite_sums(self) -> None:
        """What the checks of some steps have missed shows in the epoch's sum; nothing of it may reach a checkpoint."""
        sums = [np.atleast_1d(self.backend.to_numpy(total)) for total in self.state.losses]
        how = f"loss is not finite in epoch {self.state.epoch + 1}"
        if not np.isfinite(sums[0]).all():
            raise self._prior_failed(how)
        wrong = np.flatnonzero(~np.isfinite(sums[1])).tolist() if len(sums) > 1 else []
        self._stop_lanes(dict.fromkeys(wrong, "an earlier step"), self.steps, f"its {how}")

    def _refuse_non_finite_weights(self) -> None:
        """What the last step of an epoch, or the mixing after it, has done shows in no loss of that epoch."""
        state, when = self.state, f"after epoch {self.state.epoch + 1}, in {{}}"
        for layer in not_finite(state.prior).values():
            raise self._prior_failed(f"weights are not finite {when.format(layer)}")
        if state.lanes is not None:
            self._stop_lanes(not_finite(state.lanes), self.steps, f"its weights are not finite {when}")

    def _all_finite(self) -> bool:
        """Whether this is a state to save: a checkpoint never holds a number that is not finite."""
        return not any(not_finite(model) for model in (self.state.prior, self.state.lanes) if model is not None)

    def _stop_lanes(self, layers: dict[int, str], step: int, how: str) -> None:
        """Take lanes, each with the layer that broke it, out of the stack; the others go on as if nothing had happened.

        `how` tells the user, with a place for the layer.
        """
        state = self.state
        for index, layer in layers.items():
            lane = state.active[index]
            where = {"lane": lane, "epoch": state.epoch + 1, "step": step, "layer": layer}
            checkpoint.save(self.folder / f"stopped-lane{lane}", self._last_good(lane), where)
            state.stopped.append(where)
            kept_in = f"its last good state is in stopped-lane{lane}/"
            title = self.config.lanes[lane].title
            self._tell("warned", f"lane {lane} ({title}) stopped: {how.format(layer)}; {kept_in}")
        if layers:
            self._drop(list(layers))

    def retire(self, lane: int, reason: str) -> None:
        """Take a lane out of the run, from a callback's `started` or `epoch_ended`; the others go on as before.

        The result has it under `stopped`, with the reason and its last epoch; a run whose last lane it was ends there.
        A run that goes on may come from a checkpoint before this: the callback has to ask again then.
        """
        state = self.state
        self._drop([state.active.index(lane)])
        state.stopped.append({"lane": lane, "epoch": state.epoch, "step": self.steps, "reason": reason})

    @property
    def _ended(self) -> bool:
        return self.state.epoch == self.config.epochs or self._all_retired

    @property
    def _all_retired(self) -> bool:
        return self.state.lanes is None and any("reason" in stop for stop in self.state.stopped)

    def _drop(self, indices: list[int]) -> None:
        """Make the stack of lanes smaller; no number of those that stay is changed."""
        state = self.state
        kept = [index for index in range(len(state.active)) if index not in indices]
        state.losses[1:] = [state.losses[1][kept]] if kept else []
        state.lanes = self.backend.select(state.lanes, kept) if kept else None
        state.active = [state.active[index] for index in kept]

    def _last_good(self, lane: int) -> dict[str, np.ndarray]:
        """The lane as the newest checkpoint has it in which all its numbers are finite; else as it began."""
        for saved, state in self._whole_checkpoints():
            if lane in state["active"]:
                at, own = state["active"].index(lane), _part(saved, "lanes/")
                arrays = {name: array if array.ndim == 0 else array[at : at + 1] for name, array in own.items()}
                if _finite(arrays):
                    return arrays
        found: dict[str, np.ndarray] = self.backend.export(self.backend.select(self._new_state().lanes, [lane]))
        return found

    def _whole_checkpoints(self) -> Iterator[tuple[dict[str, np.ndarray], dict[str, Any]]]:
        """Arrays and state of each checkpoint that is not damaged, the newest first."""
        for path in checkpoint.found(self.folder / "checkpoint"):
            try:
                yield checkpoint.load(path)
            except checkpoint.DAMAGED:
                continue

    def _close_epoch(self) -> tuple[list[Row], dict[str, float]]:
        """Evaluate, mix, evaluate again, measure the bias; the rows of `metrics.jsonl` and where the time went."""
        state = self.state
        clock = [time.monotonic()]
        due = self.mixer.due_after_epoch(state.active, state.epoch)
        test = (self.x_test, self.data.y_test)
        (correct, loss), *others = self._evaluate([state.prior, state.lanes] if due else [state.prior], *test)
        if not np.isfinite(loss).all():
            raise self._prior_failed(f"test loss is not finite after epoch {state.epoch + 1}")
        before = {lane: count for counts, _ in others for lane, count in zip(state.active, counts, strict=True)}
        clock.append(time.monotonic())
        if due and state.lanes is not None:
            self.mixer.mix(self.backend, state.lanes, state.prior, state.active, due, state.epoch)
            self._refuse_non_finite_weights()
        clock.append(time.monotonic())
        after = self._evaluate_lanes()
        held_out = self._validate()
        clock.append(time.monotonic())
        bias = self._bias()
        clock.append(time.monotonic())

        n = len(self.data.x_test)
        sums = [np.atleast_1d(self.backend.to_numpy(total)) / len(self.data.x) for total in state.losses]
        common = {"epoch": state.epoch + 1}
        path = self.path
        trained = path.train_loss(state.epoch) if path is not None and path.plays else float(sums[0][0])
        prior = {**common, "lane": "prior", "name": "prior", "train_loss": trained}
        rows = [{**prior, "test_accuracy": float(correct[0] / n), "test_loss": float(loss[0] / n), **held_out[0]}]
        for index, lane in enumerate(state.active):
            was, now = before.get(lane, after[lane][0]), after[lane]
            rows.append({
                **common, "lane": lane, "name": self.config.lanes[lane].title,
                "alpha": self.mixer.alphas(lane, state.epoch), "train_loss": float(sums[1][index]),
                "test_accuracy_before": float(was / n), "test_accuracy": float(now[0] / n),
                "test_loss": float(now[1] / n), **held_out[1 + index],
                "bias": {layer: {key: value[index] for key, value in found.items()} for layer, found in bias.items()},
            })  # fmt: skip
        names = ("evaluate", "mix", "evaluate", "meter")
        spent = dict.fromkeys(names, 0.0)
        for name, (start, end) in zip(names, pairwise(clock), strict=True):
            spent[name] += end - start
        return rows, spent

    def _validate(self) -> list[dict[str, Any]]:
        """Accuracy and loss on the images held out, if there are any: the prior's, then one for each lane."""
        state, labels = self.state, self.data.y_validation
        if labels is None:
            return [{}] * (1 + len(state.active))
        found = self._evaluate([state.prior, state.lanes], self.x_validation, labels)
        counts, losses = (np.concatenate(parts) / len(labels) for parts in zip(*found, strict=True))
        names = ("validation_accuracy", "validation_loss")
        return [dict(zip(names, map(float, pair), strict=True)) for pair in zip(counts, losses, strict=True)]

    def _evaluate_lanes(self) -> dict[int, tuple[Any, Any]]:
        """Correct answers and summed losses by lane; lanes whose test loss is not finite are stopped."""
        state = self.state
        found = [
            pair
            for part in self._evaluate([state.lanes], self.x_test, self.data.y_test)
            for pair in zip(*part, strict=True)
        ]
        by_lane = dict(zip(state.active, found, strict=True))
        wrong = {index: "the test loss" for index, (_, loss) in enumerate(found) if not np.isfinite(loss)}
        self._stop_lanes(wrong, self.steps, f"its test loss is not finite after epoch {state.epoch + 1}")
        return by_lane

    def _evaluate(
        self, models: Iterable[Model | None], images: Any, labels: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Correct answers and summed losses on the images, `(1,)` or one per lane, for each model that is there."""
        wanted = [model for model in models if model is not None]
        totals: list[Any] = [None] * len(wanted)
        rows = np.arange(len(labels))
        for chunk in np.split(rows, range(EVALUATE, len(rows), EVALUATE)):
            x = self._batch(images, chunk, None)
            y = self.backend.place(labels[chunk], device=self.device)
            for k, model in enumerate(wanted):
                found = self.backend.evaluate(model, x, y)
                totals[k] = found if totals[k] is None else tuple(a + b for a, b in zip(totals[k], found, strict=True))
        return [tuple(np.atleast_1d(self.backend.to_numpy(part)) for part in total) for total in totals]  # type: ignore

    def _bias(self) -> dict[str, dict[str, Any]]:
        """The bias meter of every interpolated layer: share and distance one a lane, and a random matrix's share."""
        state, found = self.state, {}
        for name in self.network.interpolated if state.lanes is not None else ():
            spec, key = self.network.layer(name).spec, f"{name}.weight"
            measured = self.backend.measure(state.lanes.parameters[key], spec, state.prior.parameters[key])  # type: ignore[union-attr]
            share, distance = (self.backend.to_numpy(numbers).tolist() for numbers in measured)
            m_out, m_in = spec.matrix_shape
            found[name] = {"share": share, "random": [spec.rank / (m_out * m_in)] * len(share), "distance": distance}
        return found

    def _batch(self, images: Any, rows: np.ndarray, draw: Any) -> Any:
        mean, std = self.data.statistics(self.config.inputs)
        fill = None if self.config.inputs == "standardised" else self.data.mean
        return self.backend.batch(images, rows, draw, mean, std, fill=fill, dtype=self.dtype)

    # Files

    def _result(self) -> dict[str, Any]:
        """The last row of each lane, and what it takes to read it."""
        state = self.state
        last = [row for row in state.rows if row["epoch"] == state.epoch and row["lane"] in ("prior", *state.active)]
        return {
            "identity": self.config.identity,
            "network": self.network.name,
            "data": self.data.name,
            "data_digest": self.data.digest,
            "epochs": state.epoch,
            "parameters": {kind: self.network.n_parameters(dense=kind == "dense") for kind in ("prior", "dense")},
            "interpolated": self.network.n_interpolated,
            "models": last,
            "stopped": state.stopped,
        }

    def _reset_losses(self, state: State) -> None:
        shapes = [()] if state.lanes is None else [(), (len(state.active),)]
        state.losses = [self.backend.place(np.zeros(shape), device=self.device) for shape in shapes]  # in float64

    def _write_lines(self, name: str, rows: list[dict[str, Any]]) -> None:
        self._write(name, "".join(json.dumps(row) + "\n" for row in rows))

    def _write(self, name: str, text: str) -> None:
        with write_whole(self.folder / name) as file:
            file.write(text.encode())

    def _tell(self, what: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, what)(*arguments)


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _finite(arrays: dict[str, np.ndarray]) -> bool:
    return all(np.isfinite(array).all() for array in arrays.values())


def _read_json(path: Path) -> Any:
    """What a file holds; None for one that is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None


def begun(folder: Path) -> bool:
    """Whether there is anything in a run's folder to resume from; a run without it is started from its first step."""
    return bool(checkpoint.found(folder / "checkpoint")) or (folder / "result.json").exists()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process a folder, which is made; the operating system frees the lock of a process that dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise RunError(
            f"another process is training in {folder}", "wait for it, or choose another folder with --out"
        ) from None
    except OSError as error:
        remedy = "choose a folder that you may write to with --out"
        raise FileError(f"cannot write to {folder}: {error.strerror or error}", remedy) from error
    try:
        yield
    finally:
        lock.release()
