"""Mistakes of users: each is one line that says what would help, exit code 2, and never a traceback."""

import json
import os
import re
import shlex
import shutil
import stat
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import needs
from safetensors.numpy import save_file
from typer.testing import CliRunner

from imlp.cli import app

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
import tiny_runs

NINES, LONG = "9" * 5000, "a" * 5000
DEEP = "[" * 100_000
SMALL = ["--options", "width=64", "--options", "strides=[1,2,2]", "--epochs", "1", "--backend", "reference", "--quiet"]


def run(*arguments: object):
    return CliRunner().invoke(app, list(map(str, arguments)))


def refused(match: str, *arguments: object) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    assert re.fullmatch("error: [^\n]*\n", result.stderr), result.stderr
    assert len(result.stderr) < 1000
    assert re.search(match, result.stderr), result.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    data = tiny_runs.save_npz(folder / "bars.npz")
    result = run("train", "--data", data, *SMALL, "--out", folder / "run")
    assert result.exit_code == 0, result.output
    return folder / "run"


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["train", "--lr", "inf"], "lr is inf; give a number above 0, and a finite one"),
        (["train", "--lr", "nan"], "lr is nan"),
        (["train", "--eps", "inf"], "eps is inf"),
        (["train", "--alpha", "decay:0.5:inf"], "K and R numbers from 0"),
        (["train", "--alpha", "conv1=0.5,conv1=0.2"], "conv1=0.2.*named twice"),
        (["train", "--alpha", "=0.5"], "a layer's name is missing"),
        (["train", "--layers", "conv1", "--layers", "conv1"], "each once"),
        (["train", "--out", ""], "--out is empty; give it a value"),
        (["train", "--out="], "--out is empty"),
        (["report", ""], "an argument is empty"),
        (["train", "--options", f"width={NINES}"], "more than 300 digits"),
        (["train", "--options", f"width={DEEP}"], "nested too deeply"),
        (["train", "--options", "depth=1000000000", "--network", "mlp1"], "at most 1,000"),
        (["train", "--every", NINES], "every is"),
        (["train", "--alpha", NINES], "alpha is"),
        (["train", "--threads", 10**30], "threads is too large; give at most 1,024"),
        (["train", "--epochs", 10**30], "epochs is too large"),
        (["search", "--trials", "9" * 40], "trials is too large"),
        (["train", "--alpha", "\u0660.\u0665,1"], "alpha is"),
        (["train", "--alpha", "1e-1_0,1"], "alpha is"),
        (["train", "--every", "step,step"], "name each cadence once"),
        (["sweep", "--alpha", "0.5", "--every", "step,step"], "name each cadence once"),
        (["train", "--every", "03,3"], "name each cadence once"),
        (["train", "--options", "width=null"], "width is null"),
        (["train", "--device", "cpu:99"], "there is one cpu"),
        (["train", "--config", LONG], "File name too long"),
        (["train", "--data", LONG], "File name too long"),
        (["train", "--data", "~nosuchuser/x"], "home directory"),
        (["train", "--out", LONG], "File name too long"),
        (["sweep", "--seeds", 10**9], "seeds is 1000000000; give 1 to 10,000"),
        (["search", "--seeds", 10**9], "seeds is 1000000000"),
        (["reproduce", "figure2-cnn", "--seeds", 10**9], "seeds is 1000000000"),
        (["sweep", "--alpha", f"1e-4..1:{10**9}log"], "write FIRST..LAST:Nlog"),
        (["sweep", "--out", LONG], "File name too long"),
        (["reproduce", f"{LONG}.toml"], "File name too long"),
        (["report", LONG], "File name too long"),
        (["report", ".", "--out", f"{LONG}.html"], "File name too long"),
        (["plot", LONG], "File name too long"),
        (["export", LONG], "File name too long"),
        (["explore", "--out", f"{LONG}.html"], "File name too long"),
        (["data", "list", "--root", LONG], "File name too long"),
        (["build-prior", "--weights", f"{LONG}.npy"], "File name too long"),
        (["build-prior", "--padding", "999999999"], "rows; choose a geometry"),
        (["build-prior", "--kernel", "999999999", "--padding", "999999999"], "the kernel spans"),
        (["build-prior", "--kind", "shared", "--rows", 10**12], "rows; choose a geometry"),
        (["build-prior", "--kind", "patchify", "--image", "3x999999999x9", "--patch", "7"], "use one of 1, 3, 9"),
    ],
)
def test_a_mistake_is_one_line(arguments, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(match, *arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["train", "verify"])
@pytest.mark.parametrize("device", ["privateuseone", "meta", "nonsense", "hpu"])
def test_devices_that_are_not_there(command, device):
    needs("accel")
    refused(f"{device}.* does not work", command, "--device", device, *([] if command == "verify" else ["--quiet"]))


def test_links_in_a_loop(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    for arguments in (
        ["train", "--data", loop], ["train", "--out", loop], ["train", "--config", loop], ["report", loop],
        ["plot", loop], ["export", loop], ["data", "fetch", "cifar10", "--root", loop],
    ):  # fmt: skip
        refused("Too many levels of symbolic links", *arguments)


@pytest.mark.parametrize(
    "text", [f"lr = {NINES}", f"lr = {DEEP}", f"lr = {'9' * 400}", "a." * 100_000 + "a = 1", "lr = '\xff'"]
)
def test_hostile_toml(text, tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(text.encode("latin1"))
    refused("a.toml is not TOML", "train", "--config", path)
    refused("a.toml is not TOML", "reproduce", path)


@pytest.mark.parametrize("text", [NINES, DEEP, '{"epoch": ' + NINES + "}", "\xff", '{"lane": "\\ud800"}'])
@pytest.mark.parametrize("name", ["metrics.jsonl", "times.jsonl", "env.json", "result.json"])
def test_hostile_files_of_a_run(name, text, trained, tmp_path):
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    for path in trained.glob("*.*"):
        (run_folder / path.name).write_bytes(path.read_bytes())
    (run_folder / name).write_bytes(text.encode("latin1"))
    refused(f"cannot read .*{name}", "report", run_folder, "--quiet", "--out", tmp_path / "report.html")
    refused(f"cannot read .*{name}", "plot", run_folder)


def test_export_of_lanes_that_cannot_be(trained, tmp_path):
    refused("give a number from 0, or prior", "export", trained, "--lane", NINES)
    refused("has no trained lane 7", "export", trained, "--lane", "7")
    refused("--out is empty", "export", trained, "--out", "")
    refused("it is a folder", "export", trained, "--out", tmp_path)


@pytest.mark.parametrize("format", ["safetensors", "npz", "torch", "onnx"])
def test_export_to_a_full_disk(format, trained, tmp_path):
    """In a separate process whose files may not grow, because a writer that runs into this may abort the process."""
    if format in ("torch", "onnx"):
        needs("accel")
    if format == "onnx":
        needs("onnx")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from imlp.cli import app\n"
        f"sys.argv = ['imlp', 'export', {str(trained)!r}, '--format', {format!r}, '--out', {str(tmp_path / 'x')!r}]\n"
        "app()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done
    assert "error: cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


def test_export_follows_links_refuses_devices_and_honours_the_umask(trained, tmp_path):
    (tmp_path / "link").symlink_to("there")
    before = os.umask(0o027)
    try:
        assert run("export", trained, "--out", tmp_path / "link").exit_code == 0
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o640
    os.mkfifo(tmp_path / "pipe")
    refused("pipe: it is not a regular file", "export", trained, "--out", tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_page_goes_where_the_link_leads(tmp_path):
    (tmp_path / "link.html").symlink_to("page.html")
    assert run("explore", "--out", tmp_path / "link.html").exit_code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "page.html").read_bytes().startswith(b"<!DOCTYPE html>")


def test_data_that_cannot_be_kept_are_not_fetched(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    refused("cannot make the folder", "data", "fetch", "cifar10", "--json", "--root", tmp_path / "file")


def claims_terabytes(path: Path, shape: str) -> None:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + b"1234")


@pytest.mark.parametrize("shape", ["(10000000000000,)", "(99999, 99999, 99999, 99999, 99999)"])
def test_an_array_whose_header_claims_terabytes(shape, tmp_path):
    claims_terabytes(tmp_path / "a.npy", shape)
    refused("header claims", "build-prior", "--weights", tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in ("x", "y", "x_test", "y_test"):
            archive.write(tmp_path / "a.npy", f"{name}.npy")
    refused("header claims", "train", "--data", tmp_path / "a.npz")


def test_nobody_is_told_to_load_unsafely(tmp_path):
    objects = np.array([[object()]])
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=objects, y=objects, x_test=objects, y_test=objects)
    (tmp_path / "b.npz").write_bytes(b"\x80\x04]\x94.")
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"cos\nsystem\n(S'true'\ntR.")
        archive.writestr("a/version", b"3\n")
    for arguments in (
        ["build-prior", "--weights", tmp_path / "a.npy"],
        ["build-prior", "--weights", tmp_path / "a.pt"],
        ["train", "--data", tmp_path / "a.npz"],
        ["train", "--data", tmp_path / "b.npz"],
    ):
        refused("", *arguments)
        assert not re.search("allow_pickle|unsafe|trust", run(*arguments).stderr)


def test_classes_that_are_not_utf_8(tmp_path):
    from PIL import Image

    for name in (b"caf\xe9", b"tea"):
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        for n in range(2):
            Image.new("RGB", (8, 8)).save(os.path.join(folder, b"%d.png" % n).decode("utf-8", "surrogateescape"))
    refused("class folder whose name is not UTF-8", "train", "--data", tmp_path)
    data = tiny_runs.data()
    names = np.array(["a", "b\ud800", "c"])
    np.savez(tmp_path / "a.npz", x=data.x, y=data.y, x_test=data.x_test, y_test=data.y_test, classes=names)
    refused("not UTF-8", "train", "--data", tmp_path / "a.npz")
    refused("not UTF-8", "train", "--data", "\udcff")


def test_a_foreign_config_is_named_and_skipped_by_the_report(trained, tmp_path):
    for name, text in (("a", "theme = 'dark'\n"), ("b", "no TOML at all"), ("c", "epochs = 'many'\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(text)
    page = tmp_path / "report.html"
    result = run("report", tmp_path / "a", tmp_path / "b", tmp_path / "c", trained, "--out", page, "--quiet")
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    for name, line in zip("abc", lines, strict=True):
        assert line.startswith("warning: skipped: ")
        assert str(tmp_path / name / "config.toml") in line
    assert "CNN pair on bars.npz" in page.read_text()
    result = run("report", tmp_path / "a", "--out", page, "--quiet")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("error: there is no run to report on")
    refused(r"a/config.toml is not that of a run: unknown setting: 'theme'", "plot", tmp_path / "a")


def test_benchmarks_refuse_numbers_that_measure_nothing():
    needs("accel")
    for arguments, match in (
        (["priors", "--repeats", "0"], "--repeats is 0; give 2 to"),
        (["priors", "--device", "privateuseone"], "does not work"),
    ):
        done = subprocess.run(
            [sys.executable, f"benchmarks/{arguments[0]}.py", *arguments[1:]],
            cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert re.fullmatch("error: [^\n]*\n", done.stderr)
        assert match in done.stderr


FLAG = """
import sys
sys.path.insert(0, "benchmarks")
from measure import run

def main(repeats: int = 3, only_some: bool = False) -> None:
    print("measured", repeats, only_some)

run(main)
"""


@pytest.mark.parametrize(("given", "printed"), [([], "measured 3 False"), (["--only-some"], "measured 3 True")])
def test_a_benchmark_may_have_flags(given, printed):
    """`benchmarks/step.py` was refused without its flag: False is an int, and below 1."""
    needs("accel")
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FLAG, *given], cwd=root, capture_output=True, text=True)
    assert done.stdout.strip() == printed, done.stderr


def as_a_program(*arguments: object, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """`cli.py` in a process of its own, with a shell's redirection after it."""
    command = " ".join(
        map(shlex.quote, [sys.executable, str(Path(__file__).parents[2] / "cli.py"), *map(str, arguments)])
    )
    environment = {**os.environ, **environment}
    return subprocess.run(
        f"{command} {shell}", shell=True, capture_output=True, text=True, env=environment, timeout=120
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_a_full_disk_behind_standard_output(argument, unbuffered):
    done = as_a_program(argument, shell="> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 2
    assert re.fullmatch("error: [^\n]*No space left on device[^\n]*\n", done.stderr)


def test_standard_output_that_is_closed():
    assert as_a_program("--version", shell=">&-").returncode == 0


def test_what_standard_output_cannot_encode_is_escaped(tmp_path):
    place = tmp_path / "schön.py"
    place.write_text("from imlp import Shared\ndef f(): return Shared(2, 2, 2)\n")
    done = as_a_program("build-prior", "--kind", f"{place}:f", "--out", tmp_path / "ü.npz", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert r"\xfc.npz" in done.stdout


def test_variables_of_the_environment_that_other_packages_stop_at(tmp_path):
    given = ["build-prior", "--kind", "transpose", "--rows", 2, "--cols", 2, "--plot", tmp_path / "t.png"]
    done = as_a_program(*given, SOURCE_DATE_EPOCH="9" * 12)  # the year 33658
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    done = as_a_program(*given, SOURCE_DATE_EPOCH="x")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "SOURCE_DATE_EPOCH is 'x'" in done.stderr
    os.mkfifo(tmp_path / "pipe")
    done = as_a_program(*given, MATPLOTLIBRC=str(tmp_path / "pipe"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "MATPLOTLIBRC is" in done.stderr
    done = as_a_program(*given, MPLBACKEND="zzz")
    assert done.returncode == 0, done.stderr


def test_a_compiled_function_is_no_kind():
    refused("sleep of time does not say what it takes", "build-prior", "--kind", "time:sleep")


def test_nobody_waits_for_a_pipe(trained, tmp_path):
    for name in ("pipe", "pipe.toml", "pipe.npz", "pipe.py", "pipe.npy"):
        os.mkfifo(tmp_path / name)
    for arguments in (
        ["train", "--config", tmp_path / "pipe"], ["sweep", "--config", tmp_path / "pipe"],
        ["search", "--config", tmp_path / "pipe"], ["reproduce", tmp_path / "pipe.toml"],
        ["build-prior", "--weights", tmp_path / "pipe.npy"], ["train", "--data", tmp_path / "pipe.npz"],
    ):  # fmt: skip
        refused("it is not a regular file", *arguments)
    refused("it is not a regular file", "build-prior", "--kind", f"{tmp_path / 'pipe.py'}:f")
    for name in ("config.toml", "metrics.jsonl", "times.jsonl", "result.json", "env.json"):
        folder = tmp_path / name.partition(".")[0]
        shutil.copytree(trained, folder)
        (folder / name).unlink()
        os.mkfifo(folder / name)
        refused("it is not a regular file", "plot", folder)
    shutil.copytree(trained, tmp_path / "study" / "run")
    os.mkfifo(tmp_path / "study" / "experiment.json")
    refused("it is not a regular file", "report", tmp_path / "study", "--quiet", "--out", tmp_path / "r.html")
    (newest,) = (trained / "checkpoint").iterdir()
    folder = tmp_path / "checkpoint"
    shutil.copytree(trained, folder)
    (folder / "checkpoint" / newest.name).unlink()
    os.mkfifo(folder / "checkpoint" / newest.name)
    refused("", "export", folder)


def test_a_table_of_no_lanes_and_a_label_that_must_be_a_mistake(tmp_path):
    (tmp_path / "a.toml").write_text("lanes = {}\n")
    refused("lanes is an empty table", "train", "--config", tmp_path / "a.toml")
    data = tiny_runs.data()
    y = data.y.copy()
    y[0] = 99_999
    np.savez(tmp_path / "a.npz", x=data.x, y=y, x_test=data.x_test, y_test=data.y_test)
    refused("a label 99,999, but images of", "train", "--data", tmp_path / "a.npz")


def _as_rows(edit):
    def forged(text: str) -> str:
        rows = [json.loads(line) for line in text.splitlines()]
        return "".join(json.dumps(row) + "\n" for row in edit(rows))

    return forged


FORGED_ROWS = {
    "the prior's row alone": lambda rows: (
        [row for row in rows if row["lane"] == "prior" or row["epoch"] == 1][:-1]
        if len(rows) > 2
        else [rows[1], {**rows[0], "epoch": 2}]
    ),
    "twice": lambda rows: rows + rows,
    "epoch": lambda rows: [{**row, "epoch": 10**20} for row in rows],
    "accuracy": lambda rows: [{**row, "test_accuracy": 1e300} for row in rows],
    "losses": lambda rows: [{**row, "test_loss": "x"} for row in rows],
    "layers": lambda rows: [
        {**row, "bias": {f"layer{n}": next(iter(row["bias"].values())) for n in range(20_000)}}
        if "bias" in row
        else row
        for row in rows
    ],
    "distance": lambda rows: [
        {**row, "bias": {name: {**own, "distance": {}} for name, own in row["bias"].items()}} if "bias" in row else row
        for row in rows
    ],
    "cannot be True": lambda rows: [{**row, "epoch": True} for row in rows],
}


@pytest.mark.parametrize("fact", FORGED_ROWS)
def test_rows_that_no_run_writes(fact, trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("epochs = 1\n", "epochs = 2\n"))
    metrics = folder / "metrics.jsonl"
    metrics.write_text(_as_rows(FORGED_ROWS[fact])(metrics.read_text()))
    refused(f"cannot read .*metrics.jsonl.*{fact}", "plot", folder)
    refused(f"cannot read .*metrics.jsonl.*{fact}", "report", folder, "--quiet", "--out", tmp_path / "r.html")


@pytest.mark.parametrize(("given", "fact"), [("Infinity", "inf"), ("1e308", r"1e\+308")])
def test_times_that_are_not_finite(given, fact, trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    (folder / "times.jsonl").write_text(f'{{"epoch": 1, "train": {given}}}\n')
    refused(
        f"cannot read .*times.jsonl, line 1: 'train' cannot be {fact}", "report", folder, "--out", tmp_path / "r.html"
    )


@pytest.mark.parametrize(
    "forged",
    [
        {"active": 5}, {"active": ["a"]}, {"active": [0, 0]}, {"image": 3}, {"image": [1, 2]}, {"image": [1, -8, 8]},
        {"mean": "x"}, {"mean": [float("nan")]}, {"std": [0.0]}, {"std": []}, {"classes": "x"}, {"classes": 0},
        {"classes": True}, {"epoch": -1},
    ],
    ids=str,
)  # fmt: skip
def test_a_state_forged_under_a_valid_checksum(forged, trained, tmp_path):
    from imlp.train import checkpoint

    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    (path,) = (folder / "checkpoint").iterdir()
    arrays, state = checkpoint.read(path)
    text = json.dumps({**state, **forged})
    save_file(arrays, path, metadata={"state": text, "sha256": checkpoint._digest(arrays, text)})
    refused("no checkpoint in .* is whole", "export", folder)


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--epochs", "\N{ARABIC-INDIC DIGIT THREE}"),
        ("train", "--epochs=\N{FULLWIDTH DIGIT THREE}"),
        ("train", "--lr", "1e-1_0"),
        ("sweep", "--seeds=1_0"),
        ("search", "--trials", "1_0"),
    ],
)
def test_only_plain_digits_are_numbers(arguments):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2
    assert "is no plain number" in result.stderr


def test_a_file_of_the_user_is_not_replaced_unless_forced(trained, tmp_path):
    path = tmp_path / "mine.html"
    path.write_text("mine")
    for command in (["explore"], ["report", trained]):
        refused("already exists; name another file, or replace it with --force", *command, "--out", path)
    assert path.read_text() == "mine"
    for more in (["--force"], []):  # a page of ours may be written again
        assert run("explore", "--out", path, *more).exit_code == 0
    refused("x.pt is no name for safetensors", "export", trained, "--out", tmp_path / "x.pt")
    refused("torchvision.models:resnet50", "train", "--network", "resnet50")
