"""Objects from outside the package: what they are, and what is refused in one line."""

import dataclasses
import hashlib
import sys

import pytest

from imlp import plugins
from imlp.errors import OutsideError


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes mine.py into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_texts", {})
    before = set(sys.modules)

    def write(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return name

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("imlp_outside_"):
            del sys.modules[name]


MINE = """from __future__ import annotations
from dataclasses import dataclass

@dataclass(frozen=True)
class Ring:
    n: int

def ring(n=3):
    return Ring(n)
"""


def test_an_object_of_a_file_comes_with_the_files_text(file):
    file(MINE)
    found = plugins.imported("mine.py:ring")
    assert (found.place, found.name, found.text, found.in_file) == ("mine.py", "ring", MINE, True)
    assert found.value(5).n == 5
    assert dataclasses.is_dataclass(plugins.imported("mine.py:Ring").value)
    assert len(found.digest) == 64


def test_one_text_is_run_once_wherever_it_lies(file, tmp_path):
    file(MINE)
    file(MINE, "copy.py")
    one, other = (plugins.imported(f"{name}:Ring").value for name in ("mine.py", str(tmp_path / "copy.py")))
    assert one is other
    file(MINE + "# edited\n")
    assert plugins.imported("mine.py:Ring").value is not one


def test_a_text_that_was_sent_stands_for_its_file(file):
    with pytest.raises(OutsideError, match=r"there is no file far\.py"):
        plugins.imported("far.py:ring")
    text = f"{MINE}# sent\n"
    plugins.received("far.py", "ring", text)
    assert plugins.imported("far.py:ring").text == text


def test_an_object_of_a_package_comes_with_the_text_that_defines_it():
    found = plugins.imported("email.message:Message")
    assert "class Message" in found.text
    assert not found.in_file
    assert "class JSONDecoder" in plugins.imported("json:JSONDecoder").text  # defined in json.decoder
    assert plugins.imported("math:sqrt").text == ""


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("mine.py", r"'mine\.py' names no object; write FILE\.py:NAME or package\.module:NAME"),
        ("mine.py:", "names no object"),
        (":ring", "names no object"),
        ("mine.py:a b", "names no object"),
        ("mine.py:rin", r"mine\.py has no 'rin'; did you mean 'ring'\? it defines Ring, ring"),
        ("min.py:ring", r"there is no file min\.py; did you mean 'mine\.py'\? name a Python file"),
        ("no/where/mine.py:ring", r"there is no file no/where/mine\.py; name a Python file"),
        ("json:JSONDecode", "json has no 'JSONDecode'; did you mean 'JSONDecoder'"),
        ("jsonn:Decoder", r"there is no package or module jsonn; install it, or name a file: jsonn\.py:NAME"),
        ("json.decode:x", r"there is no package or module json\.decode"),
    ],
)
def test_what_is_not_there_is_refused_with_the_nearest_name(reference, message, file):
    file(MINE)
    with pytest.raises(OutsideError, match=message):
        plugins.imported(reference)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = z\n", r"mine\.py, line 2: NameError: name 'z' is not defined; correct the file"),
        ("x = 1\n\ndef f(:\n", r"mine\.py, line 3: SyntaxError: "),
        ("import no_such_package\n", "line 1: ModuleNotFoundError: .*; install what it imports; a file cannot import"),
        ("def f():\n    raise KeyError\n\nf()\n", "line 2: KeyError"),
        ("raise ValueError('one\\ntwo')\n", "line 1: ValueError: one; correct"),
        ("import sys\nsys.exit('no')\n", "line 2: SystemExit: no"),
        ("raise GeneratorExit('no')\n", "line 1: GeneratorExit: no"),
        ("raise BaseException('no')\n", "line 1: BaseException: no"),
        ("x = '\0'\n", "null bytes"),
    ],
)
def test_an_error_of_the_file_is_told_with_its_line(text, message, file):
    file(text)
    with pytest.raises(OutsideError, match=message) as error:
        plugins.imported("mine.py:f")
    assert "\n" not in str(error.value)
    assert f"imlp_outside_{hashlib.sha256(text.encode()).hexdigest()[:16]}" not in sys.modules


def test_a_file_that_is_not_text_is_refused(file, tmp_path):
    (tmp_path / "mine.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(OutsideError, match=r"cannot read mine\.py: .*; name a Python file in UTF-8"):
        plugins.imported("mine.py:x")
