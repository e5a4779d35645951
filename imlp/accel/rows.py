"""The CPU's path of `interpolate` for a convolution: `rows.c`, where there is a C compiler.

Views go over `W` once to scale it and again for each diagonal; by then its rows have left the cache. In C each row is
scaled and filled at once. The file is compiled when a matrix of some size first asks for it, which takes half a second,
into a folder that is gone when it is loaded. Its threads are torch's where both load GNU's OpenMP, as on Linux they do.
"""

import ctypes
import shutil
import subprocess
import sys
import tempfile
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imlp.spec import Conv, Spec

SOURCE = Path(__file__).with_name("rows.c")
TYPES = {torch.float32: ("f32", "float", ctypes.c_float), torch.float64: ("f64", "double", ctypes.c_double)}
FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
LEAST = 2**18  # numbers in `W`; views are done with fewer before it is compiled


def usable(dense: Tensor, spec: Spec) -> bool:
    """Whether `interpolate` takes this path."""
    fits = isinstance(spec, Conv) and dense.device.type == "cpu" and dense.dtype in TYPES
    return fits and spec.matrix_shape[0] * spec.matrix_shape[1] >= LEAST and status()[0]


@cache
def status() -> tuple[bool, str]:
    """Whether the file could be compiled, and by what or why not."""
    if sys.platform != "linux":
        return False, "C is used on Linux alone"
    compiler = shutil.which("cc")
    if compiler is None:
        return False, "there is no C compiler (cc)"
    try:
        _library()
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return False, f"{compiler} did not compile rows.c ({said[0] if said else type(error).__name__})"
    return True, f"{compiler} compiled rows.c"


def interpolate(dense: Tensor, spec: Spec, weight: Tensor, keep: float, alpha: float) -> None:
    """`W <- keep W + alpha W_P` for one contiguous matrix on the CPU."""
    suffix, _, number = TYPES[dense.dtype]
    function = getattr(_library(), f"convolution_{suffix}")
    geometry = _geometry(spec, weight.stride())
    threads = ctypes.c_int(torch.get_num_threads())
    pointers = [ctypes.c_void_p(address) for address in (dense.data_ptr(), weight.data_ptr(), geometry.ctypes.data)]
    function(*pointers[:2], number(keep), number(alpha), pointers[2], threads)
    torch.autograd.graph.increment_version(dense)  # so that autograd notices the write


@cache
def _library() -> ctypes.CDLL:
    """The function of the file in each type."""
    source = SOURCE.read_text()
    texts = [source.replace("REAL", real).replace("SUFFIX", suffix) for suffix, real, _ in TYPES.values()]
    with tempfile.TemporaryDirectory(prefix="imlp-") as folder:
        library = Path(folder) / "rows.so"
        command = ["cc", *FLAGS, "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input="\n".join(texts), text=True, capture_output=True, check=True, timeout=60)
        return ctypes.CDLL(str(library))


@lru_cache(maxsize=1024)
def _geometry(spec: Any, steps: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The numbers of a `Conv` that `rows.c` reads, in its order."""
    shapes = (*spec.in_shape, *spec.out_shape, spec.groups)
    kernel = (*spec.kernels, *spec.strides, *spec.paddings, *spec.dilations)
    return np.array([*shapes, *kernel, *steps], np.int64)
