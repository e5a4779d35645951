"""`build-prior` as a user sees it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import needs
from scipy import sparse
from typer.testing import CliRunner

from imlp import reference
from imlp.cli import app
from imlp.kinds import KINDS, make
from imlp.spec import Conv, Shared

ROOT = Path(__file__).parents[2]


def run(*arguments: str):
    return CliRunner().invoke(app, ["build-prior", *map(str, arguments)])


def test_the_command_of_the_readme_in_a_process_of_its_own(tmp_path):
    command = [sys.executable, "cli.py", "build-prior", "--kind", "patchify", "--out", str(tmp_path / "p.npz")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "3,072 x 3,072" in done.stdout
    matrix = sparse.load_npz(tmp_path / "p.npz")
    assert matrix.shape == (3072, 3072)
    assert (matrix != reference.matrix(make("patchify"))).nnz == 0


def test_every_kind_is_offered():
    shown = " ".join(run("--help").stdout.replace("│", " ").split())
    assert f"{', '.join(KINDS)}; or your own, FILE.py:Class." in shown


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_builds_with_the_papers_geometry(kind, tmp_path):
    result = run("--kind", kind, "--json", "--out", tmp_path / "m.npz", "--plot", tmp_path / "m.png")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    spec = make(kind)
    assert facts["shape"] == list(spec.matrix_shape)
    assert facts["nnz"] == spec.nnz == sparse.load_npz(tmp_path / "m.npz").nnz
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_small_matrix_is_drawn_entry_by_entry(suffix, tmp_path):
    assert run("--image", "1x4x4", "--plot", tmp_path / f"m{suffix}").exit_code == 0
    assert (tmp_path / f"m{suffix}").stat().st_size > 5000


def test_geometry_of_ones_own(tmp_path):
    geometry = "--image 4x9x6 --out-channels 6 --kernel 2x3 --stride 1x2 --padding 2x1 --dilation 3,2 --groups 2"
    result = run(*geometry.split(), "--out", tmp_path / "m.npy", "--seed", 3)
    assert result.exit_code == 0, result.output
    spec = Conv((4, 9, 6), 6, (2, 3), (1, 2), (2, 1), (3, 2), 2)
    matrix = np.load(tmp_path / "m.npy")
    weight = reference.project(matrix, spec)
    np.testing.assert_allclose(matrix, reference.matrix(spec, weight).toarray(), rtol=1e-12)
    assert np.count_nonzero(matrix) == spec.nnz


def test_a_seed_draws_the_same_weight_again_and_another_one_another(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run("--kind", "shared", "--seed", seed, "--out", tmp_path / f"{name}.npy")
    a, b, c = (np.load(tmp_path / f"{name}.npy") for name in "abc")
    assert (a == b).all()
    assert (a != c).any()


def test_weights_from_a_pipe_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "w.npy")
    command = [sys.executable, ROOT / "cli.py", "build-prior", "--weights", tmp_path / "w.npy"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert "it is not a regular file" in result.stderr


def test_weights_from_a_file(tmp_path):
    weight = np.random.default_rng(0).standard_normal((2, 3))
    np.save(tmp_path / "w.npy", weight)
    shape = ("--rows", 2, "--in-features", 3, "--out-features", 2)
    result = run("--kind", "shared", *shape, "--weights", tmp_path / "w.npy", "--out", tmp_path / "m.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy"), np.kron(np.eye(2), weight))
    check_refusal(run("--kind", "shared", *shape, "--weights", tmp_path / "w.bin"), "use .npy or .pt or .safetensors")


@pytest.mark.parametrize("file", ["w.pt", "w.safetensors", "all.safetensors:b", "all.pt:b"])
def test_weights_from_torch_and_safetensors(file, tmp_path):
    needs("accel")
    import safetensors.torch
    import torch

    weight = torch.nn.Parameter(torch.randn(2, 3, dtype=torch.bfloat16))
    arrays = {"a": torch.zeros(2, 3), "b": weight}
    torch.save(weight, tmp_path / "w.pt")
    torch.save(arrays, tmp_path / "all.pt")
    safetensors.torch.save_file({"w": weight.detach()}, tmp_path / "w.safetensors")
    safetensors.torch.save_file({name: own.detach() for name, own in arrays.items()}, tmp_path / "all.safetensors")
    shape = ("--kind", "shared", "--rows", 2, "--in-features", 3, "--out-features", 2)
    result = run(*shape, "--weights", tmp_path / file, "--out", tmp_path / "m.npy")
    assert result.exit_code == 0, result.output
    matrix = np.load(tmp_path / "m.npy")
    np.testing.assert_array_equal(matrix, np.kron(np.eye(2), weight.detach().double().numpy()))
    np.testing.assert_array_equal(matrix, reference.matrix(Shared(2, 3, 2), weight, layout="dense"))
    check_refusal(run(*shape, "--weights", tmp_path / "all.pt:bb"), "no array 'bb'; did you mean 'b'? write")
    check_refusal(run(*shape, "--weights", tmp_path / "all.safetensors"), "has 2 arrays; write")
    torch.save(Harmful(tmp_path / "harm"), tmp_path / "w.pt")
    check_refusal(run(*shape, "--weights", tmp_path / "w.pt"), "not a plain array")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("entry", [None, "0,0", "7"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_is_explained(kind, entry, tmp_path):
    arguments = ["--kind", kind, "--explain", *(["--entry", entry] if entry else [])]
    facts = json.loads(run(*arguments, "--json", "--out", tmp_path / "m.npz").stdout)
    found, matrix = facts["entry"], sparse.load_npz(tmp_path / "m.npz")
    value = matrix[found["i"], found["j"]]
    assert found["value"] == value
    assert (value != 0) == (found["tap"] is not None)
    assert value != 0 or entry == "0,0"  # a row alone, and the default, show an entry that is not zero
    shown = run(*arguments).stdout
    assert KINDS[kind].equation in shown
    assert f"entry ({found['i']}, {found['j']}) = {found['conclusion']}" in shown
    assert ("not in the paper" if kind == "local" else "appendix") in shown
    if found["tap"]:
        assert f" = {value:.6g}\n" in shown
    for step in found["steps"]:
        assert f"{step['name']} = {step['formula']} = {step['numbers']} = {step['value']}" in shown


class Harmful:
    """Unpickling this would leave a file behind."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def bad_files(folder: Path) -> dict[str, Path]:
    np.save(folder / "shape.npy", np.ones((3, 3)))
    np.save(folder / "object.npy", np.array([Harmful(folder / "harm")], dtype=object), allow_pickle=True)
    np.save(folder / "nan.npy", np.full((1, 3, 3, 3), np.nan))
    np.save(folder / "text.npy", np.array(["a"]))
    (folder / "noise.npy").write_bytes(b"not an array")
    (folder / "empty.npy").write_bytes(b"")
    np.savez(folder / "archive.npy.npz", x=np.ones(3))
    os.rename(folder / "archive.npy.npz", folder / "archive.npy")
    return {path.stem: path for path in folder.glob("*.npy")}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shape", "must have shape (1, 3, 3, 3)"),
        ("object", "not a plain array"),
        ("nan", "finite real numbers"),
        ("text", "text.npy is of <U1; give real numbers"),
        ("noise", "not a plain array"),
        ("empty", "not a plain array"),
        ("archive", "not a plain array"),
        ("missing", "No such file"),
    ],
)
def test_a_weight_file_that_will_not_do(name, message, tmp_path):
    path = bad_files(tmp_path).get(name, tmp_path / "missing.npy")
    before = sorted(os.listdir(tmp_path))
    result = run("--weights", path, "--out", tmp_path / "m.npz")
    check_refusal(result, message)
    assert sorted(os.listdir(tmp_path)) == before  # neither an output nor the pickle's file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--kind patchify --patch 5", "patch 5 does not divide the height 32; use one of 1, 2, 4, 8, 16, 32"),
        ("--kernel 40", "use a kernel that spans at most 34"),
        ("--out m.txt", "use .npz or .npy"),
        ("--plot m.gif", "use .png or .svg or .pdf"),
        ("--out missing/m.npz", "choose a folder that exists"),
        ("--plot missing/m.png", "choose a folder that exists"),
        ("--kind patchify --kernel 3", "kind patchify: 'kernel'; the known ones are image, patch"),
        ("--kind patchify --explain --entry 3072", "the matrix has no row 3072; give a row from 0 to 3071"),
        ("--kind patchify --entry 0,3072", "the matrix has no column 3072; give a column from 0 to 3071"),
        ("--kind transpose --rows 100000 --cols 100000", "choose a geometry with at most"),
        ("--image 3x224x224 --out-channels 16 --out m.npy", "write .npz instead"),
    ],
)
def test_bad_input_gives_one_line_with_the_remedy(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_refusal(run(*arguments.split()), message)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "arguments", ["--kind magic", "--image 3x3", "--kernel three", "--seed -1", "--colour red", "--entry 1,2,3"]
)
def test_what_cannot_be_parsed_is_refused_too(arguments):
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def check_refusal(result, message: str) -> None:
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)


def test_a_folder_that_may_not_be_written_to(tmp_path):
    """Root may write anywhere, so the test asks for a folder inside a file, which is impossible for everybody."""
    (tmp_path / "file").write_text("")
    check_refusal(run("--out", tmp_path / "file" / "m.npz"), "cannot write")


def test_help_teaches_and_version_prints():
    shown = CliRunner().invoke(app, ["build-prior", "--help"])
    assert shown.exit_code == 0
    assert "first things to try" in shown.stdout.lower()
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("imlp ")


RING = '''from dataclasses import dataclass
from imlp.spec import Parameter, Spec

@dataclass(frozen=True)
class Tied(Spec):
    """One number on the whole diagonal."""

    size: int
    times: tuple[float, ...] = (1.0,)
    matrix_shape = property(lambda self: (self.size, self.size))
    parameters = property(lambda self: {"weight": Parameter((1,), 1)})

    def matrix(self, weight):
        import numpy as np

        return np.eye(self.size) * weight * sum(self.times)

class Attention:
    """Reads its data."""

def word(size=2):
    return "no noun"
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RING)


def test_a_kind_of_ones_own(mine):
    arguments = ("--kind", "mine.py:Tied", "--options", "size=3", "--options", "times=[2,3]", "--json", "--explain")
    result = run(*arguments, "--plot", "m.png", "--entry", "1,1")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["equation"] == "W_P = Tied"
    assert (facts["shape"], facts["nnz"], facts["geometry"]["times"]) == ([3, 3], 3, [2, 3])
    assert "weight[0]" in facts["entry"]["conclusion"]
    shown = run("--kind", "mine.py:Tied", "--options", "size=3").stdout
    assert "mine.py:Tied: One number on the whole diagonal" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--kind mine.py:Tied", "mine.py:Tied needs size; give it: --options size=VALUE"),
        (
            "--kind mine.py:Tied --options sise=2",
            "kind mine.py:Tied: 'sise'; did you mean 'size'",
        ),
        ("--kind mine.py:Tied --options size=2 --kernel 3", "kind mine.py:Tied: 'kernel'; the known ones are"),
        (
            "--kind mine.py:Attention",
            "Attention of mine.py is no noun; derive a class from imlp.Spec; a layer",
        ),
        ("--kind mine.py:word", "word of mine.py returns a str; derive a class"),
        ("--kind mine.py:Tide", "mine.py has no 'Tide'; did you mean 'Tied'"),
        ("--kind convv", "error: unknown kind: 'convv'; did you mean 'conv'"),
    ],
)
def test_what_is_no_kind_is_refused_in_one_line(arguments, message, mine):
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
