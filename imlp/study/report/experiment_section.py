"""The section of the page about one experiment: its arms' figures, the verdicts, ours beside the paper's."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from imlp.study.report import tables
from imlp.study.report.arm_section import LONGEST, arm_content, main_figure
from imlp.study.report.data import ArmData, SearchData
from imlp.study.report.html_parts import downloads, folded, table_with_files
from imlp.study.report.verdicts import verdict_list


def experiment_content(
    n: int,
    found: dict[str, Any],
    arms: Sequence[ArmData],
    owner: Mapping[str, int],
    searches: Sequence[SearchData],
    files: Mapping[str, bytes],
) -> str:
    """What it asks, each arm that this section shows, then the verdicts and the table."""
    by_key, links, own, elsewhere = {arm.key: arm for arm in arms}, [], [], []
    for named in found["arms"]:
        arm, name = by_key.get(named["key"]), escape(named["name"])
        links.append(f'<a href="#{escape(arm.id)}">{name}</a>' if arm else f"{name}: no run of it")
        if arm and owner.get(arm.key) == n:
            own.append(arm)
        elif arm:
            elsewhere.append(arm)
    many = len(links) > 1 or not own
    shown = [
        f'<section class="arm" id="{arm.id}" aria-labelledby="{arm.id}-title">'
        f'<h3 id="{arm.id}-title"{"" if many else " class=hidden"}>{escape(arm.name)}</h3>'
        f"{arm_content(arms.index(arm), arm, searches, files)}</section>"
        for arm in own
    ]
    table = table_with_files(tables.experiment(n, found), files)
    parts = [
        f"<p>{_with_code(found['asks'])}</p>",
        verdict_list(found["verdicts"]),
        downloads("Verdicts", f"experiment{n}-verdicts", ("csv", "tex"), files) if found["verdicts"] else "",
        f"<p class='quiet'>Arms: {', '.join(links)}</p>" if many else "",
        *(main_figure(arms.index(arm), arm, files, own=f"experiment{n}-{arm.id}") for arm in elsewhere),
        *shown,
        "<h3>Ours and the paper's</h3>",
        _distance(found),
        folded(f"All {len(found['table'])} models", table) if len(found["table"]) > LONGEST else table,
        f"<p class='quiet'>Experiment {escape(found['name'])}, budget {escape(found['budget'])}: "
        f"<code>{escape(found['command'])}</code></p>",
    ]
    return "\n".join(filter(None, parts))


def _with_code(text: str) -> str:
    """
    >>> _with_code("`self` & more")
    '<code>self</code> &amp; more'
    """
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))


def _distance(found: Mapping[str, Any]) -> str:
    if not found.get("lacking") or all(row["paper"] is None for row in found["table"]):
        return ""
    return (
        f"<p class='quiet'>Not the paper's setting ({escape(found['lacking'])}): its numbers stand beside ours, and "
        "nothing is subtracted.</p>"
    )
