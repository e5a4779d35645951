"""In which precision the matrices of dense layers are multiplied, for the time of a `with` block.

The numbers of a model are not concerned: weights, moments, norms and the prior stay in the model's own type, as under
`torch.autocast`. Processors and GPUs with units for bfloat16 are faster with it (`benchmarks/step.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PRODUCTS = ContextVar("products", default="full")


def multiplied_in() -> str:
    """`full`, which is the model's own type, or `bfloat16`."""
    return _PRODUCTS.get()


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Multiply in `full` precision or in `bfloat16` inside the block.

    >>> with products_in("bfloat16"):
    ...     multiplied_in()
    'bfloat16'
    """
    token = _PRODUCTS.set(precision)
    try:
        yield
    finally:
        _PRODUCTS.reset(token)
