"""What the callbacks of Lightning and of transformers share: a knob, made and attached when training begins."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from imlp.nn.interpolation import Interpolation
from imlp.nn.pairs import unwrapped


class KnobCallback:
    """`knob` is there once training has begun; `options` are those of `Interpolation`."""

    def __init__(
        self, alpha: Any, *, model: str | nn.Module = "model", prior: str | nn.Module | None = "prior", **options: Any
    ) -> None:
        super().__init__()
        self._given: tuple[Any, Any] = model, prior
        self._options = {"alpha": alpha, **options}
        self.knob: Interpolation | None = None
        self._state: Mapping[str, Any] = {}
        self._attached: RemovableHandle | None = None

    def _begin(self, trained: nn.Module, optimizer: Optimizer) -> None:
        if self._attached is not None:
            self._attached.remove()
        named = unwrapped(trained).get_submodule
        model, prior = (named(each) if isinstance(each, str) else each for each in self._given)
        state = self.state_dict()
        self.knob = Interpolation(model, prior, **self._options)
        if state:
            self.knob.load_state_dict(state)
        self._attached = self.knob.attach(optimizer)

    def state_dict(self) -> dict[str, Any]:
        """That of the knob, or what was loaded for it."""
        return dict(self._state) if self.knob is None else self.knob.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.knob, self._state = None, dict(state)
