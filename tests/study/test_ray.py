"""Sweeps on Ray, on a real cluster of two nodes on this machine: killed in every way, they end with the same bits.

All runs are of one small sweep, so that one run of the local engine tells what each must come to. Nothing listens
on anything but 127.0.0.1. Every process that is started here inherits a mark, by which those left over are found.
There is one cluster for all; with xdist that takes `--dist loadfile`, which keeps a file on one worker.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import tiny_runs
from conftest import needs
from typer.testing import CliRunner

from imlp.cli import app
from imlp.train import checkpoint

needs("ray")
needs("accel")

ROOT = Path(__file__).parents[2]
EPOCHS = 60
RAY = """
from ray._private import services
services.resolve_ip_for_localhost = lambda host: host  # a node at 127.0.0.1 stays there: Ray would not have two of them
from ray.scripts.scripts import main
main()
"""  # the command `ray`
HIDDEN = """
import imlp.study.cluster.driver as driver
from contextlib import nullcontext
driver._marked = lambda folders: nullcontext("a-name-that-no-worker-finds")
from imlp.cli import app
app()
"""
OTHER = """
import os
import imlp.study.cluster.worker as same
from imlp.cli import app
here, known = os.getpid(), same.versions
same.versions = lambda: known() | ({"torch": "0.1"} if os.getpid() == here else {})
app()
"""  # a driver with a torch of its own


def until(condition: Any, *, seconds: float = 120, what: str = "what was waited for") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in {seconds} s"
        time.sleep(0.02)


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Place:
    """What is started here: its environment, and how it ends."""

    def __init__(self) -> None:
        self.mark = f"IMLP_TEST_MARK={os.urandom(8).hex()}"
        self.folder = Path(mkdtemp(prefix="ray-"))  # short: Ray makes sockets in it
        self.started: list[subprocess.Popen[str]] = []
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment = own | dict([self.mark.split("=")]) | {
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # stay on 127.0.0.1
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex(),  # its own, whatever the home folder has
            "RAY_TMPDIR": str(self.folder), "TMPDIR": str(self.folder), "OMP_NUM_THREADS": "1",
            "RAY_health_check_period_ms": "500", "RAY_health_check_initial_delay_ms": "1000",
        }  # fmt: skip

    def start(self, *command: str, **more: Any) -> "subprocess.Popen[str]":
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        options = pipes | {"cwd": ROOT, "env": self.environment, "start_new_session": True} | more
        self.started.append(subprocess.Popen([*map(str, command)], **options))
        return self.started[-1]

    def processes(self) -> list[int]:
        """Those alive that carry the mark."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    def end(self) -> None:
        end = time.monotonic() + 60
        while left := self.processes():
            assert time.monotonic() < end, f"{left} do not end"
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            for process in self.started:
                process.poll()  # or it stays as a zombie
            time.sleep(0.1)
        for process in self.started:
            process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


class Nodes(Place):
    """A head and a second node, each with one CPU."""

    def __init__(self) -> None:
        super().__init__()
        port, client = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        ports = (f"--port={port}", f"--ray-client-server-port={client}", "--include-dashboard=false")
        self.head = self._node("--head", "--node-ip-address=127.0.0.1", *ports)
        self.second = self._second()
        self.wait_for_nodes(2)

    def wait_for_nodes(self, number: int) -> None:
        """Ray's own word that they are there, and where."""
        join = f"import ray; ray.init({self.address!r}, log_to_driver=False)"
        ask = f"{join}; print(*(node['NodeManagerAddress'] for node in ray.nodes() if node['Alive']))"
        until(lambda: ended(self.start(sys.executable, "-c", ask))[0].split() == ["127.0.0.1"] * number)

    def _node(self, *arguments: str) -> "subprocess.Popen[str]":
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        common = ("--num-cpus=1", f"--temp-dir={self.folder}", "--object-store-memory=100000000", "--block")
        several = {"env": self.environment | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}}
        return self.start(sys.executable, "-c", RAY, "start", *arguments, *common, **quiet, **several)

    def _second(self) -> "subprocess.Popen[str]":
        until(lambda: self._answers(), what="the cluster")
        return self._node(f"--address={self.address}", "--node-ip-address=127.0.0.1")

    def _answers(self) -> bool:
        host, port = self.address.split(":")
        with socket.socket() as asked:
            return asked.connect_ex((host, int(port))) == 0

    def kill_second(self) -> None:
        """As if its plug were pulled: no time to say anything."""
        os.killpg(self.second.pid, signal.SIGKILL)

    def restart_second(self) -> None:
        self.second = self._second()
        self.wait_for_nodes(2)


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.end()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> list[str]:
    """The sweep of all tests: two seeds, and for each two lanes that run apart."""
    path = tiny_runs.save_npz(tmp_path_factory.mktemp("data") / "bars.npz")
    options = [f"--options={option}" for option in ("width=64", "strides=[1,2,2]", "image=[1,8,8]")]
    training = ["--batch=20", f"--epochs={EPOCHS}", "--lr=0.003", "--threads=1", "--no-verify"]
    return ["sweep", f"--data={path}", "--alpha=0.5,0.1@step", "--seeds=2", "--lanes-at-once=1", *options, *training]


@pytest.fixture(scope="module")
def expected(sweep, tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("local")
    result = CliRunner().invoke(app, [*sweep, f"--out={folder}", "--quiet"])
    assert result.exit_code == 0, result.output
    return contents(folder)


def contents(folder: Path) -> dict[str, Any]:
    """Metrics, result and the arrays of the last checkpoint of each run."""
    found: dict[str, Any] = {}
    for run in sorted(folder.glob("seed*")):
        arrays, _ = checkpoint.read(checkpoint.saved_files(run / "checkpoint")[0])
        found[run.name] = {name: (run / name).read_text() for name in ("metrics.jsonl", "result.json")}
        found[run.name] |= {name: array.tobytes() for name, array in arrays.items()}
    return found


def check_same(folder: Path, expected: dict[str, Any]) -> None:
    found = contents(folder)
    assert found.keys() == expected.keys()
    for run, own in expected.items():
        assert [name for name in own if found[run].get(name) != own[name]] == []


def drive(where: Place, *arguments: str, script: tuple[str, ...] = ("cli.py",)) -> "subprocess.Popen[str]":
    return where.start(sys.executable, *script, *arguments, "--engine=ray")


def epochs(folder: Path) -> list[int]:
    """How far each run is that has begun."""
    files = [path.read_text() for path in folder.glob("seed*/metrics.jsonl")]
    return [max([json.loads(line)["epoch"] for line in text.splitlines()], default=0) for text in files]


def ended(process: "subprocess.Popen[str]", code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, f"{out}\n{err}"
    return out, err


IN_OUR_LANGUAGE = """
from imlp.networks import cnn

def mine(image, classes, *, width=64):
    return cnn(image, classes, width=width, strides=(1, 2))
"""
A_MODULE = """
from torch import nn

def mine(classes, image):
    conv = nn.Conv2d(image[0], 4, 3, stride=2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(4), nn.Dropout(0.2), nn.Flatten(), nn.Linear(36, classes))
"""
PAGE = (ROOT / "docs" / "your-own-prior.md").read_text()
A_NOUN = PAGE[PAGE.index("# ring.py") :].partition("```")[0] + "mine = rings\n"


@pytest.mark.parametrize("text", [IN_OUR_LANGUAGE, A_NOUN, A_MODULE], ids=["network", "noun", "PyTorch model"])
def test_a_network_from_outside_travels_as_a_text(text, nodes, tmp_path, monkeypatch):
    """The workers are in another folder than the driver, and find no file of this name there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(text)
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    settings = [f"--data={data}", "--alpha=0.5,0.1@step", "--seeds=1", "--options=image=[1,8,8]", "--batch=20"]
    command = ["sweep", "--network=mine.py:mine", *settings, "--epochs=2", "--threads=1", "--no-verify"]
    result = CliRunner().invoke(app, [*command, f"--out={tmp_path / 'local'}", "--quiet"])
    assert result.exit_code == 0, result.output
    ray = ["--engine=ray", f"--address={nodes.address}", f"--out={tmp_path / 'ray'}", "--quiet"]
    ended(nodes.start(sys.executable, str(ROOT / "cli.py"), *command, *ray, cwd=tmp_path))
    check_same(tmp_path / "ray", contents(tmp_path / "local"))
    (kept,) = (tmp_path / "ray").glob("seed*/network.py")
    assert kept.read_text() == (tmp_path / "mine.py").read_text()


def test_two_nodes_come_to_the_same_bits_and_a_run_that_fails_takes_no_other_down(nodes, sweep, expected, tmp_path):
    broken, *_ = sorted(expected)
    (tmp_path / broken / "checkpoint").mkdir(parents=True)
    (tmp_path / broken / "checkpoint" / "epoch00001-step000000.safetensors").write_bytes(b"not a checkpoint")
    out, err = ended(drive(nodes, *sweep, f"--out={tmp_path}", f"--address={nodes.address}", "--json"), code=1)
    (failed,) = json.loads(out)["failed"]
    assert failed["run"] == str(tmp_path / broken)
    assert "is whole; start the run again" in failed["error"]
    assert "RunError" in Path(failed["log"]).read_text()
    assert f"(traceback: {failed['log']})" in err
    shutil.rmtree(tmp_path / broken)
    check_same(tmp_path, {run: own for run, own in expected.items() if run != broken})
    for run in tmp_path.glob("seed*"):
        assert shlex.join(sweep) in json.loads((run / "env.json").read_text())["command"]
    assert not list(tmp_path.glob(".driver-*"))


def test_a_node_is_killed(nodes, sweep, expected, tmp_path):
    driver = drive(nodes, *sweep, f"--out={tmp_path}", f"--address={nodes.address}")
    until(lambda: sum(3 < n < EPOCHS for n in epochs(tmp_path)) == 2, what="a run on each node")
    nodes.kill_second()
    try:
        _, err = ended(driver)
    finally:
        nodes.restart_second()
    assert "its worker died; resuming from its last checkpoint" in err
    check_same(tmp_path, expected)


def test_the_driver_is_killed_and_started_again(nodes, sweep, expected, tmp_path):
    command = (*sweep, f"--out={tmp_path}", f"--address={nodes.address}")
    driver = drive(nodes, *command)
    until(lambda: any(3 < n < EPOCHS for n in epochs(tmp_path)), what="a run under way")
    driver.kill()
    saved = {path.parents[1] / "env.json" for path in tmp_path.glob("seed*/checkpoint/*.safetensors")}
    begun = {path: path.read_text() for path in saved}
    ended(drive(nodes, *command))
    check_same(tmp_path, expected)
    assert all(path.read_text() == text for path, text in begun.items())  # written by a run that starts again


def test_workers_that_do_not_see_the_folder_send_their_files(nodes, sweep, expected, tmp_path):
    command = (*sweep, f"--out={tmp_path}", f"--address={nodes.address}")
    driver = drive(nodes, *command, script=("-c", HIDDEN))
    until(lambda: any(3 < n < EPOCHS for n in epochs(tmp_path)), what="a run under way")
    assert list(nodes.folder.glob("imlp-*/seed*/metrics.jsonl"))  # where the worker is at work
    driver.send_signal(signal.SIGINT)
    _, err = ended(driver, code=130)
    assert "stopped by SIGINT; nothing is lost: run the same command again" in err
    stopped = {path: path.read_text() for path in tmp_path.glob("seed*/env.json")}
    assert any(list((path.parent / "checkpoint").glob("*")) for path in stopped)
    ended(drive(nodes, *command, script=("-c", HIDDEN)))
    check_same(tmp_path, expected)
    assert all(path.read_text() == text for path, text in stopped.items())
    assert not list(nodes.folder.glob("imlp-*"))


def test_without_an_address_ray_starts_here_for_itself_and_ends(place, sweep, expected, tmp_path):
    command = (*sweep, f"--out={tmp_path}")
    driver = drive(place, *command)
    until(lambda: any(3 < n < EPOCHS for n in epochs(tmp_path)), what="a run under way")
    assert len(place.processes()) > 3
    assert listening(place.processes()) <= {"127.0.0.1", "::1"}
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does
    ended(driver, code=130)
    until(lambda: not place.processes(), seconds=20, what="the end of Ray")
    # a sweep that one engine has begun, the other finishes
    result = CliRunner().invoke(app, [*command, "--quiet"])
    assert result.exit_code == 0, result.output
    check_same(tmp_path, expected)


def test_what_the_local_engine_has_begun_ray_finishes(nodes, sweep, expected, tmp_path):
    command = (*sweep, f"--out={tmp_path}")
    local = nodes.start(sys.executable, "cli.py", *command)
    until(lambda: any(3 < n < EPOCHS for n in epochs(tmp_path)))
    local.send_signal(signal.SIGTERM)
    ended(local, code=143)
    ended(drive(nodes, *command, f"--address={nodes.address}"))
    check_same(tmp_path, expected)


def test_a_search_finds_on_the_cluster_what_it_finds_here(nodes, tmp_path):
    """Two runs of four lanes at a time there, one of eight here: the same trials, and the same of them pruned."""
    needs("optuna")
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    settings = "--options width=64 --options strides=[1,2,2] --batch 20 --lr 0.003 --backend reference --epochs 8"
    common = ["search", f"--data={data}", *settings.split(), "--validation=0.25", "--trials=16", "--json"]
    there, here = [*common, f"--out={tmp_path / 'there'}", "--lanes-at-once=4"], [*common, f"--out={tmp_path / 'here'}"]
    printed, _ = ended(drive(nodes, *there, f"--address={nodes.address}"))
    result = CliRunner().invoke(app, [*here, "--lanes-at-once=8"])
    assert result.exit_code == 0, result.output
    found, expected = json.loads(printed), json.loads(result.stdout)
    for one, other in zip(found["trials"], expected["trials"], strict=True):
        assert [one[key] for key in ("number", "lane", "state")] == [other[key] for key in ("number", "lane", "state")]
        assert one["values"] == pytest.approx(other["values"])
    assert {trial["state"] for trial in found["trials"]} == {"complete", "pruned"}
    assert found["chosen"] == expected["chosen"]
    assert [row["test"] for row in found["final"]] == [row["test"] for row in expected["final"]]


def listening(pids: list[int]) -> set[str]:
    """The addresses at which processes accept connections."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                words = bytes.fromhex(fields[1].partition(":")[0])
                turned = b"".join(words[k : k + 4][::-1] for k in range(0, len(words), 4))
                found.add(socket.inet_ntop(family, turned).removeprefix("::ffff:"))
    return found


def test_nodes_with_other_versions_are_refused_by_name(nodes, sweep, tmp_path):
    address = f"--address={nodes.address}"
    _, err = ended(drive(nodes, *sweep, f"--out={tmp_path}", address, script=("-c", OTHER)), code=2)
    assert f"error: {socket.gethostname()} has torch {version('torch')} instead of 0.1" in err
    assert "install the same versions on every machine" in err
    assert not list(tmp_path.glob("seed*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine=slurm"], "engine is 'slurm'; use local or ray"),
        (["--address=auto"], "--address is for Ray; add --engine ray"),
        (["--engine=ray", "--address=ray://head:10001"], "run this on a machine of the cluster"),
        (["--engine=ray", "--address=head:\N{ARABIC-INDIC DIGIT THREE}"], "use auto, or HOST:PORT"),
    ],
)
def test_what_cannot_be_is_refused(sweep, tmp_path, arguments, message):
    result = CliRunner().invoke(app, [*sweep, f"--out={tmp_path}", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_an_address_where_nobody_answers_is_refused_at_once(sweep, tmp_path):
    (port,) = free_ports(1)
    result = CliRunner().invoke(app, [*sweep, f"--out={tmp_path}", "--engine=ray", f"--address=127.0.0.1:{port}"])
    assert result.exit_code == 2
    assert f"no Ray head responds at 127.0.0.1:{port}" in result.stderr


def test_a_run_that_no_node_can_take_is_refused(nodes, sweep, tmp_path):
    address = f"--address={nodes.address}"
    _, err = ended(drive(nodes, *sweep, f"--out={tmp_path}", address, "--cpus-per-run=64"), code=2)
    assert "no machine of the cluster has 64 CPUs and 0 GPUs for a run; the most that one has is 1 CPUs" in err


STANDINS = {  # of Slurm's commands: two nodes, both here
    "scontrol": "echo one; echo two",
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
    "hostname": "echo 127.0.0.1",
    "ray": f"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1 exec {sys.executable} -c '{RAY}' \"$@\"",
    "python": f'exec {sys.executable} "$@"',
}


def test_the_script_for_slurm_with_stand_ins_for_its_commands(place, sweep, expected, tmp_path):
    for name, body in STANDINS.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    port = free_ports(1)[0]
    slurm = {"SLURM_JOB_NODELIST": "[one-two]", "SLURM_JOB_ID": str(port), "SLURM_CPUS_PER_TASK": "1"}
    place.environment |= slurm | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    del place.environment["RAY_AUTH_TOKEN"]  # the script makes its own
    out, _ = ended(place.start("bash", "examples/slurm.sh", *sweep, f"--out={tmp_path / 'out'}"))
    assert "I-MLP alpha 0.1, every step" in out
    check_same(tmp_path / "out", expected)
    until(lambda: not place.processes(), seconds=30, what="the end of Ray")


def test_the_manifest_for_kubernetes_has_the_fields_of_a_ray_cluster():
    import yaml

    claim, cluster = yaml.safe_load_all((ROOT / "examples" / "kuberay.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    images = set()
    for group in (cluster["spec"]["headGroupSpec"], workers):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        images.add(container["image"])
        assert isinstance(group["rayStartParams"], dict)
        assert {volume["name"] for volume in pod["volumes"]} == {m["name"] for m in container["volumeMounts"]}
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert all(isinstance(value, str) for value in container["resources"]["limits"].values())
    assert len(images) == 1
