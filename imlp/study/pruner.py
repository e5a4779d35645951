"""Lanes of a search that are among the worse are stopped early."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from imlp.study.search_space import import_optuna
from imlp.train.callbacks import Callback, Row
from imlp.train.loop import Trainer

if TYPE_CHECKING:
    import optuna

UNPRUNED = 5  # trials that run to the end before any is stopped early, and
UNPRUNED_SHARE = 0.25  # the share of the epochs in which none is


class Pruner(Callback):
    """Retires a lane whose best accuracy so far is below the median that earlier trials had after the same epoch.

    It asks Optuna's median pruner, through a separate study in memory, so that it can be sent to another machine.
    """

    def __init__(self, history: "Sequence[optuna.trial.FrozenTrial]"):
        self.history = history

    def started(self, trainer: Trainer) -> None:
        optuna = import_optuna()
        warmup = int(UNPRUNED_SHARE * trainer.config.epochs) + 1
        pruner = optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED, n_warmup_steps=warmup)
        study = optuna.create_study(direction="maximize", pruner=pruner)
        study.add_trials(self.history)
        self.trials = [study.ask() for _ in trainer.config.lanes]
        self.epoch_ended(trainer, trainer.state.rows, {})

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        for row in (row for row in rows if row["lane"] != "prior"):
            self.trials[row["lane"]].report(100 * row["test_accuracy"], row["epoch"])
        now = trainer.state.epoch
        for lane in [row["lane"] for row in rows if row["epoch"] == now < trainer.config.epochs]:
            if lane in trainer.state.active and self.trials[lane].should_prune():
                trainer.retire(lane, "pruned")
