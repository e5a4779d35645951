"""The teaching page: a structured layer, its matrix and what each entry connects, in one self-contained HTML file.

`page.html` is the frame. `style.css`, `priors.js` (the maths), `page.js` (the drawing) and `accuracy.json` (written by
`results/build.py`) are inserted into it.
"""

import json
from importlib.resources import files

from imlp import kinds
from imlp.look.explain import APPENDICES, place


def page() -> str:
    """The whole page as HTML."""
    text = _read("page.html")
    known = {
        name: {"equation": kind.equation, "meaning": kind.meaning, "place": place(kinds.make(name))}
        for name, kind in kinds.KINDS.items()
    }
    data = {"kinds": known, "paper": APPENDICES, "accuracy": json.loads(_read("accuracy.json"))}
    parts = {
        "style": _read("style.css"),
        "data": json.dumps(data).replace("<", "\\u003c"),
        "script": _read("priors.js") + _read("page.js"),
    }
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}", part)
    return text


def _read(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")
