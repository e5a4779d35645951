"""Shared by all tests. `IMLP_REQUIRE=accel,g++` turns the skips of those names into failures, and CI sets it."""

import os
import shutil

import pytest
from hypothesis import settings

settings.register_profile("imlp", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("imlp")


def _missing(name: str) -> str | None:
    """Why tests that need `name` cannot run here, or None."""
    try:
        match name:
            case "accel":
                import torch
            case "cupy":
                import cupy  # noqa: F401
            case "nvrtc":
                from cuda.bindings import nvrtc

                nvrtc.nvrtcVersion()
            case "onnx":
                import onnxscript  # noqa: F401
            case "tensorboard":
                import tensorboard  # noqa: F401
            case "g++":
                return None if shutil.which("g++") else "g++ is not installed"
            case "gpu":
                import torch

                return None if torch.cuda.is_available() else "torch sees no CUDA device"
    except Exception as error:
        return f"{name}: {error}"
    return None


def needs(name: str) -> None:
    """Skip what follows where `name` is missing; fail where `IMLP_REQUIRE` names it."""
    reason = _missing(name)
    if reason is None:
        return
    if name in os.environ.get("IMLP_REQUIRE", "").split(","):
        pytest.fail(f"IMLP_REQUIRE asks for {name}, but {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
