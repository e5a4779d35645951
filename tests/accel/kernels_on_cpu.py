"""`kernels.cu` on the CPU: compiled by g++ behind host_shim.h, called on NumPy arrays."""

import ctypes
import hashlib
import subprocess
from pathlib import Path

import numpy as np

from imlp.accel import kernels
from imlp.spec import Spec

TYPES = {"f32": (np.float32, ctypes.c_float, "float"), "f64": (np.float64, ctypes.c_double, "double")}
GUARD = 123.25


def compile_kernels(source: str, folder: Path) -> ctypes.CDLL:
    """A shared library with one `launch_...` function per kernel of the source."""
    stem = folder / hashlib.sha256(source.encode()).hexdigest()[:16]
    launches = [
        f"LAUNCH({name}_{suffix}, {TYPES[suffix][2]})"
        for name in ("permutation", "shared_layer", "convolution", "local_layer")
        for suffix in TYPES
    ]
    shim = Path(__file__).with_name("host_shim.h").read_text()
    stem.with_suffix(".cpp").write_text("\n".join([shim, source, *launches]))
    flags = ["-O1", "-shared", "-fPIC", "-Wall", "-Werror"]
    command = ["g++", *flags, stem.with_suffix(".cpp"), "-o", stem.with_suffix(".so")]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(stem.with_suffix(".so")))


def interpolate(
    library: ctypes.CDLL,
    dense: np.ndarray,
    spec: Spec,
    weight: np.ndarray | None,
    keep: float,
    alpha: float,
    suffix: str,
) -> np.ndarray:
    """Run the kernel on a copy of `dense` with guard values around it, on a grid that does not divide it evenly."""
    dtype, c_type, _ = TYPES[suffix]
    inside, around = _guarded(dense, dtype)
    w, _ = _guarded(np.ones(1) if weight is None else weight, dtype)
    name, numbers = kernels.geometry(spec)
    geometry = np.array(numbers, np.int32)
    launch = getattr(library, f"launch_{name}_{suffix}")
    launch.argtypes = [ctypes.c_int] * 3 + [ctypes.c_void_p] * 2 + [c_type] * 2 + [ctypes.c_void_p]
    launch(2, 3, 5, inside.ctypes.data, w.ctypes.data, keep, alpha, geometry.ctypes.data)
    assert all((guard == GUARD).all() for guard in around), "the kernel wrote outside of W"
    return inside.reshape(dense.shape)


def _guarded(array: np.ndarray, dtype: type) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """A flat copy between two stretches of guard values, wide enough to catch a write out of bounds."""
    margin = 64 + 4 * max(array.shape)
    whole = np.full(array.size + 2 * margin, GUARD, dtype)
    whole[margin:-margin] = array.ravel()
    return whole[margin:-margin], (whole[:margin], whole[-margin:])
