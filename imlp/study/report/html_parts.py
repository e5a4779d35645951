"""The parts that every section of the page is made of: tables, folded content, links to download files."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

from imlp.study.report import tables

TYPES = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv", "tex": "application/x-tex"}
NAMES = {"png": "PNG", "svg": "SVG", "csv": "CSV", "tex": "LaTeX"}


def table_with_files(found: tables.Table, files: Mapping[str, bytes]) -> str:
    """A table, and links to download it."""
    return found.html() + downloads(found.title, found.id, ("csv", "tex"), files)


def folded(title: str, content: str, *, printed: bool = False) -> str:
    """Content that opens on a click; `printed` opens it on paper too."""
    own = ' class="printed"' if printed else ""
    return f"<details{own}><summary>{title}</summary>{content}</details>"


def section(kind: str, own: str, title: str, content: str, *, opened: bool, about: str = "") -> str:
    """A part of the page under a heading that opens it; what is closed is opened on paper and by links to it."""
    return (
        f'<section class="{kind}" id="{own}" aria-labelledby="{own}-title"><details class="part"{" open" * opened}>'
        f'<summary><h2 id="{own}-title">{escape(title)}</h2>{about}</summary>\n{content}\n</details></section>'
    )


def number_of(n: int, what: str) -> str:
    """
    >>> number_of(1, "run"), number_of(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def downloads(title: str, name: str, suffixes: Sequence[str], files: Mapping[str, bytes]) -> str:
    """Links that hand out the files called `name`, one for each suffix."""
    links = " ".join(
        f'<a download="{name}.{suffix}" href="{data_uri(suffix, files[f"{name}.{suffix}"])}" '
        f'aria-label="{escape(title)} as {NAMES[suffix]}">{NAMES[suffix]}</a>'
        for suffix in suffixes
    )
    return f'<p class="downloads">Download {links}</p>'


def data_uri(suffix: str, content: bytes) -> str:
    """A file's content as an address inside the page."""
    return f"data:{TYPES[suffix]};base64,{base64.b64encode(content).decode()}"
