"""The CUDA path of `interpolate`: `kernels.cu` launched by CuPy on torch's current stream, over DLPack, with no copies.

Chosen when `W` is on CUDA, is float32 or float64, and CuPy works with the device; torch views otherwise. CuPy is
imported only then, or by `describe`. One launch per lane, with keep and alpha as plain numbers: nothing waits for the
device.
"""

from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imlp.accel import rows
from imlp.accel.chain import split_at_core
from imlp.errors import install_hint
from imlp.spec import Conv, Local, Patchify, Shared, Spec, Transpose

SOURCE = Path(__file__).with_name("kernels.cu")
THREADS = 256
SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
PATCHIFY, UNPATCHIFY, TRANSPOSE = 1, 2, 3


def usable(dense: Tensor) -> bool:
    """Whether `interpolate` takes the fused kernel for this tensor, where the diagonals are known."""
    return dense.is_cuda and dense.dtype in SUFFIX and status()[0]


@cache
def status() -> tuple[bool, str]:
    if not torch.cuda.is_available():
        return False, "torch sees no CUDA device"
    major = (torch.version.cuda or "12").split(".")[0]
    remedy = install_hint(f"cuda{major}") if major in ("12", "13") else f"pip install cupy-cuda{major}x"
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        _module()
    except ModuleNotFoundError:
        return False, f"CuPy is not installed: {remedy}"
    except Exception as error:  # a missing or mismatched CUDA library shows in many ways; torch's path works still
        return False, f"CuPy does not work here ({type(error).__name__}: {str(error).splitlines()[0]}): {remedy}"
    return True, f"CuPy {cupy.__version__} works with the device"


def describe() -> dict[str, str]:
    """Which path `interpolate` takes here, and why.

    >>> sorted(describe())
    ['path', 'torch', 'why']
    """
    (fused, on_cuda), (compiled, on_cpu) = status(), rows.status()
    paths = ["fused kernels on CUDA"] * fused + ["C for convolutions on the CPU"] * compiled
    path = f"{', '.join(paths)}, torch views elsewhere" if paths else "torch views"
    return {
        "path": path,
        "why": f"{on_cuda}; {on_cpu}",
        "torch": f"{torch.__version__} (CUDA build {torch.version.cuda or 'none'})",
    }


def interpolate(dense: Tensor, spec: Spec, weight: Tensor, keep: float, alpha: float) -> None:
    """`W <- keep W + alpha W_P` for one contiguous matrix on CUDA."""
    import cupy

    name, numbers = geometry(spec)
    kernel = _module().get_function(f"{name}_{SUFFIX[dense.dtype]}")
    m_out, m_in = spec.matrix_shape
    grid = (-(-m_in // THREADS), min(m_out, 65535))
    scalar = cupy.float32 if dense.dtype == torch.float32 else cupy.float64
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream(dense.device).cuda_stream, dense.device.index)
    with cupy.cuda.Device(dense.device.index), stream:
        on_device = _on_device(numbers, dense.device.index)
        arrays = cupy.from_dlpack(dense.detach()), cupy.from_dlpack(weight.detach())
        kernel(grid, (THREADS,), (*arrays, scalar(keep), scalar(alpha), on_device))
    torch.autograd.graph.increment_version(dense)  # so that autograd notices the write


@lru_cache(maxsize=1024)
def geometry(spec: Spec) -> tuple[str, tuple[int, ...]]:
    """The kernel's name and the whole numbers that it reads, in the order of `kernels.cu`.

    >>> from imlp.spec import Chain
    >>> geometry(Chain(Transpose(16, 128), Shared(128, 16, 16)))
    ('shared_layer', (2048, 2048, 1, 0, 16, 16, 3, 16, 128, 0, 0))
    """
    before, core, after = split_at_core(spec)
    sizes: tuple[int, ...]
    match core:
        case Shared():
            name, sizes = "shared_layer", (core.out_features, core.in_features)
        case Conv() | Local():
            (c_in, *image), (c_out, *output), g = core.in_shape, core.out_shape, core.groups
            steps = (*core.kernel, *core.stride, *core.padding, *core.dilation)
            name = "local_layer" if isinstance(core, Local) else "convolution"
            sizes = (*image, *output, *steps, c_out // g, c_in // g)
        case _:
            name, sizes, before, after = "permutation", (), (core, *after), ()
    stages = [number for part in before for number in _stage(part)]
    stages += [number for part in reversed(after) for number in _stage(part, inverse=True)]
    return name, (*spec.matrix_shape, len(before), len(after), *sizes, *stages)


def _stage(part: Spec, *, inverse: bool = False) -> tuple[int, ...]:
    """The numbers of a permutation; the inverse is the way back, from a row of `W` to a row of the core."""
    if isinstance(part, Patchify):
        return UNPATCHIFY if inverse else PATCHIFY, part.channels, part.height, part.width, part.patch
    assert isinstance(part, Transpose)
    return TRANSPOSE, *((part.cols, part.rows) if inverse else (part.rows, part.cols)), 0, 0


@cache
def _module() -> Any:
    import cupy

    module = cupy.RawModule(code=SOURCE.read_text(), options=("--std=c++17",))
    module.compile()
    return module


@lru_cache(maxsize=1024)
def _on_device(numbers: tuple[int, ...], device: int) -> Any:
    import cupy

    return cupy.asarray(numbers, dtype=cupy.int32)
