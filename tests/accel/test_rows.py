"""The single pass in C agrees with the reference for any geometry and layout, and mistakes in it are noticed."""

import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from conftest import needs
from hypothesis import given
from strategies import PAPER, SPECS, convs, locals_

needs("accel")
needs("cc")

import torch  # noqa: E402
from verb_checks import DTYPES, Numbers, assert_same  # noqa: E402

from imlp import accel, reference  # noqa: E402
from imlp.accel import rows  # noqa: E402
from imlp.errors import ArrayError  # noqa: E402
from imlp.spec import Conv, Local  # noqa: E402

GUARD, MARGIN = 123.25, 500
CONVS = [spec for spec in SPECS if isinstance(spec, Conv | Local)]
PAPERS = [spec for spec in PAPER if isinstance(spec, Conv | Local)]
MIXES = ((0.7, 0.3, "interpolate"), (0.0, 1.0, "interpolate"), (1.0, 0.3, "add"))


def check(spec: Conv, dtype: torch.dtype = torch.float64) -> None:
    """Interpolation, injection and alpha 1, with guard values around the matrix."""
    numbers = Numbers(spec, dtype)
    for keep, alpha, mode in MIXES:
        around = torch.full((numbers.dense.size + 2 * MARGIN,), GUARD, dtype=dtype)
        dense = around[MARGIN:-MARGIN].view(spec.matrix_shape)
        dense.copy_(numbers.torch("dense"))
        rows.interpolate(dense, spec, numbers.torch("weight"), keep, alpha)
        assert_same(dense, reference.interpolate(numbers.dense, spec, numbers.weight, alpha, add=mode == "add"))
        assert (around[:MARGIN] == GUARD).all()
        assert (around[-MARGIN:] == GUARD).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", CONVS + PAPERS, ids=str)
def test_it_equals_the_reference(spec, dtype):
    check(spec, dtype)


@given(spec=convs() | locals_())
def test_it_equals_the_reference_on_any_geometry(spec):
    check(spec)


def test_a_weight_may_be_laid_out_in_any_way():
    spec = Conv((6, 5, 4), 4, kernel=(3, 2), padding=1, groups=2)
    numbers = Numbers(spec)
    slow = reference.interpolate(numbers.dense, spec, numbers.weight, 0.3)
    for order in ((0, 2, 3, 1), (2, 3, 0, 1), (1, 0, 3, 2)):
        back = tuple(np.argsort(order))
        weight = numbers.torch("weight").permute(order).contiguous().permute(back)
        assert not weight.is_contiguous()
        dense = numbers.torch("dense")
        rows.interpolate(dense, spec, weight, 0.7, 0.3)
        assert_same(dense, slow)


def test_alpha_one_clears_what_is_not_finite():
    spec = CONVS[0]
    numbers = Numbers(spec)
    dense = torch.full(spec.matrix_shape, torch.nan, dtype=torch.float64)
    rows.interpolate(dense, spec, numbers.torch("weight"), 0.0, 1.0)
    assert_same(dense, reference.matrix(spec, numbers.weight).toarray())


def test_any_number_of_threads_gives_the_same_bits():
    spec, before, found = PAPERS[0], torch.get_num_threads(), []
    numbers = Numbers(spec, torch.float32)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            dense = numbers.torch("dense")
            rows.interpolate(dense, spec, numbers.torch("weight"), 0.7, 0.3)
            found.append(dense)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("sharing", [0.3, 0.6])
def test_any_number_of_threads_gives_the_same_means(sharing):
    spec, before, found = Conv((5, 9, 8), 2, kernel=3, padding=1), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(Numbers(spec, torch.float32).torch("dense"))
            rows.pull(found[-1], spec, 0.3, sharing)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_which_matrices_take_this_path(monkeypatch):
    """Large matrices of convolutions take it, with the same result as by views; none do if it could not be compiled."""
    large, small, half = PAPERS[0], CONVS[0], Numbers(PAPERS[0], torch.float16)
    taken = []
    in_c = rows.interpolate
    monkeypatch.setattr(rows, "interpolate", lambda dense, spec, *rest: taken.append(spec) or in_c(dense, spec, *rest))
    numbers = Numbers(large, torch.float32)
    lanes, weight = numbers.torch("lanes"), numbers.torch("weight")
    accel.interpolate(lanes, large, weight, [0, 0.3, 1])
    assert taken == [large, large]  # with alpha 0 there is nothing to do
    accel.interpolate(Numbers(small).torch("dense"), small, Numbers(small).torch("weight"), 0.3)
    accel.interpolate(half.torch("dense"), large, half.torch("weight"), 0.3)
    monkeypatch.setattr(rows, "status", lambda: (False, "no compiler"))
    views = numbers.torch("lanes")
    accel.interpolate(views, large, weight, [0, 0.3, 1])
    assert taken == [large, large]
    assert_same(lanes, views)
    assert accel.describe()["why"].endswith("no compiler")


@pytest.mark.parametrize("body", ["", "#!/bin/sh\necho 'rows.c:1: no such luck' >&2\nexit 1\n"])
def test_without_a_compiler_that_works_there_are_views(body, tmp_path, monkeypatch):
    if body:
        compiler = tmp_path / "cc"
        compiler.write_text(body)
        compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for cached in (rows.status, rows._library):
        cached.cache_clear()
    try:
        works, why = rows.status()
        assert not works
        assert ("no such luck" if body else "there is no C compiler") in why
        numbers = Numbers(PAPERS[0], torch.float32)
        dense = accel.interpolate(numbers.torch("dense"), PAPERS[0], numbers.torch("weight"), 0.3)
        assert_same(dense, reference.interpolate(numbers.dense, PAPERS[0], numbers.weight, 0.3))
    finally:
        for cached in (rows.status, rows._library):
            cached.cache_clear()


MUTANTS = {
    "a shifted tap": ("y * s_y + i * d_y - p_y;", "y * s_y + i * d_y - p_y + 1;"),
    "a forgotten lower bound": ("v < 0 || ", ""),
    "a forgotten upper bound": (" || u >= w_in", ""),
    "a forgotten dilation": ("j * d_x", "j"),
    "a forgotten group": ("entries += group *", "entries += 0 *"),
    "swapped axes": ("y = row / w_out % h_out, x = row % w_out", "x = row / w_out % h_out, y = row % w_out"),
    "a kernel on its side": ("i * step_i + j * step_j", "j * step_i + i * step_j"),
    "the kernel of another place": ("(y * w_out + x) * step_p", "(x * w_out + y) * step_p"),
    "one kernel for all places": ("(y * w_out + x) * step_p", "0 * step_p"),
    "a forgotten scale": ("keep * entries[k]", "entries[k]"),
    "a forgotten alpha": ("alpha * number[c * step_c]", "number[c * step_c]"),
    "a forgotten alpha, of neighbours": ("alpha * number[c];", "number[c];"),
    "a skipped column": ("k < m_in;", "k < m_in - 1;"),
    "a row too many": ("row < m_out;", "row <= m_out;"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_is_noticed(mutant, tmp_path, monkeypatch):
    window, others = rows.SOURCE.read_text().split("\n/* The weight of", 1)
    with broken(window, *MUTANTS[mutant], "\n/* The weight of" + others, tmp_path, monkeypatch):
        for spec in CONVS:
            check(spec)


PULL_MUTANTS = {
    "a forgotten margin of the mean": ("tap / k_x * d_y - p_y,", "tap / k_x * d_y,"),
    "a mean over too many": ("counts[tap]++;", "counts[tap] += 2;"),
    "channels of another group": ("at) * c_in + group * c_group) *", "at) * c_in) *"),
    "a window that is scaled like the rest": ("inside * own[c] + alpha", "keep * own[c] + alpha"),
    "a forgotten mean": ("own[c] + alpha * number[c * step_c];", "own[c];"),
    "a row that is not scaled": ("!filling && k < m_in", "!filling && k < 0"),
}


@pytest.mark.parametrize("mutant", PULL_MUTANTS)
def test_a_mistake_in_a_pull_is_noticed(mutant, tmp_path, monkeypatch):
    window, others = rows.SOURCE.read_text().split("\n/* The weight of", 1)
    with broken(others, *PULL_MUTANTS[mutant], "", tmp_path, monkeypatch, before=window + "\n/* The weight of"):
        for spec in CONVS:
            W = np.random.default_rng(0).standard_normal(spec.matrix_shape)
            pulled = torch.tensor(W)
            rows.pull(pulled, spec, 0.3, 0.6)
            np.testing.assert_allclose(pulled, reference.pull(W, spec, 0.3, 0.6), atol=1e-9)


@contextmanager
def broken(part, right, wrong, after, tmp_path, monkeypatch, before=""):
    """The file with a mistake in one part of it, which what is done here must notice."""
    assert part.count(right) == 1
    path = tmp_path / "rows.c"
    path.write_text(before + part.replace(right, wrong) + after)
    monkeypatch.setattr(rows, "SOURCE", path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows._library.cache_clear()
    try:
        with pytest.raises(AssertionError):
            yield
    finally:
        rows._library.cache_clear()


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """An empty cache and an empty temporary folder; what was compiled before is forgotten."""
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    rows._library.cache_clear()
    yield cache / "imlp" / "compiled"
    rows._library.cache_clear()
    assert list(temporary.iterdir()) == []


COMPILE = "from imlp.accel import rows; rows._library()"


def kept(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_is_compiled_once_for_this_user_alone(cached, monkeypatch):
    rows._library()
    (name,) = kept(cached)
    assert name.startswith("rows-")
    assert cached.stat().st_mode & 0o777 == 0o700
    rows._library.cache_clear()
    monkeypatch.setattr(rows, "_compiled", lambda *given: pytest.fail("it was compiled again"))
    rows._library()
    check(CONVS[0])


def test_source_flags_compiler_and_processor_make_another_library(cached, tmp_path, monkeypatch):
    text = rows.SOURCE.read_text()
    keys = {rows._key(text), rows._key(text + " ")}
    monkeypatch.setattr(rows, "FLAGS", (*rows.FLAGS, "-g"))
    keys.add(rows._key(text))
    (tmp_path / "cc").write_text("#!/bin/sh\necho another compiler\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    keys.add(rows._key(text))
    (tmp_path / "cc").write_text("#!/bin/sh\ncase $1 in --version) echo another compiler;; *) echo AVX9;; esac\n")
    keys.add(rows._key(text))
    assert len(keys) == 5


def test_a_damaged_library_is_made_again(cached):
    subprocess.run([sys.executable, "-c", COMPILE], check=True)  # here it would count as loaded from then on
    (name,) = kept(cached)
    fresh = (cached / name).read_bytes()
    (cached / name).write_bytes(b"nothing that could be loaded")
    rows._library()
    assert (cached / name).read_bytes() == fresh


def test_a_cache_that_is_not_ours_alone_is_not_used(cached, monkeypatch):
    cached.mkdir(parents=True)
    cached.chmod(0o777)
    rows._library()
    assert kept(cached) == []
    cached.chmod(0o700)
    rows._library.cache_clear()
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    rows._library()
    assert kept(cached) == []


def test_without_a_folder_that_can_be_written_to(cached):
    cached.parent.parent.write_text("a file where the folder should be")
    rows._library()
    check(CONVS[0])


def test_processes_that_compile_at_once_or_are_killed(cached):
    """All processes find a complete library, and what a killed one left behind is deleted once it is old."""
    cached.mkdir(parents=True, mode=0o700)
    for name in (".rows-1.so.1.part", "ccold.o", ".rows-2.so.2.part"):
        (cached / name).write_bytes(b"half")
    for name in (".rows-1.so.1.part", "ccold.o"):
        os.utime(cached / name, (0, 0))
    running = [subprocess.Popen([sys.executable, "-c", COMPILE]) for _ in range(3)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    assert [name for name in kept(cached) if not name.startswith("rows-")] == [".rows-2.so.2.part"]
    assert len(kept(cached)) == 2


def test_the_tests_of_the_views_do_not_test_this_path_instead():
    assert max(np.prod(spec.matrix_shape) for spec in SPECS) < rows.LEAST


def test_autograd_notices_that_w_was_written():
    """`W**2` needs the old `W` for its gradient; torch's own in-place operations make it refuse, and so must this."""
    spec = PAPERS[0]
    weight = Numbers(spec, torch.float32).torch("weight")
    for shape, alpha in ((spec.matrix_shape, 0.5), ((2, *spec.matrix_shape), [0, 0.5])):
        dense = torch.ones(shape, requires_grad=True)
        assert rows.usable(dense, spec)
        total = (dense**2).sum()
        accel.interpolate(dense, spec, weight, alpha)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            total.backward()


@pytest.mark.parametrize("compiled", [True, False], ids=["in C", "by views"])
def test_a_weight_that_is_a_part_of_w_counts_as_it_was(compiled, monkeypatch):
    """Whether torch knows it as a view, or as another array over the same memory."""
    if not compiled:
        monkeypatch.setattr(rows, "LEAST", 2**62)
    spec = PAPERS[0]
    n = int(np.prod(spec.weight_shape))
    for start in (0, 5000):
        numbers = Numbers(spec, torch.float32).dense.astype(np.float32)
        weight = numbers.reshape(-1)[start : start + n].reshape(spec.weight_shape)
        slow = reference.interpolate(numbers, spec, weight, 0.3)
        dense = torch.tensor(numbers)
        view = dense.view(-1)[start : start + n].view(spec.weight_shape)
        assert_same(accel.interpolate(dense, spec, view, 0.3), slow)
        shared = torch.from_numpy(weight)
        assert_same(accel.interpolate(torch.from_numpy(numbers), spec, shared, 0.3), slow)


@pytest.mark.parametrize("compiled", [True, False], ids=["in C", "by views"])
def test_torchs_negative_bit_is_resolved_or_refused(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(rows, "LEAST", 2**62)
    spec = PAPERS[0]
    numbers = Numbers(spec, torch.float32)
    pairs = torch.complex(torch.zeros(spec.weight_shape), numbers.torch("weight"))
    weight = pairs.conj().imag  # the negated weight: a view with the bit set
    assert weight.is_neg()
    mixed = accel.interpolate(numbers.torch("dense"), spec, weight, 0.3)
    assert_same(mixed, reference.interpolate(numbers.dense, spec, -numbers.weight, 0.3))
    assert_same(accel.matrix(spec, weight), reference.matrix(spec, -numbers.weight))
    dense = torch._neg_view(numbers.torch("dense"))
    assert_same(accel.project(dense, spec), reference.project(-numbers.dense, spec))
    before = dense.clone()
    with pytest.raises(ArrayError, match=r"negative bit.*W\.resolve_neg"):
        accel.interpolate(dense, spec, numbers.torch("weight"), 0.3)
    assert torch.equal(dense, before)
    np.testing.assert_array_equal(accel.to_numpy(dense), -numbers.dense.astype(np.float32))
