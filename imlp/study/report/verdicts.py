"""Verdicts on claims as the page lists and counts them."""

from collections.abc import Mapping, Sequence
from html import escape

from imlp.study.report.html_parts import folded

MARKS = {"holds": "✓", "fails": "✗", "cannot tell": "?"}  # before the word, for those who see no colour


def verdict_list(verdicts: Sequence[Mapping[str, str]]) -> str:
    """Those that hold or fail, then, folded if they are many, those that cannot be told."""
    decided = [row for row in verdicts if row["verdict"] in ("holds", "fails")]
    unclear = [row for row in verdicts if row not in decided]
    few = len(unclear) <= 2
    parts = [_items([*decided, *(unclear if few else [])])]
    if not few:
        parts.append(folded(f"? {len(unclear)} claims cannot be told by these runs", _items(unclear), printed=True))
    return "".join(parts)


def _items(rows: Sequence[Mapping[str, str]]) -> str:
    items = "".join(
        f'<li class="{_class(row["verdict"])}"><strong><span class="mark" aria-hidden="true">'
        f"{MARKS.get(row['verdict'], '')}</span> {escape(row['verdict'])}</strong> "
        f"{escape(row['claim'])}<br><span class='quiet'>{escape(row['because']).replace('+-', '±')}</span></li>"
        for row in rows
    )
    return f"<ul class='verdicts'>{items}</ul>" if items else ""


def counts(verdicts: Sequence[Mapping[str, str]]) -> tuple[int, int, int]:
    """How many hold, fail, and cannot be told."""
    kinds = [_class(row["verdict"]) for row in verdicts]
    return kinds.count("holds"), kinds.count("fails"), kinds.count("unclear")


def _class(verdict: str) -> str:
    return {"holds": "holds", "fails": "fails"}.get(verdict, "unclear")
