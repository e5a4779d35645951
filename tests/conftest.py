"""Shared by all tests. `IMLP_REQUIRE=accel,g++` turns skips for lack of these into failures; CI sets it."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

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
            case "optuna":
                import optuna  # noqa: F401
            case "lightning":
                import lightning  # noqa: F401
            case "transformers":
                import accelerate  # noqa: F401
                import transformers  # noqa: F401
            case "timm":
                import timm  # noqa: F401
            case "tensorboard":
                import tensorboard  # noqa: F401
            case "sphinx":
                import furo  # noqa: F401
                import myst_parser  # noqa: F401
            case "ray":
                import ray  # noqa: F401
            case "g++":
                return None if shutil.which("g++") else "g++ is not installed"
            case "cc":
                return None if shutil.which("cc") else "there is no C compiler (cc)"
            case "chromium":
                import playwright  # noqa: F401

                return None if _chromium() else "neither chromium nor google-chrome is installed"
            case "gpu":
                import torch

                return None if torch.cuda.is_available() else "torch sees no CUDA device"
    except Exception as error:
        return f"{name}: {error}"
    return None


def needs(name: str) -> None:
    """Skip the test if `name` is missing, or fail if `IMLP_REQUIRE` names it."""
    reason = _missing(name)
    if reason is None:
        return
    if name in os.environ.get("IMLP_REQUIRE", "").split(","):
        pytest.fail(f"IMLP_REQUIRE asks for {name}, but {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium, headless, driven by playwright."""
    needs("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-background-networking"]
        started = playwright.chromium.launch(executable_path=_chromium(), args=arguments)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A new page without network access; a test fails if the page prints an error to the console."""
    context = browser.new_context(offline=True)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else errors.append(r.url))
    yield opened
    context.close()
    assert not errors
