"""Algorithm 1: one prior and all lanes in lockstep on the same batches.

Each step: train the prior and every lane, independently, on the same batch; then interpolate the lanes that are due.
Each epoch: interpolate those that are due once per epoch, as the paper has it, and evaluate. Test accuracy is measured
after the interpolation, and before it as well.
"""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from imlp import machine
from imlp.backend import backend as get_backend
from imlp.data import Dataset
from imlp.errors import NonFiniteError, RunError
from imlp.files import write_json
from imlp.model import not_finite
from imlp.model.align import align_
from imlp.train import checkpoint, metrics
from imlp.train.callbacks import Callback, Row
from imlp.train.config import Config
from imlp.train.images import PlacedImages, Score
from imlp.train.moves import LaneInterpolation, extends
from imlp.train.run_folder import RunFolder, locked
from imlp.train.state import MODELS, State, StateFactory

QUICK = 1.0  # seconds: a checkpoint that takes less is written after every epoch,
SAVING = 0.1  # one that takes more only as often as to take at most this share of the time


class Interrupted(RunError):
    """The run was asked to stop by a signal, and has written a checkpoint first."""

    def __init__(self, signal: str, remedy: str, where: str = ""):
        self.signal = signal
        super().__init__(f"stopped by {signal}{where}", remedy)


class Trainer:
    """A run of `config` on `data` in `folder`: `run()` starts or resumes it, and returns its result."""

    def __init__(self, config: Config, data: Dataset, folder: Path, callbacks: Sequence[Callback] = ()):
        self.config, self.data, self.folder, self.callbacks = config, data, folder, list(callbacks)
        self.network = config.make_network(data.image, data.n_classes)
        self.steps = -(-len(data.x) // config.batch)
        self.rate = config.learning_rate(self.steps)
        self.interpolation = LaneInterpolation(self.network, config.lanes, self.rate)
        self.backend = get_backend(config.backend)
        self.device = machine.device(config.backend, config.device, config.dtype)
        self.dtype = "float64" if config.backend == "reference" else config.dtype
        place = {"device": self.device, "dtype": self.dtype}
        self.states = StateFactory(config, self.network, self.backend, self.interpolation, **place)
        self.files = RunFolder(folder)
        self.stop_requested: str | None = None  # set by a signal's handler; looked at after each step

    def run(self, *, resume: bool = False, again: bool = False) -> dict[str, Any]:
        """Train to the end and write `result.json`; `resume` continues the run in the folder, `again` deletes it."""
        with locked(self.folder), self.on_this_machine():
            if again:
                self.files.delete()
            self.files.refuse_links()
            self.saved, self.saving = time.monotonic(), 0.0
            self.state = self._start(resume)
            self.place_images()
            self._tell("started", self)
            while not self._ended:
                self._epoch()
            if self.state.all_retired:
                self.save()
            result = metrics.result(self)
            self.files.write_result(result)
            self._tell("ended", self, result)
            return result

    def finished(self) -> dict[str, Any] | None:
        """This run's result, if it is in the folder and the data are the same."""
        return self.files.result_of(self.config, self.data.digest)

    def memory(self) -> machine.Memory:
        """About how much memory the run needs."""
        itemsize, images = np.dtype(self.dtype).itemsize, len(self.data.x) + len(self.data.x_test)
        sizes = {"batch": self.config.batch, "itemsize": itemsize, "images": images}
        return machine.memory(self.network, lanes=len(self.config.lanes), device=self.device, **sizes)

    def seconds_a_step(self, steps: int = 3) -> float:
        """How long a step takes, from a few real ones whose result is thrown away."""
        with self.on_this_machine():
            self.state = self.states.new()
            self.place_images()
            times = []
            for k in range(steps + 1):
                begin = time.perf_counter()
                self.step(np.arange(k, k + self.config.batch) % len(self.data.x))
                for total in self.state.losses:
                    self.backend.to_numpy(total)  # waits for the device
                times.append(time.perf_counter() - begin)
            return float(np.median(times[1:]))

    @contextmanager
    def on_this_machine(self) -> Iterator[None]:
        """Apply the settings for threads and determinism, and check that all lanes fit into memory."""
        config, need = self.config, self.memory()
        with self.backend.computing(**config.machine_settings), need.shortage_explained():
            need.check()
            yield

    def place_images(self) -> None:
        """Put the images where the run computes."""
        classes, place = self.network.classes, self.states.place
        self.images = PlacedImages(self.config, self.data, self.backend, classes=classes, **place)

    # Starting, resuming, saving

    def _start(self, resume: bool) -> State:
        files = self.files
        files.check_same(self.config, self._extends, resume=resume)
        files.delete_partial_files()
        loaded = checkpoint.newest(files.checkpoint, lambda text: self._tell("warned", text))
        if loaded is None:
            files.begin(self.config, machine.environment())
            return self.states.new()
        arrays, saved = loaded
        files.check_checkpoint(saved.get("run"), self.config, self._extends)
        if not files.environment.exists():
            write_json(files.environment, machine.environment())
        if saved["data"] != self.data.digest:
            problem = f"the data are not those that {self.folder} was trained on"
            raise RunError(problem, "restore them, or choose another folder with --out")
        state = self.states.restored(arrays, saved, self.folder)
        files.write_epochs(state.rows, state.times)
        if self._extends(files.read_config()):
            files.result.unlink(missing_ok=True)
            files.write_config(self.config)
        return state

    def _extends(self, earlier: Config) -> bool:
        return extends(self.config, earlier, self.network)

    def save(self) -> None:
        """Write a checkpoint of the run's present state."""
        state, begin = self.state, time.monotonic()
        whole = self.config.keep_moments or not self._ended
        arrays = self.states.arrays(state, moments=whole)
        mean, std = self.data.statistics(self.config.inputs)
        data: dict[str, Any] = {"mean": mean.tolist(), "std": std.tolist()}
        data |= {"data": self.data.digest, "image": self.data.image, "classes": self.data.n_classes}
        saved = {**self.states.header(state), **data, "run": {"config": dataclasses.asdict(self.config)}}
        checkpoint.save(self.files.checkpoint, arrays, saved, keep=checkpoint.KEPT if whole else 1)
        self.saved = time.monotonic()
        self.saving = self.saved - begin

    # One epoch

    def _epoch(self) -> None:
        state, config = self.state, self.config
        begin = time.monotonic()
        if state.step == 0:
            self._align()
        order = self.images.order(state.epoch)
        while state.step < self.steps:
            batch = order[state.step * config.batch : (state.step + 1) * config.batch]
            with np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is found and told
                self.step(batch)
            state.step += 1
            self._tell("stepped", self, len(batch))
            late = time.monotonic() - self.saved > 60 * config.save_minutes and state.step < self.steps
            is_due = late or self.stop_requested is not None
            if is_due and not any(not_finite(model) for _, model in state.models):  # otherwise the next step finds it
                self.save()
                if self.stop_requested is not None:
                    where = f" in epoch {state.epoch + 1} after step {state.step} of {self.steps}"
                    raise Interrupted(self.stop_requested, "nothing is lost: continue with --resume", where)
        self._refuse_non_finite_sums()
        self._refuse_non_finite_weights()
        trained = time.monotonic()
        with np.errstate(over="ignore", invalid="ignore"):
            rows, spent = self._close_epoch()
        state.rows += rows
        state.epoch, state.step = state.epoch + 1, 0
        self.states.reset_losses(state)
        seconds = {"train": trained - begin, **spent}
        state.times.append({"epoch": state.epoch, **{name: round(value, 3) for name, value in seconds.items()}})
        self.files.write_epochs(state.rows, state.times)
        rested = time.monotonic() - self.saved > self.saving / SAVING
        if state.epoch == config.epochs or self.saving < QUICK or rested:
            self.save()
        self._tell("epoch_ended", self, rows, seconds)

    def _align(self) -> None:
        """Order the hidden units of the lanes that ask for it and are first mixed in the epoch that begins."""
        state = self.state
        for index, lane in enumerate(state.active):
            if self.config.lanes[lane].align == "once" and self.interpolation.first_mixed(lane) == state.epoch:
                assert state.lanes is not None
                assert state.prior is not None
                align_(self.backend, state.lanes.lane(index), state.prior)

    def step(self, batch: np.ndarray) -> None:
        """One batch for the prior and for all lanes, with the interpolation that is due after it."""
        state, config = self.state, self.config
        x, y = self.images.train_batch(batch, state.epoch, state.step)
        step = state.epoch * self.steps + state.step + 1
        settings: dict[str, Any] = {"compile": config.compile, "check": self._check_finite}
        settings["optimizer"] = dataclasses.replace(config.optimizer_settings, lr=self.rate.at(step - 1))
        losses: list[Any] = [0.0]
        if state.prior is not None:
            try:
                losses = [self.backend.train_step(state.prior, x, y, **settings)]
            except NonFiniteError as error:
                where = f"in epoch {state.epoch + 1}, step {state.step + 1}, from {error.layer} on"
                raise self._prior_failed(f"loss is not finite {where}") from error
        while state.lanes is not None:
            moves = self.interpolation.after_step(state.active, state.epoch, step)
            try:
                losses.append(self.backend.train_step(state.lanes, x, y, **settings, prior=state.prior, moves=moves))
                break
            except NonFiniteError as error:
                where = f"its loss is not finite in epoch {state.epoch + 1}, step {state.step + 1}"
                self._stop_lanes(dict.fromkeys(error.lanes, error.layer), state.step + 1, f"{where}, from {{}} on")
        for total, loss in zip(state.losses, losses, strict=True):
            total += loss * len(batch)

    def _close_epoch(self) -> tuple[list[Row], dict[str, float]]:
        """Evaluate, interpolate, evaluate again, measure the bias; the rows of the epoch and where the time went."""
        state, begin = self.state, time.monotonic()
        moves = self.interpolation.after_epoch(state.active, state.epoch)
        before = self.images.scores(state, of=MODELS if moves else ("prior",))
        if "prior" in before and not np.isfinite(before["prior"].loss):
            raise self._prior_failed(f"test loss is not finite after epoch {state.epoch + 1}")
        evaluated = time.monotonic()
        if moves and state.lanes is not None:
            self.backend.mix(state.lanes, state.prior, moves)
        self.states.wake(state)
        if moves:
            self._refuse_non_finite_weights()
        mixed = time.monotonic()
        test = self._evaluate_lanes() | {key: score for key, score in before.items() if key == "prior"}
        evaluated_again = time.monotonic()
        rows = metrics.rows(self, test, before)
        evaluate, meter = evaluated - begin + evaluated_again - mixed, time.monotonic() - evaluated_again
        return rows, {"evaluate": evaluate, "mix": mixed - evaluated, "meter": meter}

    def _evaluate_lanes(self) -> dict[int | str, Score]:
        """The lanes on the test images; those whose loss is not finite are stopped."""
        scores = self.images.scores(self.state, of=("lanes",))
        wrong = {n: "the test loss" for n, score in enumerate(scores.values()) if not np.isfinite(score.loss)}
        self._stop_lanes(wrong, self.steps, f"its test loss is not finite after epoch {self.state.epoch + 1}")
        return scores

    # Numbers that are not finite, and lanes that leave

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
        """What the last step of an epoch, or the interpolation after it, has done shows in no loss of that epoch."""
        state, when = self.state, f"after epoch {self.state.epoch + 1}, in {{}}"
        for layer in not_finite(state.prior).values() if state.prior is not None else ():
            raise self._prior_failed(f"weights are not finite {when.format(layer)}")
        if state.lanes is not None:
            self._stop_lanes(not_finite(state.lanes), self.steps, f"its weights are not finite {when}")

    def _prior_failed(self, how: str) -> RunError:
        kept = "its last good state is in checkpoint/; " if self.files.checkpoints() else ""
        return RunError(f"the prior's {how}", f"{kept}try a smaller --lr")

    def _stop_lanes(self, layers: dict[int, str], step: int, how: str) -> None:
        """Take lanes, each with the layer that broke it, out of the stack; the others continue undisturbed.

        `how` tells the user, with a place for the layer.
        """
        state = self.state
        for index, layer in layers.items():
            lane = state.active[index]
            state.stopped.append({"lane": lane, "epoch": state.epoch + 1, "step": step, "layer": layer})
            self._tell("warned", f"lane {lane} ({self.config.lanes[lane].title}) stopped: {how.format(layer)}")
        if layers:
            self._drop(list(layers))

    def retire(self, lane: int, reason: str) -> None:
        """Take a lane out of the run, from a callback's `started` or `epoch_ended`; the others continue as before.

        The result has it under `stopped`, with the reason and its last epoch; a run whose last lane it was ends there.
        A run may be resumed from a checkpoint before this: the callback has to ask again then.
        """
        state = self.state
        self._drop([state.active.index(lane)])
        state.stopped.append({"lane": lane, "epoch": state.epoch, "step": self.steps, "reason": reason})

    def _drop(self, indices: list[int]) -> None:
        """Make the stack of lanes smaller; no number of those that stay is changed."""
        state = self.state
        kept = [index for index in range(len(state.active)) if index not in indices]
        state.losses[1:] = [state.losses[1][kept]] if kept else []
        state.lanes = self.backend.select(state.lanes, kept) if kept and state.lanes is not None else None
        state.active = [state.active[index] for index in kept]

    @property
    def _ended(self) -> bool:
        return self.state.epoch == self.config.epochs or self.state.all_retired

    def _tell(self, what: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, what)(*arguments)
