"""A search for the best amount of inductive bias: Optuna proposes lanes, runs train them in batches beside one prior.

The accuracy that counts is that on images held out from the training set; the test set is not looked at before the end,
when the lane that was chosen, alpha 0 and alpha 1 are trained once more on all training images. `search` does all of
that, without a console.

A batch is asked for as a whole and added to `batches.json` before it is trained, and its trials are read from its runs
when all of them are finished. Whatever interrupts a search, the same batch is resumed, and the same trials come out.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from imlp import machine
from imlp.backend import backend as get_backend
from imlp.couplings import Mixing, class_of
from imlp.couplings.setting import deciding
from imlp.data import Dataset
from imlp.errors import BackendError, ConfigError, RunError, in_a_line, install_hint
from imlp.files import check_new, check_path, write_json
from imlp.study.cluster import Cluster, connected
from imlp.study.outcomes import Choice, Final, HeldOut, SearchOutcome, SeedScores, Trial
from imlp.study.run_sweep import Runner
from imlp.study.scores import arms_of
from imlp.study.tasks import Outcome, Task, lanes_at_once, plan
from imlp.study.watcher import Watcher
from imlp.train import prepare
from imlp.train.callbacks import Callback, Row
from imlp.train.config import Config, Lane, check_seeds, from_mapping
from imlp.train.loop import Trainer
from imlp.train.run_folder import RunFolder, locked, refuse_links
from imlp.train.run_reader import read_json, read_run

if TYPE_CHECKING:
    import optuna

OVER = ("alpha", "alpha-per-layer")
LEAST, ZERO = 1e-4, 1e-5  # alpha is log-uniform from ZERO to 1, and what is drawn below LEAST means 0
TRIALS, MOST_TRIALS = 32, 1_000_000
AT_ONCE = 8  # lanes in one run, if memory allows
RANDOM = 8  # trials before the sampler begins to learn from them
TRIES = 20  # draws for a lane that has not been tried yet
UNPRUNED = 5  # trials that run to the end before any is stopped early, and
UNPRUNED_SHARE = 0.25  # the share of the epochs in which none is
FILES = ("settings.json", "batches.json", "search.json", "search.png")  # beside the runs
ANOTHER_FOLDER = "choose another folder with --out"

Parameters: TypeAlias = dict[str, Any]
Batch: TypeAlias = dict[str, list[Parameters]]  # by the folder of the run
RunTasks: TypeAlias = Callable[[Sequence[Task], Dataset], list[Outcome]]


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: its folder, and what its `search.json` holds."""

    folder: Path
    outcome: SearchOutcome

    def as_dict(self) -> dict[str, Any]:
        """What `search --json` prints."""
        return {"folder": str(self.folder), **dataclasses.asdict(self.outcome)}


def search(
    config: Config | None = None,
    over: str = "alpha",
    *,
    every: str | None = None,
    trials: int = TRIALS,
    validation: float = 0.1,
    seeds: int = 1,
    prune: bool = True,
    lane: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    lanes_at_once: int | None = None,
    data: Dataset | None = None,
    cluster: Cluster | None = None,
    check: bool = True,
    watcher: Watcher | None = None,
) -> SearchResult:
    """Search for the best amount of inductive bias with Optuna, on images held out from the training set.

    Alpha 0 and alpha 1 are tried first. At the end the choice and these two are trained on all training images, and
    only then the test set is used. Call it again at any time: it resumes where it was, or returns its result.
    `imlp.train.loop.Interrupted` is raised if a signal stops it.

    - `config`: everything but the lanes; its `seed` draws the images held out and is the first seed of the test
    - `lane`, `data`, `cluster`, `check`, `watcher`: as for `sweep`
    - all others: the options of the command, which `search --help` describes
    """
    base, watcher = config or Config(), watcher or Watcher()
    check_seeds(seeds)
    check_trials(trials)
    check_path(out or "")
    get_backend(base.backend)  # before anything slow: it names what is missing
    data = data or prepare.load_data(base, watcher.progress)
    cadence = "both" if every in ("epoch,step", "step,epoch") else every or ""
    with connected(cluster, watcher):
        going = Search(
            base, data, Path(out) if out else None, over=over, every=cadence, common=dict(lane or {}), trials=trials,
            validation=validation, seeds=seeds, at_once=lanes_at_once, prune=prune,
            runs_at_once=cluster.runs(base) if cluster else 1,
        )  # fmt: skip
        runner = Runner(watcher, cluster, check)

        def run_batch(tasks: Sequence[Task], data: Dataset) -> list[Outcome]:
            if all(task.finished for task in tasks):
                return Runner(Watcher(), cluster)(tasks, data)
            folder, lanes = tasks[0].folder, sum(len(task.config.lanes) for task in tasks)
            final = folder.parent.name == "final"
            judged = "on all training images, then the test" if final else "judged on the images held out"
            watcher.noted(f"{'final' if final else folder.name}: {lanes} lanes, {judged}")
            return runner(tasks, data)

        outcome = going.run(run_batch)
    picture, record = going.folder / "search.png", going.folder / "search.json"
    if not picture.exists() or picture.stat().st_mtime < record.stat().st_mtime:
        from imlp.look import plot  # matplotlib takes a second to import

        plot.save(plot.search_figure(outcome), picture)
    return SearchResult(going.folder, outcome)


@dataclass
class Search:
    """A search of `trials` lanes in a folder; `run` starts it, resumes it, or returns its result."""

    base: Config
    data: Dataset
    out: Path | None = None  # the folder; None: runs/search-NETWORK-DATA-HASH
    over: str = "alpha"
    every: str = ""  # epoch, step, a number of steps, or both; empty: as its lanes are mixed by default
    common: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # settings of every lane
    trials: int = TRIALS
    validation: float = 0.1
    seeds: int = 1  # of the runs at the end
    at_once: int | None = None  # lanes in one run; None: AT_ONCE, or as many as memory allows
    runs_at_once: int = 1  # that are asked for together, to be run side by side
    prune: bool = True

    def __post_init__(self) -> None:
        import_optuna()
        if self.over not in OVER:
            raise ConfigError(f"--over is {self.over!r}", f"use {' or '.join(OVER)}")
        machine.device(self.base.backend, self.base.device, self.base.dtype)  # before anything is written
        self.network = self.base.make_network(self.data.image, self.data.n_classes)
        coupling = self.common.get("coupling", "interpolate")
        if not issubclass(class_of(coupling), Mixing):
            raise ConfigError(f"coupling is {coupling!r}, which has no alpha to search", "leave --coupling out")
        cadence: dict[str, Any] = {} if self.every in ("", "both") else {"every": self.every}
        one: Lane = from_mapping(Lane, {"alpha": "1", **cadence, **self.common})
        self.every = self.every or one.every
        if not (layers := one.schedules(self.network)[0]):
            raise ConfigError("the network has no layers to mix", "choose one that has, for example cnn")
        self.names = [f"alpha {layer}" for layer in layers] if self.over == "alpha-per-layer" else ["alpha"]
        if self.trials < (least := len(self.known)):
            raise ConfigError(f"--trials is {self.trials}", f"give at least {least}: alpha 0 and alpha 1 come first")
        if self.at_once is not None and self.at_once < 1:
            raise ConfigError(f"--lanes-at-once is {self.at_once}", "give at least 1")
        self.split = self.data.hold_out(self.validation, seed=self.base.seed)
        name = f"search-{self.base.network_name}-{Path(self.base.data).name}-{self._identity}"
        self.folder = self.out or Path("runs") / name

    def run(self, runner: RunTasks) -> SearchOutcome:
        """All trials, then the runs at the end; what `search.json` holds."""
        self._refuse_another()
        with locked(self.folder):
            refuse_links(self.folder / name for name in (*FILES, "final"))
            self._refuse_another()
            self.study = import_optuna().create_study(direction="maximize")
            if not (self.folder / "settings.json").exists():
                write_json(self.folder / "settings.json", self._settings)
            batches, told = self._asked(), 0
            while told < len(batches) or self._ask(batches):
                batch, told = batches[told], told + 1
                tasks = self._tasks(batch)
                is_new = not all(task.finished for task in tasks)
                if is_new:
                    self._run(tasks, self.split, runner)
                self._tell(batch)
                if is_new and self._complete():
                    self._save(None)
            return self._save(self._final(runner))

    def _complete(self) -> "list[optuna.trial.FrozenTrial]":
        return [trial for trial in self.study.trials if trial.user_attrs["state"] == "complete"]

    def _refuse_another(self) -> None:
        path, here = self.folder / "settings.json", self._settings
        made = self.folder / "search.json", self.folder / "search.png"
        check_new(*made, force=path.exists(), remedy=ANOTHER_FOLDER)
        there = read_json(path, {}, ANOTHER_FOLDER) if path.exists() else here
        names = (name for name in sorted(there.keys() | here.keys()) if there.get(name) != here.get(name))
        if changed := "; ".join(f"{name}: {there.get(name)} there, {here.get(name)} here" for name in names):
            raise RunError(f"{self.folder} holds another search ({changed})", ANOTHER_FOLDER)

    @property
    def _settings(self) -> dict[str, Any]:
        """Everything that decides a trial's value."""
        search = {"over": self.over, "every": self.every, "lanes": dict(self.common), "validation": self.validation}
        return _as_read(deciding(self.base) | search | {"images": self.split.digest})

    @property
    def _identity(self) -> str:
        return hashlib.sha256(json.dumps(self._settings, sort_keys=True).encode()).hexdigest()[:16]

    # The lanes that are tried

    @property
    def known(self) -> list[Parameters]:
        """What is tried first: alpha 0, the plain MLP, and alpha 1, all of the prior, at each cadence."""
        full: Parameters = dict.fromkeys(self.names, 1.0)
        cadences = [{"every": "epoch"}, {"every": "step"}] if self.every == "both" else [{}]
        return [dict.fromkeys(self.names, ZERO), *(full | cadence for cadence in cadences)]

    def suggested(self, trial: Any) -> Lane:
        """The lane of an Optuna trial, or of anything that suggests values as one does."""
        drawn = {name: self._alpha(trial, name) for name in self.names}
        alpha = next(iter(drawn.values()))
        if len(set(drawn.values())) > 1:
            alpha = ",".join(f"{name.removeprefix('alpha ')}={value}" for name, value in drawn.items())
        if alpha == "0":
            every = "epoch"
        elif self.every == "both":
            every = trial.suggest_categorical("every", ("epoch", "step"))
        else:
            every = self.every
        return from_mapping(Lane, {"alpha": alpha, "every": every, **self.common})

    def _alpha(self, trial: Any, name: str) -> str:
        drawn = trial.suggest_float(name, ZERO, 1.0, log=True)
        return f"{drawn:.3g}" if drawn >= LEAST else "0"

    def _lane(self, parameters: Parameters) -> Lane:
        return self.suggested(import_optuna().trial.FixedTrial(parameters))

    # A batch: asked for, run, told

    def _asked(self) -> list[Batch]:
        """The batches so far, checked: the folder may be somebody else's."""
        path = self.folder / "batches.json"
        batches: list[Batch] = read_json(path, [{...: [{}]}], ANOTHER_FOLDER) if path.exists() else []
        try:
            lanes = {name: list(map(self._lane, own)) for batch in batches for name, own in batch.items()}
        except (TypeError, ValueError) as error:
            raise RunError(f"cannot read {path}: {in_a_line(error)}", ANOTHER_FOLDER) from error
        if not all(lanes[name] and re.fullmatch("batch-[0-9]{3,}", name) for name in lanes):
            raise RunError(f"{path} names folders that are none of a search: {', '.join(lanes):.80}", ANOTHER_FOLDER)
        return batches

    def _ask(self, batches: list[Batch]) -> bool:
        """Add a new batch, which depends on the seed and the trials alone; False if there is nothing left to try."""
        optuna, trials = import_optuna(), self.study.trials
        most = self.at_once or lanes_at_once(self.base, self.split, AT_ONCE)
        wanted = min(most * self.runs_at_once, self.trials - len(trials))
        seed = int(np.random.default_rng([self.base.seed, len(trials)]).integers(2**31))
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM, constant_liar=True)
        draft = optuna.create_study(direction="maximize", sampler=sampler)
        draft.add_trials(trials)
        seen = {self._lane(trial.params) for trial in trials}
        for parameters in self.known:
            if self._lane(parameters) not in seen:
                draft.enqueue_trial(parameters)
        candidates: dict[Lane, Parameters] = {}
        for trial in (draft.ask() for _ in range(TRIES * wanted)):
            lane = self.suggested(trial)
            if lane not in seen:
                candidates.setdefault(lane, trial.params)
            if len(candidates) == wanted:
                break
        drawn, first = [*candidates.values()], sum(map(len, batches))
        pieces = (drawn[start : start + most] for start in range(0, len(drawn), most))
        if candidates:
            batches.append({f"batch-{n:03d}": piece for n, piece in enumerate(pieces, start=first)})
            write_json(self.folder / "batches.json", batches)
        return bool(candidates)

    def _tasks(self, batch: Batch) -> list[Task]:
        base = dataclasses.replace(self.base, held_out=self.validation)
        callbacks = (Pruner(self._complete()),) if self.prune else ()
        lanes = {name: tuple(map(self._lane, parameters)) for name, parameters in batch.items()}
        return [Task(dataclasses.replace(base, lanes=lanes[name]), self.folder / name, callbacks) for name in batch]

    def _run(self, tasks: list[Task], data: Dataset, runner: RunTasks) -> list[Outcome]:
        outcomes = runner(tasks, data)
        for error in (outcome.error for outcome in outcomes if outcome.error is not None):
            raise RunError(f"a run of the search has failed: {error}", "fix that, then run the command again")
        return outcomes

    def _tell(self, batch: Batch) -> None:
        """Add the trials of a batch that has been run, and free the room of its weights."""
        for name, drawn in batch.items():
            run = read_run(self.folder / name)
            stopped = run.result["stopped"] if run.result else ()
            states = {stop["lane"]: stop.get("reason", "stopped") for stop in stopped}
            prior = 100 * run.of("prior")[-1]["test_accuracy"] if run.of("prior") else None
            for k, parameters in enumerate(drawn):
                attributes = {"run": [name, k], "state": states.get(k, "complete"), "prior": prior}
                self.study.add_trial(self._finished(parameters, run.of(k), attributes))
            RunFolder(run.folder).delete_checkpoints()

    def _finished(self, parameters: Parameters, rows: list[Row], attributes: dict[str, Any]) -> Any:
        trials = import_optuna().trial
        fixed = trials.FixedTrial(parameters)
        self.suggested(fixed)  # tells it the distributions
        values = {row["epoch"]: 100 * row["test_accuracy"] for row in rows}
        return trials.create_trial(
            state=trials.TrialState.COMPLETE if attributes["state"] == "complete" else trials.TrialState.PRUNED,
            value=values[max(values)] if values else None,
            params=fixed.params,
            distributions=fixed.distributions,
            intermediate_values=values,
            user_attrs=attributes,
        )

    # The end

    def _best(self) -> "optuna.trial.FrozenTrial":
        """The best of those that ran to the end; of equal ones the first, so that alpha 0 must be beaten."""
        if complete := self._complete():
            return max(complete, key=lambda trial: trial.value or 0.0)
        raise RunError("no trial ran to its end", "try a smaller --lr")

    def _final(self, runner: RunTasks) -> list[Final]:
        """Train the chosen lane and the known ones on all training images; only here the test images are used."""
        trials = {self._lane(trial.params): trial for trial in reversed(self.study.trials)}
        best = self._best()
        lanes = [*dict.fromkeys(map(self._lane, [best.params, *self.known]))]
        seeds = range(self.base.seed, self.base.seed + self.seeds)
        most = self.at_once or lanes_at_once(self.base, self.data, len(lanes))
        tasks = plan(self.base, lanes, seeds, self.folder / "final", at_once=most)
        outcomes = self._run(tasks, self.data, runner)
        (arm,) = arms_of([read_run(outcome.task.folder) for outcome in outcomes])
        asked, final = {lane.compared: lane for lane in lanes}, []
        for score in arm.scores:
            test = SeedScores(score.mean, score.std, score.n, {str(k): v for k, v in score.by_seed.items()})
            if score.lane is None:
                final.append(Final(f"{arm.prior_name} (prior)", None, best.user_attrs["prior"], test))
            elif lane := asked.get(score.lane):
                seen = trials[lane].value if lane in trials else None
                final.append(Final(lane.title, _as_read(dataclasses.asdict(lane)), seen, test))
        return final

    def _save(self, final: list[Final] | None) -> SearchOutcome:
        """Write `search.json`, unless it says the same already."""
        best = self._best()
        lane = self._lane(best.params)
        alpha = {layer: str(schedule) for layer, schedule in lane.schedules(self.network)[0].items()}
        outcome = SearchOutcome(
            over=self.over, every=self.every, network=self.base.network, data=self.data.name,
            epochs=self.base.epochs, seed=self.base.seed,
            validation=HeldOut(self.validation, len(self.split.x_test), len(self.data.x)),
            prior=best.user_attrs["prior"],  # of a run that went to the end: the same in all of them
            trials=[self._trial(trial) for trial in self.study.trials],
            chosen=Choice(lane.title, _as_read(dataclasses.asdict(lane)), best.number, best.value or 0.0, alpha),
            final=final,
        )  # fmt: skip
        path, content = self.folder / "search.json", dataclasses.asdict(outcome)
        if not path.exists() or read_json(path, {}, ANOTHER_FOLDER) != content:
            write_json(path, content)
        return outcome

    def _trial(self, trial: "optuna.trial.FrozenTrial") -> Trial:
        lane, values = self._lane(trial.params), trial.intermediate_values
        drawn = {name or "all layers": schedule.numbers[0] for name, schedule in lane.knobs[0].schedules}
        return Trial(
            trial.number, lane.title, _as_read(dataclasses.asdict(lane)), drawn, trial.user_attrs["state"],
            trial.value, [values[epoch] for epoch in sorted(values)], trial.user_attrs["run"],
        )  # fmt: skip


class Pruner(Callback):
    """Retires a lane whose best accuracy so far is below the median that earlier trials had after the same epoch.

    As Optuna's `MedianPruner` does, with numbers that can be sent to another machine.
    """

    def __init__(self, complete: "Sequence[optuna.trial.FrozenTrial]"):
        self.history = [trial.intermediate_values for trial in complete]

    def started(self, trainer: Trainer) -> None:
        self.epoch_ended(trainer, [], {})

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        now, epochs = trainer.state.epoch, trainer.config.epochs
        if len(self.history) < UNPRUNED or not UNPRUNED_SHARE * epochs < now < epochs:
            return
        median = np.median([values[now] for values in self.history])
        for lane in [*trainer.state.active]:
            if max(100 * row["test_accuracy"] for row in trainer.state.rows if row["lane"] == lane) < median:
                trainer.retire(lane, "pruned")


def check_trials(trials: int) -> None:
    """Refuse more trials than anybody could run, before anything slow is done with it."""
    if trials > MOST_TRIALS:
        raise ConfigError("--trials is too large", f"give at most {MOST_TRIALS:,}")


def import_optuna() -> Any:
    """Optuna, silent but for warnings; an error with the remedy where it is missing."""
    try:
        import optuna
    except ImportError:
        raise BackendError("search needs Optuna", install_hint("search")) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _as_read(settings: Mapping[str, Any]) -> Any:
    """Settings as a file has them: with lists for tuples."""
    return json.loads(json.dumps(settings, default=list))
