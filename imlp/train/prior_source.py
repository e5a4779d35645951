"""What the loop asks of a recording of the prior's weights; `imlp.study.prior_recording` has one on disk."""

from typing import Protocol

import numpy as np


class PriorSource(Protocol):
    """Records the prior's weights while it is trained, or replays those that another run has recorded."""

    @property
    def replayed_run(self) -> str | None:
        """The name of the run whose prior is replayed; None: the prior is trained, and recorded."""
        ...

    @property
    def cadences(self) -> list[int]:
        """The numbers of steps after which the weights are kept; after each epoch they always are."""
        ...

    def check(self, cadences: list[int] | None) -> None:
        """Refuse a recording whose cadences are not those that a checkpoint states; None: it states none."""

    def is_kept(self, epoch: int, step: int) -> bool:
        """Whether the weights after this step of the epoch (from 1) are part of the recording."""
        ...

    def record(self, epoch: int, step: int, parameters: dict[str, np.ndarray]) -> None:
        """Keep the weights after this step."""

    def replay(self, epoch: int, step: int) -> dict[str, np.ndarray]:
        """The weights after this step; nothing where they are not kept, because no lane needs them."""
        ...

    def train_loss(self, epoch: int) -> float:
        """The prior's training loss, by the run that trained it."""
        ...

    def sync(self) -> None:
        """Make what is recorded durable: a checkpoint is about to state that it is there."""
