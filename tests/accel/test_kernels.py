"""The CUDA kernels, tested in three ways: on the CPU with g++, with NVRTC, and (marked gpu) on a device."""

import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import needs
from hypothesis import given
from strategies import PAPER, SPECS, specs

needs("accel")

import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import kernels_on_cpu  # noqa: E402
from verb_checks import Numbers, assert_same  # noqa: E402

from imlp import accel, reference  # noqa: E402
from imlp.accel import kernels  # noqa: E402
from imlp.spec import Conv, Spec  # noqa: E402

SOURCE = kernels.SOURCE.read_text()


def check_on_host(library, spec: Spec, suffix: str = "f64") -> None:
    """Interpolation, injection and alpha 1 against the reference."""
    numbers = Numbers(spec)
    tolerance = {"f64": 1e-12, "f32": 2e-5}[suffix]
    for keep, alpha, mode in ((0.7, 0.3, "interpolate"), (0.0, 1.0, "interpolate"), (1.0, 0.3, "add")):
        fast = kernels_on_cpu.interpolate(library, numbers.dense, spec, numbers.weight, keep, alpha, suffix)
        slow = reference.interpolate(numbers.dense, spec, numbers.weight, alpha, add=mode == "add")
        np.testing.assert_allclose(fast, slow, rtol=0, atol=tolerance * max(1, np.abs(slow).max()))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    needs("g++")
    return kernels_on_cpu.compile_kernels(SOURCE, tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("suffix", kernels_on_cpu.TYPES)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_kernel_equals_the_reference(library, spec, suffix):
    check_on_host(library, spec, suffix)


@pytest.mark.parametrize("spec", PAPER, ids=str)
def test_the_kernel_equals_the_reference_at_the_papers_sizes(library, spec):
    check_on_host(library, spec, "f32")


@given(spec=specs)
def test_the_kernel_equals_the_reference_on_any_geometry(library, spec):
    check_on_host(library, spec)


def test_alpha_one_clears_what_is_not_finite(library):
    spec = SPECS[0]
    numbers = Numbers(spec)
    broken = np.full(spec.matrix_shape, np.nan)
    fast = kernels_on_cpu.interpolate(library, broken, spec, numbers.weight, 0.0, 1.0, "f64")
    np.testing.assert_array_equal(fast, reference.matrix(spec, numbers.weight).toarray())


KERNEL_MUTANTS = {
    "a shifted tap": ("t_y = v + p_y - y * s_y", "t_y = v + p_y - y * s_y + 1"),
    "a forgotten lower bound": ("t_y >= 0 && ", ""),
    "a forgotten upper bound": ("t_y / d_y < k_y &&", ""),
    "a forgotten dilation": ("t_x % d_x == 0 && ", ""),
    "a forgotten group": ("o / o_group == c / c_group", "o / o_group + c / c_group >= 0"),
    "swapped axes": ("y = i / w_out % h_out, x = i % w_out", "x = i / w_out % h_out, y = i % w_out"),
    "swapped blocks": ("i / C_out == j / C_in", "i / C_in == j / C_out"),
    "a transposed weight": ("w[i % C_out * C_in + j % C_in]", "w[i % C_out + j % C_in * C_out]"),
    "a transpose the wrong way": ("index % b * a + index / b", "index % a * b + index / a"),
    "patches down instead of across": ("patch = Y / d * (c / d) + X / d", "patch = X / d * (b / d) + Y / d"),
    "the channel outside the patch": ("((patch * a + channel) * d", "((channel * (b / d * (c / d)) + patch) * d"),
    "a patch not undone": ("index = (channel * b + Y) * c + X", "index = (channel * b + X) * c + Y"),
    "a forgotten scale": ("keep * *entry", "*entry"),
    "a forgotten alpha": ("alpha * w[0]", "w[0]"),
    "the kernel of another place": ("(y * w_out + x) * (m_out", "(x * w_out + y) * (m_out"),
    "one kernel for all places": ("OWN ? ", "false && OWN ? "),
    "a skipped column": ("column < m_in;", "column < m_in - 1;"),
    "a row too many": ("row < m_out;", "row <= m_out;"),
}


@pytest.mark.parametrize("mutant", KERNEL_MUTANTS)
def test_a_broken_kernel_is_noticed(mutant, tmp_path):
    """The tests above can fail: each of these mistakes makes one of them fail."""
    needs("g++")
    right, wrong = KERNEL_MUTANTS[mutant]
    assert SOURCE.count(right) == 1
    library = kernels_on_cpu.compile_kernels(SOURCE.replace(right, wrong), tmp_path)

    def survives(spec: Spec) -> bool:
        try:
            check_on_host(library, spec)
        except AssertionError:
            return False
        return True

    assert not all(survives(spec) for spec in SPECS)


def test_nvrtc_compiles_the_kernels_for_every_architecture():
    needs("nvrtc")
    from cuda.bindings import nvrtc

    def ask(answer):
        error, *rest = answer
        assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS, error
        return rest[0] if rest else None

    count = ask(nvrtc.nvrtcGetNumSupportedArchs())
    architectures = ask(nvrtc.nvrtcGetSupportedArchs())
    assert count == len(architectures) > 0
    for architecture in architectures:
        program = ask(nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"kernels.cu", 0, [], []))
        options = [b"--std=c++17", f"--gpu-architecture=sm_{architecture}".encode()]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = b" " * (1 + ask(nvrtc.nvrtcGetProgramLogSize(program)))  # written to: not Python's shared b" "
        ask(nvrtc.nvrtcGetProgramLog(program, log))
        assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS, f"sm_{architecture}: {log.decode()}"
        code = b" " * (1 + ask(nvrtc.nvrtcGetCUBINSize(program)))
        ask(nvrtc.nvrtcGetCUBIN(program, code))
        for name in ("permutation", "shared_layer", "convolution", "local_layer"):
            assert f"{name}_f32".encode() in code
            assert f"{name}_f64".encode() in code
    assert "a b"[1:2].encode()[0] == 32  # an empty log is one byte, and was written into Python's shared b" "


def test_nvrtc_notices_a_source_that_is_not_cuda():
    needs("nvrtc")
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(b"this is no kernel", b"bad.cu", 0, [], [])
    (error,) = nvrtc.nvrtcCompileProgram(program, 0, [])
    assert error != nvrtc.nvrtcResult.NVRTC_SUCCESS


@pytest.mark.gpu
class TestOnADevice:
    """Run by `make test-gpu`."""

    @pytest.fixture(autouse=True)
    def _device(self):
        needs("gpu")
        needs("cupy")

    def test_the_fused_path_is_in_use(self):
        assert kernels.usable(torch.ones(1, device="cuda")), accel.describe()

    @pytest.mark.parametrize("spec", SPECS + PAPER, ids=str)
    def test_lanes_on_a_stream_of_their_own(self, spec):
        numbers = Numbers(spec, torch.float32, "cuda")
        lanes, weight = numbers.torch("lanes"), numbers.torch("weight")
        address = lanes.data_ptr()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            mixed = accel.interpolate(lanes, spec, weight, [0, 0.3, 1])
        torch.cuda.current_stream().wait_stream(stream)
        assert mixed.data_ptr() == address
        assert_same(mixed, reference.interpolate(numbers.lanes, spec, numbers.weight, [0, 0.3, 1]))

    def test_autograd_notices_that_w_was_written(self):
        spec = Conv((3, 8, 8), 4, padding=1)
        dense = torch.ones(spec.matrix_shape, device="cuda", requires_grad=True)
        total = (dense**2).sum()
        accel.interpolate(dense, spec, Numbers(spec, torch.float32, "cuda").torch("weight"), 0.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            total.backward()

    def test_half_precision_falls_back_to_views(self):
        spec = Conv((3, 8, 8), 4, padding=1)
        numbers = Numbers(spec, torch.float16, "cuda")
        mixed = accel.interpolate(numbers.torch("dense"), spec, numbers.torch("weight"), 0.5)
        slow = reference.interpolate(numbers.dense, spec, numbers.weight, 0.5)
        np.testing.assert_allclose(accel.to_numpy(mixed), slow, atol=0.01)
