"""The interpolation step for all lanes of a run, each with its own alpha, cadence, mode and layers."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from imlp.model import Model
from imlp.networks import Network
from imlp.train.config import Config, Lane, differences


class LaneInterpolation:
    """Decides which lanes are due, and interpolates as many as possible per backend call."""

    def __init__(self, network: Network, lanes: Iterable[Lane], epochs: int):
        self.lanes = tuple(lanes)
        self.schedules = [lane.schedules(network) for lane in self.lanes]
        self.epochs = epochs
        self.extra = {"head"} - {*network.interpolated}  # layers that are mixed beside the interpolated ones

    def alphas(self, lane: int, epoch: int) -> dict[str, float]:
        """Alpha of each layer that the lane interpolates in this epoch; nothing for a lane that rests."""
        found = {layer: schedule.at(epoch, self.epochs) for layer, schedule in self.schedules[lane].items()}
        return {layer: alpha for layer, alpha in found.items() if alpha is not None}

    def due_after_step(self, active: list[int], step: int) -> list[int]:
        """The lanes that are interpolated after step `step` of the whole run, counted from 1."""
        return [lane for lane in active if (every := self.lanes[lane].steps) is not None and step % every == 0]

    def due_after_epoch(self, active: list[int], epoch: int) -> list[int]:
        """The lanes that are interpolated after the epoch, and whose alpha then moves something."""
        return [lane for lane in active if self.lanes[lane].steps is None and any(self.alphas(lane, epoch).values())]

    def interpolate(
        self, backend: Any, model: Model, prior: Model, active: list[int], due: list[int], epoch: int
    ) -> None:
        """`W <- (1 - alpha) W + alpha W_P` for the lanes that are due; `active` names the lanes of the stack."""
        alike: dict[tuple[str, bool, bool], list[int]] = {}
        for n in due:
            alike.setdefault((self.lanes[n].mode, self.lanes[n].biases, self.lanes[n].head), []).append(n)
        for (mode, biases, head), chosen in alike.items():
            by_lane = {lane: self.alphas(lane, epoch) for lane in chosen}
            layers = sorted({layer for alphas in by_lane.values() for layer in alphas})
            alphas = {layer: [by_lane.get(lane, {}).get(layer) for lane in active] for layer in layers}
            names = [layer for layer in layers if layer not in self.extra]
            backend.inject(model, prior, alphas, mode=mode, layers=names, biases=biases, head=head)


def extends(config: Config, earlier: Config, network: Network) -> bool:
    """Whether a run is an earlier one with more epochs, and interpolates in the epochs of that one as that one did."""
    longer = earlier.epochs < config.epochs
    if not longer or differences(dataclasses.replace(earlier, epochs=config.epochs), config):
        return False
    before = LaneInterpolation(network, earlier.lanes, earlier.epochs)
    now = LaneInterpolation(network, config.lanes, config.epochs)
    lanes, epochs = range(len(earlier.lanes)), range(earlier.epochs)
    return all(before.alphas(lane, epoch) == now.alphas(lane, epoch) for lane in lanes for epoch in epochs)
