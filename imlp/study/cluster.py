"""The tasks of a sweep on Ray: a cluster, or one that is started on this machine for the time of the sweep.

Each task runs the same `run_task` as the engine of one machine, so it leaves the same files. A worker that sees the
sweep's folder writes there itself. One that does not works in a folder of its own, takes from the post office what is
there already, and sends every file back to it. The post office is an actor on the driver's machine; it also carries
news of the runs one way and the wish to stop the other.
"""

import dataclasses
import hashlib
import logging
import os
import platform
import secrets
import socket
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

import imlp
from imlp import machine
from imlp.errors import ConfigError, ImlpError, RunError, install_hint
from imlp.files import make_folder
from imlp.study.sweep import Outcome, Stoppable, Task, Watcher, drop_records, is_player, run_task, write_log
from imlp.train.callbacks import Callback, Row
from imlp.train.config import Config
from imlp.train.data import Dataset
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_folder import RunFolder

RETRIES = 10  # of a run whose worker or machine dies; one that fails by itself is never tried again
PATIENCE = 120.0  # seconds that a run waits for an orphan of its own to let go of its folder
TELL, LOOK = 0.5, 0.25  # seconds between two pieces of news of a run, and between two looks of the driver
PIECE = 64 * 2**20  # bytes of a file in one message


@dataclass(frozen=True)
class Cluster:
    """A Ray that this process is connected to, and what one run takes of it (None: what its settings say)."""

    cpus: int | None = None
    gpus: float | None = None

    def needs(self, config: Config) -> tuple[int, float]:
        """CPUs and GPUs of a run: as many CPUs as threads, and a GPU wherever there is one and the run may use it."""
        import ray

        some = 1.0 if ray.cluster_resources().get("GPU") and config.device != "cpu" else 0.0
        return self.cpus or config.threads or 1, some if self.gpus is None else self.gpus

    def room(self, config: Config) -> float:
        """Bytes for one run, where as many run at a time as Ray will start on the smallest machine that takes any."""
        cpus, gpus = self.needs(config)
        if gpus:
            return machine.free_memory(machine.device(config.backend, config.device, config.dtype)) * min(1.0, gpus)
        return min(node["memory"] / max(1, node["CPU"] // cpus) for node in self.nodes_for(config))

    def runs(self, config: Config) -> int:
        """How many runs the cluster takes at a time."""
        cpus, _ = self.needs(config)
        return int(sum(max(1, node["CPU"] // cpus) for node in self.nodes_for(config)))

    def settings(self, config: Config) -> Config:
        """The settings with which a worker runs it: threads are never left to chance, for bits depend on them."""
        cpus, gpus = self.needs(config)
        place = "cpu" if config.device == "auto" and not gpus else config.device
        return dataclasses.replace(config, threads=config.threads or cpus, device=place)

    def nodes_for(self, config: Config) -> list[dict[str, float]]:
        """What the machines have that can take a run."""
        import ray

        cpus, gpus = self.needs(config)
        nodes = [{"CPU": 0.0, "GPU": 0.0, **node["Resources"]} for node in ray.nodes() if node["Alive"]]
        fit = [node for node in nodes if node["CPU"] >= cpus and node["GPU"] >= gpus]
        if not fit:
            most = " and ".join(f"{max(node[kind] for node in nodes):g} {kind}s" for kind in ("CPU", "GPU"))
            remedy = f"the most that one has is {most}; give a smaller --cpus-per-run or --gpus-per-run"
            raise ConfigError(f"no machine of the cluster has {cpus} CPUs and {gpus:g} GPUs for a run", remedy)
        return fit


@contextmanager
def connected(address: str | None = None, *, cpus: int | None = None, gpus: float | None = None) -> Iterator[Cluster]:
    """Join the cluster at `address` (`auto`, `HOST:PORT`); None starts Ray on this machine, for itself alone."""
    if find_spec("ray") is None:
        raise ConfigError("Ray is not installed", install_hint("ray"))
    if address is not None and "://" in address:
        raise ConfigError(f"address is {address!r}", "run this on a machine of the cluster, with --address auto")
    if address not in (None, "auto", "local"):
        _refuse_silence(str(address))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listens on 127.0.0.1 only, on Linux as well
        if "RAY_AUTH_MODE" not in os.environ:  # a password for this time only: Ray's own would stay in the home folder
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray

    own: dict[str, Any] = {} if address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[0]
        remedy = "start it with ray start, and if it has a token, set RAY_AUTH_MODE=token here too (docs/scale.md)"
        raise RunError(f"cannot reach Ray at {address or 'this machine'}: {reason}", remedy) from error
    try:
        yield Cluster(cpus, gpus)
    finally:
        ray.shutdown()


def _refuse_silence(address: str) -> None:
    """Ray itself would wait for minutes where nobody answers."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigError(f"address is {address!r}", "use auto, or HOST:PORT of the cluster's first machine")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        remedy = "start it with ray start --head there, and see that this machine may reach it (docs/scale.md)"
        raise RunError(f"nobody answers at {address}: {error}", remedy) from error


def versions() -> dict[str, str]:
    """What has to be the same on every machine.

    >>> versions()["imlp"].startswith(imlp.__version__)
    True
    """
    found = {"imlp": f"{imlp.__version__} (source {_digest(Path(imlp.__file__).parent)[:8]})"}
    found["python"] = ".".join(platform.python_version_tuple()[:2])
    for name in ("numpy", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def _digest(home: Path) -> str:
    """SHA-256 of every file of the package, whatever its kind, but for what Python compiles from them."""
    sha = hashlib.sha256()
    for path in sorted(path for path in home.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        name, content = path.relative_to(home).as_posix().encode(), path.read_bytes()
        sha.update(b"%d %d " % (len(name), len(content)) + name + content)
    return sha.hexdigest()


def _differing(there: dict[str, str], here: dict[str, str]) -> str:
    return ", ".join(
        f"{name} {there.get(name)} instead of {here[name]}" for name in here if there.get(name) != here[name]
    )


def _check_versions(environment: dict[str, Any]) -> None:
    """Refuse machines that would not run the same program; those that join later are asked by each run.

    Asked in the environment of the runs, for which the processes that answer are used then.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask, wrong, here = ray.remote(versions), [], versions()
    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            on_it = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[node["NodeManagerHostname"], node["NodeID"]] = ask.options(
                num_cpus=0, scheduling_strategy=on_it, runtime_env=environment
            ).remote()
    for (host, _), answer in asked.items():
        try:
            different = _differing(ray.get(answer), here)
        except ray.exceptions.RayError as error:
            different = f"no imlp that answers ({str(error).strip().splitlines()[-1]})"
        if different:
            wrong.append(f"{host} has {different}")
    if wrong:
        raise RunError("; ".join(wrong), "install the same versions on every machine, then give the same command again")


# The driver's side


@dataclass
class _Driver:
    """What a signal's handler marks."""

    stop_requested: str | None = None


def run_on_ray(
    tasks: Sequence[Task],
    data: Dataset,
    watcher: Watcher,
    guard: Callable[[Stoppable], AbstractContextManager[None]] = lambda driver: nullcontext(),
    *,
    cluster: Cluster,
) -> list[Outcome]:
    """As many tasks at a time as the cluster takes. One that fails for its own reasons does not take others down."""
    import ray

    watcher.planned(tasks)
    outcomes: dict[int, Outcome] = {}
    for key, task in enumerate(tasks):
        found = Trainer(task.config, data, task.folder).finished() if task.finished else None
        if found is not None:
            outcomes[key] = Outcome(task, found)
            watcher.ended(outcomes[key])
    left = {key: task for key, task in enumerate(tasks) if key not in outcomes}
    if left:
        _check_versions(_environment(cluster.settings(next(iter(left.values())).config)))
        driver = _Driver()
        with _marked({task.folder.parent for task in left.values()}) as marker, guard(driver), _post_office() as post:
            refs = _submit(left, data, cluster, marker, post)
            try:
                _follow(refs, tasks, outcomes, watcher, post, driver)
            finally:
                for ref in refs:
                    ray.cancel(ref, recursive=False)
        if len(outcomes) < len(tasks):
            raise Interrupted(f"stopped by {driver.stop_requested}", "nothing is lost: give the same command again")
    ordered = [outcomes[key] for key in range(len(tasks))]
    drop_records(ordered)
    return ordered


@contextmanager
def _marked(folders: set[Path]) -> Iterator[str]:
    """A file with a random name in each folder: a worker that finds it shares the folder with the driver."""
    name = f".driver-{secrets.token_hex(8)}"
    try:
        for folder in folders:
            make_folder(folder)
            (folder / name).touch()
        yield name
    finally:
        for folder in folders:
            (folder / name).unlink(missing_ok=True)


@contextmanager
def _post_office() -> Iterator[Any]:
    """A post office on this machine. It ends with this process, and so do all workers that it serves."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
    post: Any = ray.remote(PostOffice).options(**options).remote()
    try:
        yield post
    finally:
        ray.kill(post)


def _submit(left: dict[int, Task], data: Dataset, cluster: Cluster, marker: str, post: Any) -> dict[Any, int]:
    """Hand all tasks to Ray; the data go once into its store."""
    import ray

    work, stored, here, refs = ray.remote(_work), ray.put(data), versions(), {}
    for key, task in left.items():
        cpus, gpus = cluster.needs(task.config)
        cluster.nodes_for(task.config)
        config = cluster.settings(task.config)
        recorder = task.recorder if is_player(task) else None  # groups of a seed run beside each other: no records
        own = dataclasses.replace(task, config=config, folder=task.folder.absolute())
        own = dataclasses.replace(own, recorder=recorder and recorder.absolute())
        job = _Job(key, own, marker, data.digest, here, tuple(sys.argv))
        ref = work.options(
            num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False,
            scheduling_strategy="SPREAD", runtime_env=_environment(config), name=task.folder.name,
        ).remote(job, stored, post)  # fmt: skip
        refs[ref] = key
    return refs


def _environment(config: Config) -> dict[str, Any]:
    """Of a worker: torch is told its threads, NumPy has to find them when it starts."""
    return {"env_vars": {name: str(config.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}}


def _follow(
    refs: dict[Any, int],
    tasks: Sequence[Task],
    outcomes: dict[int, Outcome],
    watcher: Watcher,
    post: Any,
    driver: _Driver,
) -> None:
    """Hear the runs and take their results, until all have ended or, once asked to stop, those that had begun."""
    import ray

    begun, told = set(), False
    while refs:
        ready = ray.wait(list(refs), timeout=LOOK)[0]
        for key, what, value in ray.get(post.news.remote()):
            begun.add(key)
            if what == "warned":
                watcher.warned(tasks[key], value)
            elif what == "update" and key not in outcomes:
                watcher.update(tasks[key], **value)
        for ref in ready:
            key = refs.pop(ref)
            begun.discard(key)
            outcome = _outcome(tasks[key], ref)
            if outcome is not None:
                outcomes[key] = outcome
                watcher.ended(outcome)
        if driver.stop_requested is not None and not told:
            ray.get(post.ask_to_stop.remote(driver.stop_requested))
            told = True
        if told and not begun:
            return


def _outcome(task: Task, ref: Any) -> Outcome | None:
    """What came of a task; None for one that was stopped."""
    import ray

    try:
        done: _Done = ray.get(ref)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        why = f"Ray gave it up ({type(error).__name__}: {lines[0]})"
        return Outcome(task, None, f"{why}; its checkpoints are there: give the same command again")
    return None if done.stopped else Outcome(task, done.result, done.error)


# The worker's side


@dataclass(frozen=True)
class _Job:
    """One task as it travels."""

    key: int
    task: Task
    marker: str
    digest: str
    versions: dict[str, str]
    command: tuple[str, ...]


@dataclass(frozen=True)
class _Done:
    """What came of it, as it travels back."""

    result: dict[str, Any] | None = None
    error: str | None = None
    stopped: bool = False


def _work(job: _Job, data: Dataset, post: Any) -> _Done:
    """Run a task in this process; only the death of the process or its machine is for Ray to mend."""
    import ray

    if ray.get(post.begun.remote(job.key, platform.node())):
        return _Done(stopped=True)
    different = _differing(versions(), job.versions)
    if different:
        return _Done(error=f"{platform.node()} has {different}; install the same versions on every machine")
    if dataclasses.replace(data).digest != job.digest:  # of the arrays as they have arrived
        return _Done(error=f"the data were damaged on their way to {platform.node()}; give the same command again")
    sys.argv = list(job.command)  # what env.json will name
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)  # nobody writes to it
    news = _News(post, job.key)
    try:
        with _folder(job, post) as (folder, callbacks):
            done = _run(dataclasses.replace(job.task, folder=folder), data, [news, *callbacks])
            error = done.error and done.error.replace(str(folder), str(job.task.folder))
            done = dataclasses.replace(done, error=error)
    except (ray.exceptions.RayTaskError, ImlpError) as error:  # its files did not come, or did not go
        done = _Done(error=_in_a_line(error))
    news.close()
    return done


def _run(task: Task, data: Dataset, callbacks: Sequence[Callback]) -> _Done:
    try:
        _await_orphan(task.folder)
        outcome = run_task(task, data, callbacks)
    except Interrupted:
        return _Done(stopped=True)
    except Exception as error:  # a fault of the program or the machine: it must not take other runs down
        write_log(task.folder)
        return _Done(error=_in_a_line(error))
    return _Done(outcome.result, outcome.error)


def _in_a_line(error: Exception) -> str:
    """An error of this process, or of the post office: then as it was there."""
    cause = getattr(error, "cause", None) or error
    return str(cause) if isinstance(cause, ImlpError) else f"{type(cause).__name__}: {cause}"


def _await_orphan(folder: Path) -> None:
    """Where the driver or a machine was killed, the last process of this run may be about to end; give it time."""
    lock = RunFolder(folder).lock
    if lock.exists():
        try:
            with FileLock(lock, timeout=PATIENCE):
                pass
        except Timeout:
            pass  # the trainer says who holds it


@contextmanager
def _folder(job: _Job, post: Any) -> Iterator[tuple[Path, list[Callback]]]:
    """Where this process works: the sweep's own folder if it is to be seen from here, else one whose files it sends."""
    folder = job.task.folder
    if (folder.parent / job.marker).exists():
        yield folder, []
        return
    with TemporaryDirectory(prefix="imlp-") as temporary:
        mail = _Mail(post, folder, Path(temporary) / folder.name)
        mail.fetch()
        try:
            yield mail.here, [mail]
        finally:
            mail.send()


class _News(Callback):
    """Tells the post office how the run goes on, and hears from it whether to stop."""

    def __init__(self, post: Any, key: int) -> None:
        self.post, self.key, self.told, self.answer = post, key, 0.0, None

    def started(self, trainer: Trainer) -> None:
        self._tell(trainer)

    def stepped(self, trainer: Trainer, images: int) -> None:
        if time.monotonic() - self.told > TELL:
            self._tell(trainer)

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        self._tell(trainer, rows)

    def warned(self, text: str) -> None:
        self.post.warned.remote(self.key, text)

    def _tell(self, trainer: Trainer, rows: Sequence[Row] = ()) -> None:
        import ray

        if self.answer is not None and ray.wait([self.answer], timeout=0)[0]:
            trainer.stop_requested = ray.get(self.answer)
        self.told = time.monotonic()
        share = min(trainer.state.step, trainer.steps - 1) / trainer.steps
        news = {"done": trainer.state.epoch + share, "rows": rows, "where": platform.node()}
        self.answer = self.post.tell.remote(self.key, news)

    def close(self) -> None:
        """Wait until the last word has arrived: the result must not overtake it."""
        import ray

        if self.answer is not None:
            ray.get(self.answer)


class _Mail(Callback):
    """Keeps the run's folder at the driver's like the one here; comes after each checkpoint."""

    def __init__(self, post: Any, there: Path, here: Path) -> None:
        self.post, self.there, self.here, self.sent = post, str(there), here, {}  # type: ignore[var-annotated]
        self.saved = 0.0

    def fetch(self) -> None:
        """Take what a run needs to go on."""
        import ray

        end = time.monotonic() + PATIENCE
        while (names := ray.get(self.post.listed.remote(self.there))) is None:
            if time.monotonic() > end:
                raise RunError(f"another process is training in {self.there}", "wait for it, or give another --out")
            time.sleep(1)
        for name in names:
            make_folder((self.here / name).parent)
            with open(self.here / name, "wb") as file:
                while piece := ray.get(self.post.read.remote(self.there, name, file.tell())):
                    file.write(piece)
        self.sent = self._files()

    def send(self) -> None:
        """Send what is new, what says which run it is first, the result last, and have deleted what is gone."""
        import ray

        files = self._files()
        for name in sorted(files, key=RunFolder.sending_order):
            if self.sent.get(name) == files[name]:
                continue
            with open(self.here / name, "rb") as file:
                while True:
                    start, piece = file.tell(), file.read(PIECE)
                    ended = file.tell() == files[name][1]
                    ray.get(self.post.write.remote(self.there, name, start, piece, ended))
                    if ended:
                        break
        gone = [name for name in self.sent if name not in files]
        if gone:
            ray.get(self.post.delete.remote(self.there, gone))
        self.sent = files

    def stepped(self, trainer: Trainer, images: int) -> None:
        if trainer.saved != self.saved:
            self._send_all(trainer)

    def epoch_ended(self, trainer: Trainer, rows: list[Row], seconds: dict[str, float]) -> None:
        self._send_all(trainer)

    def _send_all(self, trainer: Trainer) -> None:
        """Sending is a part of saving: a run that is far away saves less often."""
        begin = time.monotonic()
        self.send()
        if trainer.saved != self.saved:
            trainer.saving += time.monotonic() - begin
        self.saved = trainer.saved

    def _files(self) -> dict[str, tuple[int, int]]:
        """Every file of the run with its time and size."""
        paths = [path for path in self.here.rglob("*") if path.is_file() and not path.name.startswith(".")]
        stats = {path.relative_to(self.here).as_posix(): path.stat() for path in paths}
        return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}


class PostOffice:
    """An actor on the driver's machine: news and files from the workers, and the wish to stop to them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, str, Any]] = []
        self.starts: Counter[int] = Counter()
        self.stop: str | None = None
        self.locks: dict[str, FileLock] = {}

    def begun(self, key: int, where: str) -> str | None:
        """A worker has taken the task; the answer says whether to stop at once."""
        self.starts[key] += 1
        self.waiting.append((key, "begun", where))
        if self.starts[key] > 1:
            text = f"its worker died; going on from its last checkpoint on {where} (start {self.starts[key]})"
            self.waiting.append((key, "warned", text))
        return self.stop

    def tell(self, key: int, news: dict[str, Any]) -> str | None:
        self.waiting.append((key, "update", news))
        return self.stop

    def warned(self, key: int, text: str) -> None:
        self.waiting.append((key, "warned", text))

    def news(self) -> list[tuple[int, str, Any]]:
        """What has come since the last time."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def ask_to_stop(self, why: str) -> None:
        self.stop = why

    def listed(self, folder: str) -> list[str] | None:
        """The files that a run needs to go on; the folder is its own from now. None while another process has it."""
        if folder not in self.locks:
            make_folder(Path(folder))
            lock = FileLock(RunFolder(Path(folder)).lock)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return None
            self.locks[folder] = lock
        return RunFolder(Path(folder)).needed_to_resume()

    def read(self, folder: str, name: str, start: int) -> bytes:
        with open(Path(folder) / name, "rb") as file:
            file.seek(start)
            return file.read(PIECE)

    def write(self, folder: str, name: str, start: int, piece: bytes, ended: bool) -> None:
        """One piece of a file; with the last one it gets its name."""
        path = Path(folder) / name
        make_folder(path.parent)
        partial = path.with_name(f".{path.name}.part")
        with open(partial, "r+b" if start else "wb") as file:
            file.seek(start)
            file.write(piece)
            if ended:
                file.flush()
                os.fsync(file.fileno())
        if ended:
            os.replace(partial, path)

    def delete(self, folder: str, names: list[str]) -> None:
        for name in names:
            (Path(folder) / name).unlink(missing_ok=True)
