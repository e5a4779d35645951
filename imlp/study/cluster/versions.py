"""Every machine of a cluster has to run the same program: the same package, Python, NumPy and torch."""

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import imlp
from imlp.errors import RunError


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


def differing(there: dict[str, str], here: dict[str, str]) -> str:
    return ", ".join(
        f"{name} {there.get(name)} instead of {here[name]}" for name in here if there.get(name) != here[name]
    )


def check_versions(environment: dict[str, Any]) -> None:
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
            different = differing(ray.get(answer), here)
        except ray.exceptions.RayError as error:
            different = f"no imlp that answers ({str(error).strip().splitlines()[-1]})"
        if different:
            wrong.append(f"{host} has {different}")
    if wrong:
        raise RunError("; ".join(wrong), "install the same versions on every machine, then run the same command again")
