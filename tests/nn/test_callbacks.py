"""The callbacks, in the frameworks' own trainers."""

import subprocess
import sys

import pytest
import torch
from conftest import needs
from torch import nn

import imlp.nn
from imlp.errors import ModuleError

needs("accel")

IMAGES = torch.randn(32, 2, 6, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(32) % 3


class Both(nn.Module):
    """Prior and dense form, trained together."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        layers = nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 3, stride=2), nn.Flatten(), nn.Linear(8, 3)
        self.prior = nn.Sequential(*layers).to(dtype)
        self.model = imlp.nn.densify(self.prior, (2, 6, 6), init="random")

    def loss(self, x, y):
        x = x.to(next(self.parameters()).dtype)
        return sum(nn.functional.cross_entropy(network(x), y) for network in (self.prior, self.model))


def in_lightning(folder, epochs, callback, *, resume=False, dtype=torch.float32):
    """32 images in batches of 4, each optimizer step of 4 batches: 2 steps per epoch."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.both = Both(dtype)

        def training_step(self, batch, _):
            return self.both.loss(*batch)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    module, data = Module(), torch.utils.data.TensorDataset(IMAGES, LABELS)
    trainer = lightning.Trainer(
        max_epochs=epochs, accumulate_grad_batches=4, callbacks=[callback], accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(data, 4), ckpt_path=folder / "last.ckpt" if resume else None)
    trainer.save_checkpoint(folder / "last.ckpt")
    return module.both


def in_transformers(folder, epochs, callback, *, resume=False, dtype=torch.float32):
    import transformers

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.both = Both(dtype)

        def forward(self, x, labels):
            return {"loss": self.both.loss(x, labels)}

    arguments = transformers.TrainingArguments(
        folder, num_train_epochs=epochs, per_device_train_batch_size=4, gradient_accumulation_steps=4, use_cpu=True,
        report_to=[], save_strategy="epoch", lr_scheduler_type="constant", learning_rate=1e-2, disable_tqdm=True,
    )  # fmt: skip
    module, data = Module(), [{"x": x, "labels": y} for x, y in zip(IMAGES, LABELS, strict=True)]
    trainer = transformers.Trainer(module, arguments, train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=resume)
    return module.both


TRAINERS = {"lightning": in_lightning, "transformers": in_transformers}


def callback_of(framework, *arguments, **options):
    needs(framework)
    module = getattr(__import__(f"imlp.nn.{framework}").nn, framework)
    return module.InterpolationCallback(*arguments, model="both.model", prior="both.prior", **options)


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("framework", TRAINERS)
def test_once_per_optimizer_step_and_resumed_to_the_same_bits(framework, dtype, tmp_path):
    options = {"alpha": "decay:0.1:1", "steps": 8, "every": 3}  # a count that starts again would mix at other steps
    callback, train = callback_of(framework, **options), TRAINERS[framework]
    whole = train(tmp_path / "whole", 4, callback, dtype=dtype)
    assert callback.knob.calls == 8
    assert callback.knob.get_last_alpha() == {"0": 0.05, "2": 0.05}
    train(tmp_path / "part", 2, callback, dtype=dtype)  # another run: it begins again
    resumed = callback_of(framework, **options)
    part = train(tmp_path / "part", 4, resumed, resume=True, dtype=dtype)
    assert resumed.knob.calls == 8
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, part.state_dict()[name]), name
    assert bool(resumed.knob.state_dict()["remainders"]) == (dtype == torch.bfloat16)


@pytest.mark.filterwarnings("ignore")
def test_of_two_optimizers_in_lightning_the_last_one_mixes():
    needs("lightning")
    import lightning

    from imlp.nn.lightning import InterpolationCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization, self.both = False, Both(torch.float64)

        def training_step(self, batch, _):
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.both.loss(*batch))
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD(network.parameters(), lr=0.1) for network in (self.both.prior, self.both.model)]

    module, callback = Module(), InterpolationCallback(1, model="both.model", prior="both.prior")
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=[callback], accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(IMAGES, LABELS), 16))
    assert callback.knob.calls == 2
    meter = imlp.nn.bias_meter(module.both.model, module.both.prior)
    assert [row["distance"] for row in meter.values()] == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_without_the_knobs_state_is_refused(tmp_path):
    callback = callback_of("transformers", 0.1)
    in_transformers(tmp_path, 1, callback)
    assert callback.knob.alpha == 0.1
    (tmp_path / "checkpoint-2" / "interpolation.safetensors").unlink()
    with pytest.raises(ModuleError, match=r"the knob's state is missing: .*checkpoint-2"):
        in_transformers(tmp_path, 2, callback_of("transformers", 0.1), resume=True)


@pytest.mark.filterwarnings("ignore")
def test_the_knobs_state_of_another_run_is_refused(tmp_path):
    """Both have a checkpoint-2: that in output_dir is another run's."""
    in_transformers(tmp_path / "one", 1, callback_of("transformers", 0.1))
    in_transformers(tmp_path / "other", 1, callback_of("transformers", 0.9))
    with pytest.raises(ModuleError, match=r"checkpoint-2.*is not from the run that is resumed"):
        in_transformers(
            tmp_path / "other", 2, callback_of("transformers", 0.1), resume=str(tmp_path / "one/checkpoint-2")
        )


def test_they_are_imported_only_when_asked_for():
    code = "import sys, imlp.nn; assert not {'lightning', 'transformers', 'imlp.nn.lightning'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
