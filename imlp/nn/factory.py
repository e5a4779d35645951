"""Modules that users name from outside the package: `torchvision.models:resnet18`, `timm:resnet18`, `mine.py:net`."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn
from torchvision import models
from torchvision.models import list_models

from imlp.errors import ImlpError, ModuleError, OutsideError, in_a_line
from imlp.plugins import imported
from imlp.spec import Shape


def make(
    reference: str,
    *,
    seed: int,
    image: Shape | None = None,
    classes: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The module that a function from outside makes, drawn from `seed`; torch's own random numbers are left alone.

    `options` are given to the function, and the sizes of images and classes where it takes them: as `image`, and as
    `classes` or `num_classes`.
    """
    value = _named(reference)
    if not callable(value) or isinstance(value, nn.Module):
        kind = type(value).__name__
        raise ModuleError(f"{reference} is a {kind}", "name a function that makes a torch.nn.Module, or its class")
    given = {**_sizes(value, image, classes), **(options or {})}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = value(**given)
        except (ImlpError, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever the user's code raises
            shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
            problem = f"{reference} cannot be made with ({shown}): {in_a_line(error)}"
            raise ModuleError(problem, "give what it needs: --options NAME=VALUE") from error
    if not isinstance(module, nn.Module):
        remedy = "let it make a torch.nn.Module; or take image and classes, and make an imlp.networks.Network"
        raise ModuleError(f"{reference} makes a {type(module).__name__}", remedy)
    return module


def _named(reference: str) -> Any:
    """The object of this name; `timm:NAME` is a model of timm's."""
    place, _, name = reference.rpartition(":")
    if place == "timm":
        return partial(imported("timm:create_model").value, name)
    if not place and (near := get_close_matches(name, list_models(module=models), n=1)):
        remedy = f"did you mean torchvision.models:{near[0]}? write FILE.py:NAME or package.module:NAME"
        raise OutsideError(f"{reference!r:.60} names no object", remedy)
    return imported(reference).value


def _sizes(value: Any, image: Shape | None, classes: int | None) -> dict[str, Any]:
    """What the function takes of the sizes that are known."""
    try:
        parameters = signature(value).parameters
    except (TypeError, ValueError):  # compiled
        return {}
    any_name = any(parameter.kind == Parameter.VAR_KEYWORD for parameter in parameters.values())
    name = "classes" if "classes" in parameters else "num_classes"
    sizes: dict[str, Any] = {"image": image if "image" in parameters else None}
    sizes |= {name: classes if name in parameters or any_name else None}
    return {name: size for name, size in sizes.items() if size is not None}
