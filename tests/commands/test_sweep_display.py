"""The live table of many runs."""

import pytest

from imlp.commands.sweep_display import Board
from imlp.study.tasks import Task
from imlp.train.config import Config


@pytest.mark.parametrize(("done", "state"), [(0.0, "epoch 1/2"), (1.5, "epoch 2/2"), (2.0, "epoch 2/2")])
def test_a_run_is_in_its_last_epoch_until_it_has_ended(tmp_path, monkeypatch, done, state):
    board, task, shown = Board(), Task(Config(epochs=2), tmp_path / "seed0"), []
    board.planned([task])
    board.live = True
    monkeypatch.setattr(board.screen, "update", shown.append)
    board.update(task, done=done)
    assert [*shown[-1].renderables[0].columns[1].cells] == [state]
