"""What Ray's workers are compared by: every file of the package."""

from pathlib import Path

import pytest

import imlp
from imlp.study.cluster import worker as cluster

HOME = Path(imlp.__file__).parent


@pytest.mark.parametrize("name", ["accel/rows.c", "accel/kernels.cu", "spec.py", "look/explore/page.js", "new.txt"])
def test_a_change_in_any_file_is_noticed(name, tmp_path):
    for path in HOME.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = tmp_path / path.relative_to(HOME)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    before = cluster._digest(tmp_path)
    assert before == cluster._digest(HOME)
    assert before[:8] in cluster.versions()["imlp"]
    with open(tmp_path / name, "ab") as file:
        file.write(b" ")
    assert cluster._digest(tmp_path) != before


def test_what_python_compiles_does_not_count(tmp_path):
    (tmp_path / "a.py").write_text("pass")
    before = cluster._digest(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"compiled")
    assert cluster._digest(tmp_path) == before
