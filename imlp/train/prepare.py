"""What comes before a run: its data, a check of its network against the reference, an estimate of what it costs."""

import time
from pathlib import Path
from typing import Any

from imlp import data as data_sets
from imlp import machine
from imlp.data import Dataset, ProgressCallback, silent
from imlp.errors import RunError, program
from imlp.look import verify
from imlp.train.config import Config
from imlp.train.loop import Trainer

TRAINED_WITH = ("bias", "apply", "gradients", "interpolate", "project")  # `verify` checks the others too
OVERHEAD = 1.1  # evaluation and checkpoints take about a tenth of the time of the steps


def load_data(config: Config, progress: ProgressCallback = silent) -> Dataset:
    """The data set of a configuration: its name, its sizes, and the images that its network takes."""
    data = data_sets.load_data_set(
        config.data,
        train_size=config.train_size,
        test_size=config.test_size,
        validation=config.validation,
        image=dict(config.options).get("image"),
        labels=config.labels,
        progress=progress,
    )
    return data.hold_out(config.held_out, seed=config.seed) if config.held_out else data


def default_folder(config: Config) -> Path:
    """Where `train` puts a run that was given no folder."""
    return Path("runs") / f"{config.network_name}-{Path(config.data).name}-{config.identity}"


def check_network(trainer: Trainer, progress: ProgressCallback = silent) -> str:
    """Compare every interpolated layer with the reference, each geometry once: a run on a wrong layer is worthless.

    The result is a line to print; it is empty where the reference itself computes, or no layer is ever mixed.
    """
    if trainer.config.backend != "accel" or not trainer.network.interpolated:
        return ""
    progress("checking the network against the reference", 0, None)
    specs = {trainer.network.layer(name).spec for name in trainer.network.interpolated}
    begin, dtype = time.monotonic(), trainer.config.dtype
    options: dict[str, Any] = {"dtype": dtype, "device": trainer.device, "verbs": TRAINED_WITH}
    config = trainer.config
    with trainer.backend.computing(**config.machine_settings):
        error = max(max(verify.layer_errors(spec, **options).values()) for spec in specs)
        network: Any = trainer.network
        if network.is_module:  # each layer of a PyTorch model against its matrix
            error = max(error, network.largest_error())
    if error > verify.TOLERANCE[dtype]:
        raise RunError(f"accel differs from the reference by {error:.1e} on this machine", f"see: {program()} verify")
    about = f"{len(specs)} layers, error at most {error:.0e}"
    return f"checked against the reference: {about} ({time.monotonic() - begin:.1f} s)"


def estimate(trainer: Trainer) -> dict[str, Any]:
    """Parameters, memory, and the time that a few real steps predict: what `train --estimate --json` prints."""
    config, network = trainer.config, trainer.network
    need, free = trainer.memory().total, machine.free_memory(trainer.device)
    step, steps = trainer.seconds_a_step(), config.epochs * trainer.steps
    return {
        "prior_parameters": network.n_parameters(dense=False), "parameters_a_lane": network.n_parameters(dense=True),
        "lanes": len(config.lanes), "device": trainer.device, "memory_bytes": need, "free_bytes": free,
        "steps": steps, "seconds_a_step": step,
        "seconds": OVERHEAD * step * steps,
    }  # fmt: skip
