"""Kill `sweep`, `search` and `reproduce` at random moments, here and on Ray: they must end with the same bits.

    python tests/study/kill.py --kills 100                          # of each command, in one process
    python tests/study/kill.py --kills 100 --engine cluster         # on a Ray that is there already
    python tests/study/kill.py sweep search --kills 10 --engine ray  # on a Ray that each command starts for itself

A command is started and killed with SIGKILL again and again in one folder. Half of the kills fall into the first half
second of a run. When it ends by itself, its files are compared with those of an undisturbed one, and it starts over in
a new folder. On Ray either the driver is killed or a worker. After a killed driver its workers must end by themselves,
and so must its whole Ray if it has started one: that takes a minute, which is why a hundred kills are for a cluster.
There the command is often given again while workers of the killed driver are still at work. Every process that is
started here works in one folder, by which those that are left over are found; a mark in their environment would not do,
for Ray writes the names of its processes over it.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
COMMANDS = ("sweep", "search", "reproduce")
ENGINES = ("local", "ray", "cluster")
FIRST = 0.5  # seconds of a run
PATIENCE = 180.0  # seconds in which everything must have ended after the driver
RUN = re.compile("ray::(seed|batch)")  # how Ray names a worker that is at work on a run
OF_CLUSTER = re.compile("ray::(IDLE|DashboardAgent|RuntimeEnvAgent)|(?!ray::)")  # what stays when a driver is gone
START = "from ray.scripts.scripts import main; main()"  # the command `ray`
WORKERS = 5  # killed at most while one driver lives: Ray gives a run up after ten
EXPERIMENT = """
title = "Killed"
asks = "Does it end with the same bits?"
[settings]
network = "cnn"
data = "{data}"
batch = 20
lr = 0.003
backend = "reference"
[settings.options]
width = 64
strides = [1, 2, 2]
[[arms]]
name = "first"
alphas = "0,0.1,1"
[[arms]]
name = "second"
alphas = "0.5"
every = "step"
more = [
  {{ alpha = "0.2", coupling = "self", every = "step", moments = "zero" }},
  {{ coupling = "relax", relax_after = "50%" }},
  {{ coupling = "pathway" }},
  {{ coupling = "gate" }},
]
[budgets.smoke]
seeds = 2
settings = {{ epochs = {epochs} }}
"""


class Failed(Exception):
    """What must not happen."""


class Killer:
    """One command, killed again and again in folders below `place`."""

    def __init__(self, command: str, engine: str, place: Path, *, seed: int = 0):
        import tiny_runs

        epochs = 12 if engine == "local" else 5  # where starting takes longer, less of it is training
        self.engine, self.place = engine, place
        self.random, self.counts = random.Random(f"{command} {engine} {seed}"), Counter[str]()
        self.working, self.temporary = place / "w", place / "t"
        self.working.mkdir()
        self.temporary.mkdir()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
            "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            "TMPDIR": str(self.temporary), "RAY_TMPDIR": str(self.temporary), "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_gcs_rpc_server_reconnect_timeout_s": "5",  # its agents look that long for a Ray that is gone
        }  # fmt: skip
        self.cluster: subprocess.Popen[bytes] | None = None
        self.orphans: set[int] = set()  # workers whose driver was killed
        data = tiny_runs.save_npz(place / "bars.npz")
        network = ["--options=width=64", "--options=strides=[1,2,2]"]
        training = [f"--data={data}", "--batch=20", "--lr=0.003", "--backend=reference", f"--epochs={epochs}"]
        (place / "killed.toml").write_text(EXPERIMENT.format(data=data, epochs=epochs))
        own = {
            "sweep": [*network, *training, "--alpha=0,0.1,1", "--every=epoch,3", "--seeds=2", "--lanes-at-once=2"],
            "search": [*network, *training, "--trials=6", "--lanes-at-once=3", "--validation=0.25", "--seeds=2"],
            "reproduce": [str(place / "killed.toml"), "--no-report", "--lanes-at-once=2"],
        }
        on_ray = ["--engine=ray", "--cpus-per-run=1"] if engine != "local" else []
        self.arguments = [command, *own[command], "--threads=1", "--no-verify", "--quiet", *on_ray]

    def _start_cluster(self) -> None:
        """Start Ray with one node, which only this machine can reach, and have the command use it."""
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        port, client = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        self.environment |= {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listens on 127.0.0.1 only, on Linux as well
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex(),
        }  # fmt: skip
        head = ["start", "--head", "--block", "--include-dashboard=false", "--num-cpus=2", f"--port={port}"]
        memory = ["--object-store-memory=100000000", f"--temp-dir={self.temporary}"]
        where = ["--node-ip-address=127.0.0.1", f"--ray-client-server-port={client}"]
        self.cluster = self._popen([sys.executable, "-c", START, *head, *memory, *where], subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        with socket.socket() as asked:
            while asked.connect_ex(("127.0.0.1", port)) != 0:
                if self.cluster.poll() is not None or time.monotonic() > end:
                    raise Failed("Ray does not start")
                time.sleep(0.1)
        self.arguments.append(f"--address=127.0.0.1:{port}")

    def run(self, kills: int, say: Callable[[str], None]) -> Counter[str]:
        """Kill it so often, and show that all ends well; how often each way."""
        if self.engine == "cluster":
            self._start_cluster()
        begin = time.monotonic()
        process = self._start("whole")
        process.wait()
        self._check_end(process, "whole")
        seconds, expected = time.monotonic() - begin, bits(self.place / "whole")
        while self._kills < kills:
            folder = f"broken-{self.counts['ends']}"
            process, left = self._start(folder), WORKERS
            while not self._ended(process) and self._kills < kills:
                if self._wait(process, folder, seconds) and self._kill(process, left):
                    say(f"{self._kills} kills: {dict(self.counts)}")
                    left -= 1
            process.wait()
            if self._kills == kills and process.returncode == -signal.SIGKILL:
                process = self._start(folder)
                process.wait()
            if process.returncode != -signal.SIGKILL:
                self._check_end(process, folder)
                self.counts["ends"] += 1
                if other := difference(bits(self.place / folder), expected):
                    raise Failed(f"{folder} differs after {dict(self.counts)}: {other}")
                shutil.rmtree(self.place / folder)
        return self.counts

    @property
    def _kills(self) -> int:
        return sum(count for what, count in self.counts.items() if what.startswith("killed"))

    def _start(self, folder: str) -> "subprocess.Popen[bytes]":
        if self.cluster is None and self._processes():
            raise Failed("the process before it is still there")
        with open(self.place / "errors", "wb") as errors:
            command = [sys.executable, str(ROOT / "cli.py"), *self.arguments, f"--out={self.place / folder}"]
            return self._popen(command, errors)

    def _popen(self, command: list[str], errors: Any) -> "subprocess.Popen[bytes]":
        options: dict[str, Any] = {"cwd": self.working, "env": self.environment, "start_new_session": True}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, **options)

    def _ended(self, process: "subprocess.Popen[bytes]") -> bool:
        return process.poll() is not None

    def _check_end(self, process: "subprocess.Popen[bytes]", folder: str) -> None:
        if process.returncode != 0:
            errors = (self.place / "errors").read_text()
            raise Failed(f"{folder}: exit code {process.returncode} after {dict(self.counts)}: {errors}")
        self._check_nothing_left(PATIENCE)

    def _wait(self, process: "subprocess.Popen[bytes]", folder: str, seconds: float) -> bool:
        """Wait for a random moment: of a run's first half second, or of the whole command; False: it has ended."""
        early = self.random.random() < 0.5
        seen = self._runs if early else self._files
        before, end = seen(folder), time.monotonic() + 2 * seconds
        while seen(folder) == before and time.monotonic() < end:
            if self._ended(process):
                return False
            time.sleep(0.002)
        time.sleep(self.random.uniform(0, FIRST if early else seconds / 3))
        return not self._ended(process)

    def _runs(self, folder: str) -> set[Path]:
        """Those that have begun."""
        return {path.parent for path in (self.place / folder).rglob(".lock")}

    def _files(self, folder: str) -> set[tuple[Path, int]]:
        """Those of all runs, with their times: they change when a process goes on with a run."""
        found = set()
        for path in (self.place / folder).rglob("*"):
            try:
                found.add((path, path.stat().st_mtime_ns))
            except FileNotFoundError:
                continue
        return found

    def _kill(self, process: "subprocess.Popen[bytes]", workers: int) -> bool:
        """Kill the command, or on Ray perhaps one of its workers instead."""
        at_work = [pid for pid in self._processes() if RUN.match(_name(pid))]
        if self.engine != "local" and workers > 0 and self.random.random() < 0.5:
            found = [pid for pid in at_work if pid not in self.orphans]
            if not found:
                return False
            _kill_process(self.random.choice(found))
            self.counts["killed workers"] += 1
            return True
        if self.engine == "local":
            os.killpg(process.pid, signal.SIGKILL)
            self.counts["killed"] += 1
        else:
            _kill_process(process.pid)
            self.counts["killed drivers"] += 1
            self.orphans.update(at_work)
        process.wait()
        if self.engine != "cluster" or self.random.random() < 0.5:
            self._check_nothing_left(PATIENCE)
        return True

    def _check_nothing_left(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while left := [pid for pid in self._processes() if not self._stays(pid)]:
            if time.monotonic() > end:
                raise Failed(f"still there after {seconds:g} s: {[_name(pid) for pid in left]}")
            time.sleep(0.05)

    def _stays(self, pid: int) -> bool:
        """Whether it is of the cluster, and not of a command."""
        return self.cluster is not None and OF_CLUSTER.match(_name(pid)) is not None

    def _processes(self) -> list[int]:
        """Those alive that work in the folder of this killer; one that has ended works nowhere."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "cwd") == str(self.working):
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    def end(self) -> None:
        """Leave no process behind, whatever has happened."""
        if self.cluster is not None:
            self.cluster.kill()
            self.cluster.wait()
        while left := self._processes():
            for pid in left:
                _kill_process(pid)
            time.sleep(0.05)


def bits(folder: Path) -> dict[str, bytes]:
    """What must be the same: metrics and results, and what a search or an experiment has found."""
    names = ("metrics.jsonl", "result.json", "search.json")
    found = {str(path.relative_to(folder)): path.read_bytes() for name in names for path in folder.rglob(name)}
    for path in folder.rglob("experiment.json"):
        said = json.loads(path.read_text()) | {"command": ""}
        found[str(path.relative_to(folder))] = json.dumps(said).encode()
    return found


def difference(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """The first file that differs, and how; nothing if none does."""
    for name in sorted(found.keys() | expected.keys()):
        ours, theirs = (files.get(name, b"").splitlines() for files in (found, expected))
        if ours != theirs:
            lines = next((pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]), None)
            return f"{name} has {len(ours)} lines, {len(theirs)} expected; the first that differ: {lines}"
    return ""


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def _kill_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill(
    command: str, engine: str, kills: int, *, seed: int = 0, say: Callable[[str], None] = lambda text: None
) -> str:
    """What came of it, in a line."""
    with TemporaryDirectory(prefix="k-") as place:  # short: Ray makes sockets in it
        killer = Killer(command, engine, Path(place), seed=seed)
        try:
            counts = killer.run(kills, say)
        finally:
            killer.end()
    killed = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()) if what != "ends")
    where = {"local": "one process", "ray": "a Ray of its own", "cluster": "a Ray cluster"}[engine]
    return f"{command}, {where}: {killed}; {counts['ends']} ends, all with the same bits"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commands", nargs="*", choices=[*COMMANDS, []], metavar="{sweep,search,reproduce}")
    parser.add_argument("--engine", choices=ENGINES, default="local")
    parser.add_argument("--kills", type=int, default=20, help="of each command")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    given = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    for name in given.commands or COMMANDS:
        print(kill(name, given.engine, given.kills, seed=given.seed, say=lambda text: print(text, file=sys.stderr)))
