"""The wheel: its metadata, what it contains, and that no hint installs another project that is called imlp."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import imlp
from imlp.errors import OPTIONAL, install_hint

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OTHER_PROJECT = re.compile(r"\binstall\b[^\n`]*[\s'\"](imlp|interpolated-mlps)\b(?![./])|\bimlp\[")
TEXTS = [
    path
    for folder in ("imlp", "docs", "examples", "notebooks", "benchmarks", ".")
    for path in (ROOT / folder).glob("*" if folder == "." else "**/*")
    if path.suffix in (".py", ".md", ".toml", ".yaml", ".sh", ".ipynb", ".html", ".js", ".cff") and path.is_file()
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """Built from a copy, for setuptools writes beside the sources, and by it alone: pip would ask for the network."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "imlp", source / "imlp", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(folder / done.stdout.splitlines()[-1])


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def test_the_distribution_has_a_name_of_its_own(wheel):
    found = metadata(wheel)
    assert (found["Name"], found["Version"]) == ("interpolated-mlps", imlp.__version__)
    assert sorted(found.get_all("Provides-Extra")) == sorted(OPTIONAL)


def test_the_wheel_has_all_files_of_the_package(wheel):
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "imlp").rglob("*") if path.is_file()}
    inside = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert inside == {name for name in files if "__pycache__" not in name}


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_a_hint_names_the_packages_of_its_extra(extra):
    packages = [re.match(r"[\w-]+", wanted)[0] for wanted in PROJECT["optional-dependencies"][extra]]
    assert install_hint(extra).endswith(f"pip install {' '.join(packages)}")


def test_nothing_tells_anybody_to_install_another_project():
    assert OTHER_PROJECT.search("pip install 'imlp[accel]'")
    assert [path for path in TEXTS if OTHER_PROJECT.search(path.read_text())] == []
