"""How torch computes for the time of a `with` block: its threads, determinism, and the precision of products.

The numbers of a model are not concerned: weights, moments, norms and the prior stay in the model's own type, as under
`torch.autocast`. Processors and GPUs with units for bfloat16 are faster with it (`benchmarks/step.py`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

_PRODUCTS = ContextVar("products", default="full")


def multiplied_in() -> str:
    """`full`, which is the model's own type, or `bfloat16`."""
    return _PRODUCTS.get()


class LinearInBfloat16(TorchFunctionMode):
    """`torch.nn.functional.linear` inside any module as `layers.linear` in bfloat16; all else keeps its precision.

    `torch.backends.mkldnn.matmul.fp32_precision` would do without it, but has no effect on many processors.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (_linear_in_bfloat16 if func is linear else func)(*args, **kwargs or {})


def _linear_in_bfloat16(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y = linear(input.bfloat16(), weight.bfloat16()).to(input.dtype)
    return y if bias is None else y + bias


@contextmanager
def computing(*, threads: int = 0, deterministic: bool = False, products: str = "full") -> Iterator[None]:
    """Threads (0: as they are), determinism and the precision of products inside a `with`; then as before.

    >>> with computing(products="bfloat16"):
    ...     multiplied_in()
    'bfloat16'
    """
    before, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    if threads:
        torch.set_num_threads(threads)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    token = _PRODUCTS.set(products)
    try:
        yield
    finally:
        _PRODUCTS.reset(token)
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(strict)
