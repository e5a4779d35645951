"""The README, the pages of docs/ and the notebooks do what they say.

The Python code of a page is run in order in one namespace and one folder, examples with `>>>` are compared with what
they print, and commands are run as a reader would give them. A block that takes long, or needs something that is
missing here, is preceded by `<!-- only parsed: REASON -->`: its commands and options only have to exist.
"""

import doctest
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import needs
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from imlp import kinds, networks
from imlp.cli import app
from imlp.plugins import is_outside

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BLOCK = re.compile(
    r"(?:<!-- only parsed: (?P<reason>[^>]+) -->\n+)?^```(?P<language>[^\n]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SHELL = ("", "sh")

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path) -> list[re.Match[str]]:
    return list(BLOCK.finditer(page.read_text()))


def lines(code: str) -> list[str]:
    return [line for line in code.splitlines() if line.split("#")[0].strip()]


@by_page
def test_its_examples_run(page, tmp_path, monkeypatch):
    needs("accel")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IMLP_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(networks, "NETWORKS", networks.NETWORKS.copy())  # a page may add to them
    names: dict = {"__name__": page.stem}
    for number, block in enumerate(blocks(page)):
        code, where = block["code"], f"{page.name}, block {number}"
        if block["reason"]:
            continue
        if file := re.match(r"# (\w+\.py)\n", code):  # a file of the reader's own
            Path(file[1]).write_text(code)
        elif block["language"] == "python":
            exec(compile(code, where, "exec"), names)
        elif block["language"] == "pycon":
            test = doctest.DocTestParser().get_doctest(code, names, where, str(page), 0)
            test.globs = names
            assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
        elif block["language"] in SHELL:
            for line in lines(code):
                run(line)
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)  # checkpoints are large, and pytest keeps the folder


def test_the_page_on_own_models_opens_with_the_five_lines_that_most_people_need():
    first = lines(blocks(ROOT / "docs/own-model.md")[0]["code"])
    assert len(first) == 5
    assert [f"{name}(" in " ".join(first) for name in ("imlp.nn.densify", "imlp.nn.Interpolation")] == [True, True]


def run(line: str) -> None:
    words = shlex.split(line, comments=True)
    assert not problem(words)
    if words[:2] == ["python", "cli.py"]:
        result = CliRunner().invoke(app, words[2:])
        assert result.exit_code == 0, f"{line}\n{result.output}"


@by_page
def test_its_commands_exist(page):
    text = page.read_text()
    shell = [line for block in blocks(page) if block["language"] in SHELL for line in lines(block["code"])]
    inline = re.findall(r"`((?:python|make|pip install|bash) [^`\n]+)`", BLOCK.sub("", text))
    for line in (*shell, *inline):
        assert not problem(shlex.split(line, comments=True)), line


def problem(words: list[str]) -> str:
    """What is wrong with a command, its options, a target of the Makefile, a script, or an extra of the package."""
    match words:
        case ["python", "cli.py", *given]:
            try:
                parse(get_command(app), given)
                if "--kind" in given and not is_outside(kind := given[given.index("--kind") + 1]):
                    kinds.find(kind)
            except Exception as error:
                return repr(error)
            return ""
        case ["make", *targets]:
            known = re.findall(r"^(\S+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            return ", ".join({*targets} - {*known})
        case ["python", "-m", module, *_]:
            return "" if find_spec(module) else module
        case ["python" | "bash", script, *_]:
            return "" if (ROOT / script).is_file() else script
        case ["pip", "install", "-e", package]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            return ", ".join({*re.findall(r"\w+", package)} - {*extras})
    return f"no test knows {words}"


def parse(command, given: list[str]) -> None:
    """Read options and arguments as the command line does, without doing anything."""
    context = command.make_context(command.name, list(given))
    if isinstance(command, TyperGroup):
        _, inner, rest = command.resolve_command(context, list(given))
        parse(inner, rest)


@pytest.mark.parametrize(
    "line",
    [
        "python cli.py trian",
        "python cli.py train --alfa 1",
        "python cli.py build-prior --kind convolution",
        "python cli.py data fetsh",
        "python benchmark/step.py",
        "make demmo",
        "pip install -e .[acel]",
    ],
)
def test_a_wrong_command_is_noticed(line):
    assert problem(line.split())


@by_page
def test_its_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists() or link.startswith("figures/"), link  # Sphinx draws the figures


def test_every_experiment_is_told_of():
    text = (ROOT / "docs" / "experiments.md").read_text()
    named = re.findall(r"^\| `([\w-]+)` \| .+ \|$", text, re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (ROOT / "imlp" / "paper" / "experiments").glob("*.toml"))


def test_the_pages_build(tmp_path):
    needs("sphinx")
    command = [sys.executable, "-m", "sphinx", "-qWn", "--keep-going", "-d", str(tmp_path / "trees"), "docs"]
    built = subprocess.run([*command, str(tmp_path / "html")], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    for page in PAGES[1:]:
        assert (tmp_path / "html" / page.with_suffix(".html").name).is_file()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_run_from_top_to_bottom(path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < 300_000
