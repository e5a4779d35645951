"""What is due for each lane of a run, which has its own coupling, alpha, cadence and layers."""

import dataclasses
from collections.abc import Iterable

from imlp.couplings import Branch, Mixing, Move, Moves
from imlp.networks import Network
from imlp.train.config import Config, Lane, differences


class LaneInterpolation:
    """Decides which lanes are due, and what is done to their layers."""

    def __init__(self, network: Network, lanes: Iterable[Lane], epochs: int):
        self.lanes, self.epochs = tuple(lanes), epochs
        self.schedules = [lane.schedules(network) for lane in self.lanes]
        self.branches = [lane.branch(network) for lane in self.lanes]
        self.wakes = [lane.wakes_after(epochs) for lane in self.lanes]

    def alphas(self, lane: int, epoch: int, knob: int = 0) -> dict[str, float]:
        """Alpha of each layer that the lane interpolates in this epoch; nothing for a lane that rests."""
        found = {layer: schedule.at(epoch, self.epochs) for layer, schedule in self.schedules[lane][knob].items()}
        return {layer: alpha for layer, alpha in found.items() if alpha is not None}

    def by_knob(self, lane: int, epoch: int) -> dict[str, dict[str, float]]:
        """The same for each knob of the lane's coupling by name: `alpha`, and of `self` `alpha_sharing`."""
        rule = self.lanes[lane].rule
        names = rule.knobs if isinstance(rule, Mixing) else ("alpha",)
        return {name: self.alphas(lane, epoch, knob) for knob, name in enumerate(names)}

    def awake(self, epoch: int) -> list[int]:
        """The lanes that train in this epoch, counted from 0, unless they have stopped."""
        return [lane for lane, wakes in enumerate(self.wakes) if wakes <= epoch]

    def branches_of(self, lanes: Iterable[int]) -> tuple[Branch | None, ...]:
        """How these lanes compute their layers; nothing if each does it as it is."""
        return tuple(self.branches[lane] for lane in lanes) if any(self.branches) else ()

    def due_after_step(self, active: list[int], step: int) -> list[int]:
        """The lanes that are interpolated after step `step` of the whole run, counted from 1."""
        return [lane for lane in active if (every := self.lanes[lane].steps) is not None and step % every == 0]

    def due_after_epoch(self, active: list[int], epoch: int) -> list[int]:
        """The lanes that are interpolated after the epoch, and whose alpha then moves something."""
        return [
            lane
            for lane in active
            if self.lanes[lane].steps is None
            and any(any(alphas.values()) for alphas in self.by_knob(lane, epoch).values())
        ]

    def moves(self, active: list[int], due: list[int], epoch: int) -> Moves:
        """What is done to each layer of the lanes that are due; `active` names the lanes of the stack."""
        found: dict[str, list[Move | None]] = {}
        for lane in due:
            own, knobs = self.lanes[lane], [*self.by_knob(lane, epoch).values()]
            assert isinstance(own.rule, Mixing)
            for layer in dict.fromkeys(layer for alphas in knobs for layer in alphas):
                alphas = tuple(alphas.get(layer, 0.0) for alphas in knobs)
                move = Move(own.rule, alphas, biases=own.biases, moments=own.moments)
                found.setdefault(layer, [None] * len(active))[active.index(lane)] = move
        return found


def extends(config: Config, earlier: Config, network: Network) -> bool:
    """Whether a run is an earlier one with more epochs, and interpolates in the epochs of that one as that one did."""
    longer = earlier.epochs < config.epochs
    if not longer or differences(dataclasses.replace(earlier, epochs=config.epochs), config):
        return False
    before = LaneInterpolation(network, earlier.lanes, earlier.epochs)
    now = LaneInterpolation(network, config.lanes, config.epochs)
    lanes, epochs = range(len(earlier.lanes)), range(earlier.epochs)
    same = (before.by_knob(lane, epoch) == now.by_knob(lane, epoch) for lane in lanes for epoch in epochs)
    return before.wakes == now.wakes and all(same)
