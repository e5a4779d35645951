"""The knob as a callback of Hugging Face's Trainer, which needs `pip install transformers accelerate`."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import safetensors.torch
from transformers import TrainerCallback

from imlp.errors import ModuleError
from imlp.files import write_whole
from imlp.nn.interpolation import KnobCallback

NAME = "interpolation.safetensors"
RUN = "imlp.nn.transformers"  # under which the Trainer's own state has the number of the run


class InterpolationCallback(KnobCallback, TrainerCallback):
    """Mixes once per step of the optimizer.

    `model` and `prior` are the names of two parts of the model that is trained, or modules; everything else is as for
    `imlp.nn.Interpolation`. The knob's state is a file in each checkpoint of the Trainer, so that a resumed run ends
    with the same bits.

    >>> callback = InterpolationCallback(alpha=0.1, model="model", prior="prior", every=2)
    >>> # transformers.Trainer(model, args, train_dataset=images, callbacks=[callback]).train()
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step:
            self.load_state_dict(_read(_file(args, state), state.stateful_callbacks.get(RUN)))
        elif self.knob is not None:  # of another run, and not a state that was loaded by hand
            self.load_state_dict({})
        state.stateful_callbacks[RUN] = {"run": uuid4().hex}
        self._begin(kwargs["model"], kwargs["optimizer"])

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            knob = self.state_dict()
            tensors = {name: tensor.contiguous() for name, tensor in knob.pop("remainders").items()}
            with write_whole(_file(args, state)) as file:
                metadata = {"knob": json.dumps(knob), "run": json.dumps(state.stateful_callbacks[RUN])}
                file.write(safetensors.torch.save(tensors, metadata))


def _file(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / NAME


def _read(path: Path, run: Any) -> dict[str, Any]:
    """The knob's state beside a checkpoint; not that of another run, whose folder has one of the same name."""
    if not path.exists():
        raise ModuleError(f"the knob's state is missing: {path}", "resume from a checkpoint in args.output_dir")
    with safetensors.safe_open(path, framework="pt") as file:
        remainders = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    if json.loads(metadata["run"]) != run:
        problem = f"{path} is not from the run that is resumed"
        raise ModuleError(problem, "resume from a checkpoint in args.output_dir")
    return json.loads(metadata["knob"]) | {"remainders": remainders}
