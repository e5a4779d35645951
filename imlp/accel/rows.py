"""The CPU's path of `interpolate` and `pull` for `Conv` and `Local`: `rows.c`, where there is a C compiler.

Views go over `W` once to scale it and again for each diagonal; by then its rows have left the cache. In C each row is
scaled and filled at once. The file is compiled when a matrix of some size first asks for it, which takes half a second,
and kept in the user's cache for later processes. Its threads are torch's where both load GNU's OpenMP, as on Linux they
do.
"""

import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imlp.errors import FileError
from imlp.files import cache_folder, make_folder, whole_file
from imlp.spec import Conv, Local, Spec

SOURCE = Path(__file__).with_name("rows.c")
TYPES = {torch.float32: ("f32", "float", ctypes.c_float), torch.float64: ("f64", "double", ctypes.c_double)}
FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
STALE = 600  # seconds after which no process can still be compiling
LEAST = 2**18  # numbers in `W`; views are done with fewer before it is compiled


def usable(dense: Tensor, spec: Spec) -> bool:
    fits = type(spec) in (Conv, Local) and dense.device.type == "cpu" and dense.dtype in TYPES
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
    except (OSError, subprocess.SubprocessError, FileError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return False, f"{compiler} did not compile rows.c ({lines[0] if lines else type(error).__name__})"
    return True, f"{compiler} compiled rows.c"


def interpolate(dense: Tensor, spec: Spec, weight: Tensor, keep: float, alpha: float) -> None:
    """`W <- keep W + alpha W_P` for one contiguous matrix on the CPU."""
    suffix, _, number = TYPES[dense.dtype]
    function = getattr(_library(), f"window_{suffix}")
    geometry = _geometry(spec, weight.stride())
    threads = ctypes.c_int(torch.get_num_threads())
    where = ctypes.c_void_p(geometry.ctypes.data)
    function(_pointer(dense), _pointer(weight), number(keep), number(alpha), where, threads)
    torch.autograd.graph.increment_version(dense)  # so that autograd notices the write


def pull(dense: Tensor, spec: Any, locality: float, sharing: float) -> None:
    """`W <- W - locality (W - M * W) - sharing (M * W - Pi(W))` for one contiguous matrix on the CPU."""
    suffix, _, number = TYPES[dense.dtype]
    is_shared, threads, size = isinstance(spec, Conv), torch.get_num_threads(), prod(spec.weight_shape[-3:])
    if is_shared:  # its input channels side by side, as `rows.c` reads them fastest
        out, channels, *kernel = spec.weight_shape
        weight = dense.new_empty(out, *kernel, channels).permute(0, 3, 1, 2)
    else:  # nothing is shared: Pi(W) = M * W
        weight, sharing = dense.new_zeros(()).expand(spec.weight_shape), 0.0
    sums = torch.empty(threads, size + prod(spec.kernel), dtype=torch.float64)
    kept, geometry = dense.new_empty(threads, size), _geometry(spec, weight.stride())
    numbers = (number(1 - locality), number(1 - sharing), number(sharing))
    rooms = (_pointer(sums), _pointer(kept), ctypes.c_void_p(geometry.ctypes.data))
    function = getattr(_library(), f"pull_{suffix}")
    function(_pointer(dense), _pointer(weight), ctypes.c_int(is_shared), *numbers, *rooms, ctypes.c_int(threads))
    torch.autograd.graph.increment_version(dense)


def _pointer(array: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data_ptr())


@cache
def _library() -> ctypes.CDLL:
    source = SOURCE.read_text()
    text = "\n".join(source.replace("REAL", real).replace("SUFFIX", suffix) for suffix, real, _ in TYPES.values())
    folder = _cache()
    try:
        if folder is not None:
            return _kept(text, folder / f"rows-{_key(text)}.so")
    except (OSError, FileError):
        pass  # the disk is full, or may not hold programs
    with tempfile.TemporaryDirectory(prefix="imlp-") as temporary:
        return ctypes.CDLL(str(_compiled(text, Path(temporary) / "rows.so")))


def _kept(text: str, library: Path) -> ctypes.CDLL:
    """The library in the cache, compiled unless it is there; it appears whole, however many processes make it."""
    if _is_ours(library, stat.S_ISREG):
        try:
            return ctypes.CDLL(str(library))
        except OSError:
            pass  # damaged: it is made again
    with whole_file(library) as partial:
        _compiled(text, partial)
    for left in (path for pattern in (".rows-*.part", "cc*") for path in library.parent.glob(pattern)):
        if time.time() - left.stat().st_mtime > STALE:  # of a process that was killed while it compiled
            left.unlink(missing_ok=True)
    return ctypes.CDLL(str(library))


def _compiled(text: str, library: Path) -> Path:
    """Compile, with the compiler's own temporary files beside the library."""
    _run([*FLAGS, "-x", "c", "-", "-o", str(library)], text, TMPDIR=str(library.parent))
    return library


def _key(text: str) -> str:
    """A hash of all that determines the compiled code: source, flags, compiler and processor."""
    parts = (text, *FLAGS, _run(["--version"]), _run(["-march=native", "-E", "-dM", "-x", "c", "-"]))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _run(arguments: list[str], text: str = "", **environment: str) -> str:
    options: dict[str, Any] = {"text": True, "capture_output": True, "check": True, "timeout": 60}
    return str(subprocess.run(["cc", *arguments], input=text, env={**os.environ, **environment}, **options).stdout)


def _cache() -> Path | None:
    """A folder that this user alone can look into, for programs are loaded from it; None where there can be none."""
    try:
        folder = cache_folder() / "compiled"
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        private = folder.lstat().st_mode & 0o077 == 0
    except (OSError, FileError):
        return None
    return folder if private and _is_ours(folder, stat.S_ISDIR) and _is_ours(folder.parent, stat.S_ISDIR) else None


def _is_ours(path: Path, kind: Callable[[int], bool]) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return kind(found.st_mode) and found.st_uid == os.geteuid()


@lru_cache(maxsize=1024)
def _geometry(spec: Any, steps: tuple[int, ...]) -> np.ndarray[Any, Any]:
    shapes = (*spec.in_shape, *spec.out_shape, spec.groups)
    kernel = (*spec.kernel, *spec.stride, *spec.padding, *spec.dilation)
    return np.array([*shapes, *kernel, *(steps if len(steps) == 5 else (0, *steps))], np.int64)
