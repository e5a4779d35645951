"""The knob as a callback of Lightning, which needs `pip install lightning`."""

from typing import Any

from lightning.pytorch import Callback

from imlp.nn.interpolation import KnobCallback


class InterpolationCallback(KnobCallback, Callback):
    """Mixes once per step of the optimizer; of several, the last that `configure_optimizers` returns.

    `model` and `prior` are the names of two parts of the LightningModule, or modules; everything else is as for
    `imlp.nn.Interpolation`. The knob's state is part of Lightning's checkpoints, so that a resumed run ends with the
    same bits.

    >>> callback = InterpolationCallback(alpha=0.1, model="model", prior="prior", every=2)
    >>> # lightning.Trainer(accumulate_grad_batches=4, callbacks=[callback]).fit(module, loader)
    """

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self.knob is not None and not trainer.global_step:  # of another run
            self.load_state_dict({})
        self._begin(pl_module, trainer.optimizers[-1])
