"""How Sphinx builds these pages: `make docs`. Nothing is fetched, neither by the build nor by the pages."""

import json
import re
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import figures  # noqa: E402

import imlp  # noqa: E402
from imlp.look import explore  # noqa: E402

project = "imlp"
author = "the authors of imlp"
release = imlp.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "figures/extra"]
html_theme = "furo"
html_extra_path = ["figures/extra"]
html_title = f"imlp {release}"
html_show_copyright = False
html_show_sphinx = False
html_math_renderer = "mathml"
pygments_style = "default"
pygments_dark_style = "monokai"

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # torch's own text for `forward` says nothing of ours
autodoc_type_aliases = {"Array": "Array"}
autodoc_default_options = {"exclude-members": "__init__, __new__"}
# What other packages document, and our own short names of types.
nitpick_ignore_regex = [
    ("py:class", r"(collections|numpy|np|scipy|sparse|torch|filelock|dataclasses|pathlib|contextlib)\..*"),
    (
        "py:class",
        r"(Any|Array|Image|Path|Tensor|Watch|Task|Outcome|optional|"
        r".*\.(Alpha|Arm|Backend|Branching|Coupling|LearningRate|Line|Mixing|Optimizer|Replacing|Callback|Dataset|Memory|Model|Refused|Row|Draw|Schedule"
        r"|SearchOutcome|ExperimentOutcome|T))",
    ),
]


def setup(app: Any) -> None:
    figures.draw(HERE / "figures")
    (HERE / "figures" / "extra").mkdir(exist_ok=True)
    (HERE / "figures" / "extra" / "explore-page.html").write_text(explore.page())
    for path in sorted(HERE.glob("../notebooks/*.ipynb")):
        _render(path, HERE / "figures")
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
    app.connect("autodoc-process-docstring", _as_rest)


def _render(notebook: Path, folder: Path) -> None:
    """A notebook as a page: its text and code, and the output that is kept in it."""
    parts = []
    for n, cell in enumerate(json.loads(notebook.read_text())["cells"]):
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for k, output in enumerate(cell.get("outputs", [])):
            if picture := output.get("data", {}).get("image/png"):
                name = f"{notebook.stem}-{n}-{k}.png"
                (folder / name).write_bytes(b64decode(picture))
                parts.append(f"![drawn by the code above]({name})")
            else:
                parts.append(f"```text\n{''.join(output.get('text') or output['data']['text/plain'])}\n```")
    text = "\n\n".join(parts).replace("](../docs/", "](../")
    text = re.sub(r"\[([^]]+)\]\(\.\./(results/[^)]+)\)", r"\1 (`\2`)", text)  # not one of these pages
    (folder / f"{notebook.stem}.md").write_text(text)


def _inline_math(writer: Any, node: nodes.math) -> None:
    """A formula as MathML, which browsers draw by themselves: no script, no fonts, no network."""
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block_math(writer: Any, node: nodes.math_block) -> None:
    style = "margin: 1em 0; overflow-x: auto; overflow-y: hidden"
    writer.body.append(f'<div style="{style}">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _as_rest(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Our docstrings are plain text with `code`, tables, examples and indented formulas; Sphinx reads reST."""
    blocks = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    lines[:] = "\n\n".join(map(_block, blocks)).split("\n")


def _block(text: str) -> str:
    if text.startswith(">>>"):
        return text
    if text.startswith((" ", "|")):
        return "::\n\n" + "\n".join(f"    {line}" for line in text.split("\n"))
    return "``".join(
        part if inside else re.sub(r"([|_\\])", r"\\\1", part)
        for inside, part in ((n % 2, part) for n, part in enumerate(text.split("`")))
    )
