"""Where a run is: its models and what they have achieved, as the loop changes it and a checkpoint holds it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from imlp.errors import RunError
from imlp.model import STATE, STEP, Model, arrays_of
from imlp.networks import Network
from imlp.train.callbacks import Row
from imlp.train.config import Config
from imlp.train.moves import LaneInterpolation

MODELS = ("prior", "lanes")  # what the models of a state are called in a checkpoint
SAVED = ("active", "epoch", "step", "rows", "stopped", "times")  # of a State, beside its models and losses

Arrays = dict[str, np.ndarray]


@dataclass
class State:
    """Everything that changes in the course of a run."""

    prior: Model | None  # None: no lane needs one
    lanes: Model | None  # None: every lane has stopped, or none has begun
    active: list[int]  # which of the configuration's lanes the stack holds
    epoch: int = 0  # epochs that are complete, their interpolation and evaluation included
    step: int = 0  # steps of the epoch under way
    losses: list[Any] = field(default_factory=list)  # sums over its images: the prior's, and one per lane
    rows: list[Row] = field(default_factory=list)  # of metrics.jsonl
    stopped: list[dict[str, Any]] = field(default_factory=list)
    times: list[dict[str, Any]] = field(default_factory=list)  # of times.jsonl: where each epoch's seconds went

    @property
    def models(self) -> Iterator[tuple[str, Model]]:
        """The prior, and the stack of lanes if there are any left, by the names that they have in a checkpoint."""
        if self.prior is not None:
            yield "prior", self.prior
        if self.lanes is not None:
            yield "lanes", self.lanes

    @property
    def all_retired(self) -> bool:
        """Whether no lane is left, and not all of them broke by themselves."""
        return self.lanes is None and any("reason" in stop for stop in self.stopped)


class StateFactory:
    """Makes the states of a run: new, or from a checkpoint."""

    def __init__(
        self, config: Config, network: Network, backend: Any, lanes: LaneInterpolation, *, device: str, dtype: str
    ):
        self.config, self.network, self.backend, self.lanes = config, network, backend, lanes
        self.place: dict[str, Any] = {"dtype": dtype, "device": device}

    def new(self) -> State:
        """The state before the first step."""
        awake = [lane for lane, epoch in enumerate(self.lanes.wakes) if not epoch]
        state = State(self._new_model() if self.config.needs_prior else None, None, awake)
        state.lanes = self._new_model(awake) if awake else None
        self.reset_losses(state)
        return state

    def _new_model(self, lanes: list[int] | None = None) -> Model:
        """The prior, or these lanes, as they begin."""
        stack = {} if lanes is None else {"lanes": len(lanes), "branches": self.lanes.branches_of(lanes)}
        options = {"dense": lanes is not None, "seed": self.config.seed, **stack, **self.place}
        return self.backend.init(self.network, **options)

    def wake(self, state: State) -> None:
        """Let the lanes begin that become the prior after the epoch under way; its losses were the prior's."""
        for lane in [lane for lane, epoch in enumerate(self.lanes.wakes) if epoch == state.epoch + 1]:
            assert state.prior is not None
            state.active = [*state.active, lane]
            rule, branches = self.config.lanes[lane].rule, self.lanes.branches_of(state.active)
            state.lanes = self.backend.relax(state.prior, state.lanes, branches, rule)
            sums = [self.backend.to_numpy(part_sums).reshape(-1) for part_sums in (*state.losses[1:], state.losses[0])]
            state.losses[1:] = [self.backend.place(np.concatenate(sums), device=self.place["device"])]

    def reset_losses(self, state: State) -> None:
        """Begin the sums of an epoch, in float64."""
        shapes = [()] if state.lanes is None else [(), (len(state.active),)]
        state.losses = [self.backend.place(np.zeros(shape), device=self.place["device"]) for shape in shapes]

    def arrays(self, state: State, *, moments: bool) -> Arrays:
        """The numbers of the models for a checkpoint, not copied: there may be no room for that."""
        saved: Arrays = {}
        for group, model in state.models:
            numbers = arrays_of(model, self.backend.to_numpy)
            left_out = () if moments else self._moments
            saved |= {f"{group}/{name}": numbers[name] for name in numbers if not name.startswith(left_out)}
        return saved

    @property
    def _moments(self) -> tuple[str, ...]:
        """How the names of what the optimizer keeps for each parameter begin."""
        return tuple(f"{STATE}{name}." for name in self.config.optimizer_settings.state)

    def header(self, state: State) -> dict[str, Any]:
        """Everything else for a checkpoint, as JSON can hold it."""
        losses = [self.backend.to_numpy(sums).tolist() for sums in state.losses]
        return {**{name: getattr(state, name) for name in SAVED}, "losses": losses}

    def restored(self, arrays: Arrays, saved: dict[str, Any], where: object) -> State:
        """The state that a checkpoint holds. One without the optimizer's state can be read, but not trained further."""
        groups = {group: part(arrays, f"{group}/") for group in MODELS}
        kept = any(name.startswith(self._moments) for group in groups.values() for name in group)
        trained = any(group.get(STEP, 0) for group in groups.values())
        if trained and not kept and saved["epoch"] < self.config.epochs and saved["active"]:
            problem = f"{where} ended after {saved['epoch']} epochs and kept its weights, not the optimizer's state"
            remedy = "train all epochs again, with --again; with --keep-moments more can be added later"
            raise RunError(problem, remedy)
        restore, branches = self.backend.restore, self.lanes.branches_of(saved["active"])
        prior = restore(self.network, groups["prior"], dense=False, **self.place) if groups["prior"] else None
        dense = {"dense": True, "branches": branches, **self.place}
        lanes = restore(self.network, groups["lanes"], **dense) if groups["lanes"] else None
        state = State(prior, lanes, **{name: saved[name] for name in SAVED})
        self.reset_losses(state)
        fits = (lanes.lanes if lanes else 0) == len(state.active) and (prior is not None) == self.config.needs_prior
        try:
            sums = [np.array(total, float) for total in saved["losses"]]
        except (TypeError, ValueError):
            sums = []
        if not fits or [s.shape for s in sums] != [s.shape for s in state.losses]:  # checksums can be forged
            raise RunError(f"the checkpoint of {where} is not of this run", "train it again: --again")
        state.losses = [self.backend.place(total, device=self.place["device"]) for total in sums]
        return state


def part(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
