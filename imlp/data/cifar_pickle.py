"""The pickles of CIFAR's python version, read without running any program that a pickle may hold.

The unpickler knows NumPy arrays, bytes, strings, numbers, lists and dicts, and refuses everything else by name.
(torchvision's reader, which the tests compare this one with, unpickles without such a limit, and needs torch.)
"""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from imlp.errors import DataError

AGAIN = "fetch it again: data fetch, or download and unpack the archive once more"

_RECONSTRUCT = np.zeros(0).__reduce__()[0]  # its module is called numpy.core or numpy._core, as the version has it


def _latin1(text: str, encoding: str) -> bytes:
    """How protocol 2 spells bytes: `_codecs.encode(text, "latin1")`, and with no other codec."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it asks for the codec {encoding!r}, which no batch of images needs")
    return text.encode("latin1")


def _dtype(code: str, align: int = 0, copy: int = 0) -> np.dtype:
    """Python 2 wrote the flags as 0 and 1, which newer versions of NumPy warn about."""
    return np.dtype(code, align=bool(align), copy=bool(copy))


class _Unpickler(pickle.Unpickler):
    """Admits what a CIFAR batch is made of; any other name in a pickle is a program that somebody wants run."""

    ADMITTED: Mapping[tuple[str, str], Any] = MappingProxyType(
        {
            ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
            ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): _dtype,
            ("_codecs", "encode"): _latin1,
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch of images needs")
        return self.ADMITTED[module, name]


def unpickle(content: bytes, where: Path) -> dict[str, Any]:
    """The dict in a CIFAR pickle, with its keys as text.

    >>> unpickle(pickle.dumps({b"labels": [6, 9]}), Path("data_batch_1"))
    {'labels': [6, 9]}
    """
    try:
        value = _Unpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can fail in any way; none of them is worth more than its reason
        raise DataError(f"{where} is refused or damaged: {str(error) or type(error).__name__}", AGAIN) from error
    if not isinstance(value, dict):
        raise DataError(f"{where} holds a {type(value).__name__}, not a dict", AGAIN)
    return {_text(key): _text(entry) for key, entry in value.items()}


def _text(value: Any) -> Any:
    """Text from the bytes that other writers of these files use for it."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if isinstance(value, list):
        return [_text(entry) for entry in value]
    return value
