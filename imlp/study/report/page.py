"""The page: its HTML, and the numbers that its script draws. Everything read from a file is escaped."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from string import Template
from typing import Any

import imlp
from imlp.study.cost import duration
from imlp.study.report.arm_section import arm_content, main_figure
from imlp.study.report.data import ArmData, SearchData
from imlp.study.report.experiment_section import experiment_content
from imlp.study.report.html_parts import number_of, section
from imlp.study.report.search_section import RESUME, search_section
from imlp.study.report.verdicts import counts
from imlp.study.two_lines import V

DRAWN = (  # what the script needs of a model
    "title", "alpha", "prior", "mean", "std", "epochs", "accuracy", "spread", "seeds", "layers", "random", "parts",
    "distance", "shade", "series",
)  # fmt: skip
MANY = 8  # sections that a table of contents lists without folding any
FEW = 4  # models that fit into one sentence, and remarks that need not be folded
EXPLAINED = (
    "A dense layer W is moved towards the dense form W<sub>P</sub> of a structured one, the prior: "
    "W &larr; (1 &minus; &alpha;) W + &alpha; W<sub>P</sub>. A lane is one such network with its alpha; an arm holds "
    "the runs that differ only in seeds and lanes. &plusmn; is the standard deviation over seeds."
)


@dataclass(frozen=True)
class Part:
    """A section of the page, and its line in the table of contents."""

    line: str
    section: str
    whole: bool  # finished, and as long as its claims need


def html(
    arms: Sequence[ArmData],
    experiments: Sequence[dict[str, Any]],
    searches: Sequence[SearchData],
    files: Mapping[str, bytes],
    *,
    names: Sequence[str] = (),
    finding: tuple[str, Path] | None = None,
) -> str:
    """The whole page; `files` are what its links hand out, `names` those of the folders that were asked for."""
    here = resources("imlp.study.report")
    owner = _owners(arms, experiments)
    alone = [arm for arm in arms if arm.key not in owner]
    several = len(experiments) + len(searches) + len(alone) > 1
    title = _title(alone, experiments, searches, names)
    lead = _lead(arms, finding)

    def heading(name: str) -> str:
        return name if several else "Results"  # one section alone would repeat the title

    parts = []
    for n, experiment in enumerate(experiments, start=1):
        content = experiment_content(n, experiment, arms, owner, searches, files)
        shown = section("experiment", f"experiment{n}", heading(experiment["title"]), content, opened=not several)
        parts.append(Part(_experiment_line(n, experiment, arms), shown, whole=not experiment.get("lacking")))
    for search in searches:
        name = heading(f"{search.name}{'' if search.finished else ' (unfinished)'}")
        shown = section("search", search.id, name, search_section(search, arms, files), opened=not several)
        parts.append(Part(_search_line(search, arms), shown, whole=search.finished))
    for arm in alone:
        content = arm_content(arms.index(arm), arm, searches, files)
        shown = section("arm", arm.id, heading(arm.name), content, opened=not several)
        parts.append(Part(_arm_line(arm), shown, whole=any(run.finished for run in arm.runs)))

    body = [_header(title, arms, experiments, lead, finding)]
    body += [_lead_figure(lead, arms, files)] if several and lead else []
    body += _contents(parts, _warnings(arms, searches))
    return Template((here / "page.html").read_text("utf-8")).substitute(
        title=escape(title),
        style=(here / "page.css").read_text("utf-8"),
        body="\n".join(body),
        data=_json([_drawn(arm) for arm in arms]),
        script=(here / "page.js").read_text("utf-8"),
        version=escape(imlp.__version__),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _owners(arms: Sequence[ArmData], experiments: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Which experiment's section shows an arm, by its key: the first that names it."""
    found: dict[str, int] = {}
    for n, experiment in enumerate(experiments, start=1):
        for named in experiment["arms"]:
            found.setdefault(named["key"], n)
    return {arm.key: found[arm.key] for arm in arms if arm.key in found}


def _title(
    alone: Sequence[ArmData],
    experiments: Sequence[dict[str, Any]],
    searches: Sequence[SearchData],
    names: Sequence[str],
) -> str:
    """What was asked for: the one experiment, search or arm, or the names of the folders."""
    titles = [experiment["title"] for experiment in experiments]
    titles += [search.name for search in searches] + [arm.name for arm in alone]
    if len(titles) == 1:
        return str(titles[0])
    kinds = ((experiments, "experiment", "experiments"), (searches, "search", "searches"))
    parts = [f"{len(own)} {one if len(own) == 1 else many}" for own, one, many in kinds if own]
    parts += [f"{len(alone)} {'other' if parts else ''} set{'s' * (len(alone) > 1)} of runs".replace("  ", " ")] * (
        alone != []
    )
    counted = ", ".join(parts)
    return f"{' and '.join(names)}: {counted}" if names else counted.capitalize()


def _lead(arms: Sequence[ArmData], finding: tuple[str, Path] | None) -> ArmData | None:
    """The arm to show first: what the finding rests on, otherwise the one that was trained for longest."""
    record = finding[1].resolve() if finding else None

    def rank(arm: ArmData) -> tuple[bool, bool, float, int]:
        epochs, images = arm.length
        shown = record is not None and any(Path(run.folder).resolve().is_relative_to(record) for run in arm.runs)
        length = float(epochs) * (float("inf") if images == "all" else float(images))
        return shown, any(model.mean is not None for model in arm.models), length, len(arm.models)

    return max(arms, key=rank, default=None)


def _sentence(arm: ArmData) -> str:
    """The accuracies in one sentence: all of a few models, otherwise the ends."""
    known = sorted((m for m in arm.models if m.mean is not None), key=lambda m: -(m.mean or 0))
    if not known:
        return "No run is finished yet."
    ends = [m for m in known if m.prior or m.alpha == 0]
    rest = [m for m in known if m not in ends]
    chosen = known if len(known) <= FEW else sorted([*ends, rest[0], rest[-1]], key=lambda m: -(m.mean or 0))
    texts = [f"{m.title} {m.mean:.1f}{f' &plusmn; {m.std:.1f}' if m.std is not None else ''} %" for m in chosen]
    epochs, images = arm.length
    seeds = max(len(m.by_seed) for m in known)
    of = "" if images == "all" else f" of {int(images):,} images"
    begin = f"{arm.measure.capitalize()} after {epochs} epochs{of}, {number_of(seeds, 'seed')}: "
    more = "" if len(known) <= FEW else f" (the prior, alpha 0, the best and the lowest of {len(known)} models)"
    return begin + escape("; ".join(texts)).replace("&amp;plusmn;", "&plusmn;") + more + "."


def _header(
    title: str,
    arms: Sequence[ArmData],
    experiments: Sequence[dict[str, Any]],
    lead: ArmData | None,
    finding: tuple[str, Path] | None,
) -> str:
    runs = [run for arm in arms for run in arm.runs]
    done = sum(run.finished for run in runs)
    seconds = duration(sum(run.seconds or 0 for run in runs), measured=True)
    finished = "all finished" if done == len(runs) else f"{done} finished, {len(runs) - done} not"
    facts = f"{number_of(len(runs), 'run')} ({finished}) in {number_of(len(arms), 'arm')}, {seconds} of training."
    verdicts = [v for e in experiments for v in e["verdicts"]] + [v for arm in arms for v in arm.verdicts]
    judged = ""
    if verdicts:
        holds, fails, unclear = counts(verdicts)
        judged = f" Of the paper's claims, {holds} hold, {fails} fail, and {unclear} cannot be told by these runs."
    said = escape(finding[0]).replace("+-", "±") if finding else _sentence(lead) + judged if lead else ""
    return (
        f"<header><h1>{escape(title)}</h1><p class='lead'>{said}</p>"
        f"<details class='explained'><summary>What this page shows</summary>"
        f"<p class='quiet'>{EXPLAINED}</p><p class='quiet'>{facts}</p></details></header>"
    )


def _lead_figure(arm: ArmData, arms: Sequence[ArmData], files: Mapping[str, bytes]) -> str:
    n = arms.index(arm)
    return f"<div class='lead-figure'>{main_figure(n, arm, files, own='lead')}</div>"


def _contents(parts: Sequence[Part], warnings: Sequence[str]) -> list[str]:
    """The sections behind a table of them; of many, those that are not whole are folded away at the end."""
    if len(parts) <= 1:
        return [*warnings, *(part.section for part in parts)]
    folds = len(parts) > MANY and any(part.whole for part in parts)
    whole = [part for part in parts if part.whole or not folds]
    rest = [part for part in parts if part not in whole]
    found = [_overview(whole), *warnings, *(part.section for part in whole)]
    if rest:
        content = "\n".join([_overview(rest), *(part.section for part in rest)])
        found.append(section("rest", "more-sections", f"Short or unfinished: {len(rest)} more", content, opened=False))
    return found


def _overview(parts: Sequence[Part]) -> str:
    """A line for each section: how much was run, and what came of it."""
    heads = "".join(
        f'<th scope="col" class="number" title="{name}"><span aria-hidden="true">{mark}</span>'
        f'<span class="hidden">{name}</span></th>'
        for name, mark in (("holds", "✓"), ("fails", "✗"), ("cannot tell", "?"))
    )
    return (
        "<nav aria-label='Contents'><table class='overview'><thead><tr><th scope='col'>What was run</th>"
        "<th scope='col' class='number'>seeds</th><th scope='col' class='number'>epochs</th>"
        f"{heads}</tr></thead><tbody>{''.join(part.line for part in parts)}</tbody></table>"
        "<p class='quiet'>✓ claims that hold, ✗ that fail, ? that these runs cannot tell.</p></nav>"
    )


def _experiment_line(n: int, experiment: dict[str, Any], arms: Sequence[ArmData]) -> str:
    keys = {named["key"] for named in experiment["arms"]}
    own, about = [arm for arm in arms if arm.key in keys], experiment.get("lacking") or ""
    return _line(f"experiment{n}", experiment["title"], about, own, counts(experiment["verdicts"]))


def _search_line(search: SearchData, arms: Sequence[ArmData]) -> str:
    own = [arm for arm in arms if search.holds(arm)]
    return _line(search.id, search.name, "" if search.finished else "unfinished", own, None)


def _arm_line(arm: ArmData) -> str:
    about = "" if any(run.finished for run in arm.runs) else "unfinished"
    return _line(arm.id, arm.name, about, [arm], counts(arm.verdicts) if arm.verdicts else None)


def _line(to: str, title: str, about: str, arms: Sequence[ArmData], judged: tuple[int, int, int] | None) -> str:
    seeds = max((len(model.by_seed) for arm in arms for model in arm.models), default=0)
    epochs = " / ".join(dict.fromkeys(arm.length[0] for arm in arms))
    images = {arm.length[1] for arm in arms} - {"all"}
    parts = [f"{int(size):,} images" for size in sorted(images, key=int)] + ([about] if about else [])
    more = f"<br><span class='quiet'>{escape(', '.join(parts))}</span>" if parts else ""
    cells = [str(seeds), epochs, *(map(str, judged) if judged else ("", "", ""))]
    kinds = ("", "", "holds", "fails", "unclear")
    shown = "".join(
        f'<td class="number {kind if cell not in ("", "0") else ""}">{escape(cell)}</td>'
        for cell, kind in zip(cells, kinds, strict=True)
    )
    return f'<tr><th scope="row"><a href="#{escape(to)}">{escape(title)}</a>{more}</th>{shown}</tr>'


def _warnings(arms: Sequence[ArmData], searches: Sequence[SearchData]) -> list[str]:
    found = [text for arm in arms for text in arm.warnings]
    found += [f"{search.name} is unfinished; {RESUME}" for search in searches if not search.finished]
    if not found:
        return []
    content = f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in found)}</ul>"
    if len(found) > FEW:
        content = f"<details><summary>{len(found)} remarks</summary>{content}</details>"
    return [f"<aside class='warning' aria-label='Warnings'><h2>Not all is there</h2>{content}</aside>"]


def _json(value: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _drawn(arm: ArmData) -> dict[str, Any]:
    series = [{**dataclasses.asdict(s), "fit": _fit(s.fit)} for s in arm.series]
    models = [{name: getattr(model, name) for name in DRAWN} for model in arm.models]
    own = {"id": arm.id, "name": arm.name, "measure": arm.measure, "prior": arm.prior_name, "ticks": arm.ticks}
    return _short({**own, "paper": arm.paper, "models": models, "series": series})


def _fit(fit: V | None) -> dict[str, float] | None:
    if fit is None:
        return None
    return {"alpha": fit.alpha, "accuracy": fit.accuracy, "left": fit.left.slope, "right": fit.right.slope}


def _short(value: Any) -> Any:
    """Six digits are more than a chart can show; what is not finite has no place in one."""
    match value:
        case float():
            return float(f"{value:.6g}") if abs(value) < float("inf") else None
        case dict():
            return {key: _short(item) for key, item in value.items()}
        case list():
            return [_short(item) for item in value]
    return value
