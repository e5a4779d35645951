"""What is due for each lane of a run, which has its own coupling, alpha, cadence and layers."""

import dataclasses
from collections.abc import Iterable

from imlp.couplings import Branch, Mixing, Move, Moves
from imlp.networks import Network
from imlp.optimizers import LearningRate
from imlp.train.config import Config, Lane, differences


class LaneInterpolation:
    """Decides which lanes are due, and what is done to their layers."""

    def __init__(self, network: Network, lanes: Iterable[Lane], rate: LearningRate):
        self.lanes, self.rate, epochs = tuple(lanes), rate, rate.epochs
        self.schedules = [lane.schedules(network) for lane in self.lanes]
        self.branches = [lane.branch(network) for lane in self.lanes]
        self.wakes = [lane.rule.begins_after(epochs) for lane in self.lanes]

    def alphas(self, lane: int, epoch: int, step: int | None = None) -> dict[str, dict[str, float]]:
        """By knob (`alpha`; the coupling `self` has `alpha_sharing` too), alpha of each layer mixed in the epoch.

        `step` of the whole run, counted from 1, is that which was taken last: unless given, the last of the epoch.
        """
        rule, every = self.lanes[lane].rule, self.lanes[lane].steps or self.rate.steps
        moved = every * self.rate.at((step or (epoch + 1) * self.rate.steps) - 1)
        alphas: dict[str, dict[str, float]] = {}
        for name, schedules in zip(rule.knobs, self.schedules[lane], strict=True):
            at = {layer: schedule.at(epoch, self.rate.epochs, moved) for layer, schedule in schedules.items()}
            alphas[name] = {layer: alpha for layer, alpha in at.items() if alpha is not None}
        return alphas

    def first_mixed(self, lane: int) -> int | None:
        """The first epoch, from 0, in which its alpha moves something."""
        epochs = range(self.rate.epochs)
        return next((e for e in epochs if any(any(alphas.values()) for alphas in self.alphas(lane, e).values())), None)

    def branches_of(self, lanes: Iterable[int]) -> tuple[Branch | None, ...]:
        """How these lanes compute their layers; nothing if each does it as it is."""
        return tuple(self.branches[lane] for lane in lanes) if any(self.branches) else ()

    def after_step(self, active: list[int], epoch: int, step: int) -> Moves:
        """What is done to the layers of the active lanes after a step of the whole run, counted from 1."""
        due = [lane for lane in active if (every := self.lanes[lane].steps) is not None and step % every == 0]
        return self._moves(active, due, epoch, step)

    def after_epoch(self, active: list[int], epoch: int) -> Moves:
        """The same after an epoch, for the lanes whose alpha then moves something."""
        once = [lane for lane in active if self.lanes[lane].steps is None]
        due = [lane for lane in once if any(any(alphas.values()) for alphas in self.alphas(lane, epoch).values())]
        return self._moves(active, due, epoch)

    def _moves(self, active: list[int], due: list[int], epoch: int, step: int | None = None) -> Moves:
        moves: dict[str, list[Move | None]] = {}
        for lane in due:
            settings, knobs = self.lanes[lane], [*self.alphas(lane, epoch, step).values()]
            assert isinstance(settings.rule, Mixing)
            for layer in dict.fromkeys(layer for alphas in knobs for layer in alphas):
                alphas = tuple(alphas.get(layer, 0.0) for alphas in knobs)
                move = Move(settings.rule, alphas, biases=settings.biases, moments=settings.moments)
                moves.setdefault(layer, [None] * len(active))[active.index(lane)] = move
        return moves


def extends(config: Config, earlier: Config, network: Network) -> bool:
    """Whether a run is an earlier one with more epochs, and interpolates in the epochs of that one as that one did."""
    differs = differences(dataclasses.replace(earlier, epochs=config.epochs), config)
    if earlier.epochs >= config.epochs or differs or config.learning_rate(1).depends_on_length:
        return False
    before = LaneInterpolation(network, earlier.lanes, earlier.learning_rate(1))
    now = LaneInterpolation(network, config.lanes, config.learning_rate(1))
    lanes, epochs = range(len(earlier.lanes)), range(earlier.epochs)
    same = (before.alphas(lane, epoch) == now.alphas(lane, epoch) for lane in lanes for epoch in epochs)
    return before.wakes == now.wakes and all(same)
