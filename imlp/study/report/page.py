"""The page: its HTML, and the numbers that its script draws. Everything read from a file is escaped."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files as resources
from string import Template
from typing import Any

import imlp
from imlp.study.cost import duration
from imlp.study.report import tables
from imlp.study.report.arm_section import arm_section
from imlp.study.report.data import ArmData, SearchData
from imlp.study.report.html_parts import data_uri, downloads, table_with_files
from imlp.study.two_lines import V

WHAT = "What was asked"  # heads the only experiment, whose title heads the page
RESUME = "the same search command resumes it."
OVER = {
    "alpha": "one alpha for all layers",
    "alpha-per-layer": "one alpha per layer",
    "schedule": "the kind of schedule and its alpha",
}
CADENCES = {
    "epoch": "once per epoch",
    "step": "every step",
    "both": "once per epoch or every step, which was searched too",
}
MARKS = {"holds": "✓", "fails": "✗", "cannot tell": "?"}  # before the word, for those who see no colour
DRAWN = (  # what the script needs of a model
    "title", "alpha", "prior", "mean", "std", "epochs", "accuracy", "spread", "seeds", "layers", "random", "share",
    "distance", "shade", "series",
)  # fmt: skip


def html(
    arms: Sequence[ArmData],
    experiments: Sequence[dict[str, Any]],
    searches: Sequence[SearchData],
    files: Mapping[str, bytes],
) -> str:
    """The whole page; `files` are what its links hand out."""
    here = resources("imlp.study.report")
    title = " · ".join(experiment["title"] for experiment in experiments) or "Runs of imlp"
    body = [_header(title, arms), *_warnings(arms, searches), *_contents(arms, experiments, searches)]
    body += [
        _experiment(n, experiment, arms, files, many=len(experiments) > 1)
        for n, experiment in enumerate(experiments, start=1)
    ]
    body += [_search(search, arms, files) for search in searches]
    body += [arm_section(n, arm, searches, files) for n, arm in enumerate(arms)]
    return Template((here / "page.html").read_text("utf-8")).substitute(
        title=escape(title),
        style=(here / "page.css").read_text("utf-8"),
        body="\n".join(body),
        data=_json([_drawn(arm) for arm in arms]),
        script=(here / "page.js").read_text("utf-8"),
        version=escape(imlp.__version__),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


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


def _header(title: str, arms: Sequence[ArmData]) -> str:
    runs = [run for arm in arms for run in arm.runs]
    done = sum(run.finished for run in runs)
    seconds = duration(sum(run.seconds or 0 for run in runs), measured=True)
    finished = "all finished" if done == len(runs) else f"{done} finished, {len(runs) - done} not"
    facts = f"{_number(len(runs), 'run')} ({finished}) in {_number(len(arms), 'arm')}, {seconds} of training."
    explained = (
        "A dense layer W is moved towards the dense form W<sub>P</sub> of a structured one, the prior: "
        "W &larr; (1 &minus; &alpha;) W + &alpha; W<sub>P</sub>. An arm holds runs that differ only in seeds and "
        "lanes; a lane is one such network with its alpha. Means and standard deviations are over seeds."
    )
    return f"<header><h1>{escape(title)}</h1><p>{facts}</p><p class='quiet'>{explained}</p></header>"


def _number(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _warnings(arms: Sequence[ArmData], searches: Sequence[SearchData]) -> list[str]:
    found = [text for arm in arms for text in arm.warnings]
    found += [f"{search.name} is unfinished; {RESUME}" for search in searches if not search.finished]
    lines = "".join(f"<li>{escape(text)}</li>" for text in found)
    return [f"<aside class='warning' aria-label='Warnings'><h2>Not all is there</h2><ul>{lines}</ul></aside>"] * (
        lines != ""
    )


def _contents(
    arms: Sequence[ArmData], experiments: Sequence[dict[str, Any]], searches: Sequence[SearchData]
) -> list[str]:
    titles = [experiment["title"] for experiment in experiments] if len(experiments) > 1 else [WHAT] * len(experiments)
    links = [(f"experiment{n}", title) for n, title in enumerate(titles, start=1)]
    links += [(search.id, search.name) for search in searches] + [(arm.id, arm.name) for arm in arms]
    items = "".join(f'<li><a href="#{escape(to)}">{escape(text)}</a></li>' for to, text in links)
    return [f"<nav aria-label='Contents'><ul>{items}</ul></nav>"] * (len(links) > 1)


def _experiment(
    n: int, found: dict[str, Any], arms: Sequence[ArmData], files: Mapping[str, bytes], *, many: bool
) -> str:
    by_key = {arm.key: arm for arm in arms}
    title = found["title"] if many else WHAT
    items = []
    for named in found["arms"]:
        arm = by_key.get(named["key"])
        name = escape(named["name"])
        items.append(f'<li><a href="#{escape(arm.id)}">{name}</a></li>' if arm else f"<li>{name}: no run of it</li>")
    verdicts = "".join(
        f'<li class="{_class(row["verdict"])}"><strong><span class="mark" aria-hidden="true">'
        f"{MARKS.get(row['verdict'], '')}</span> {escape(row['verdict'])}</strong> "
        f"{escape(row['claim'])}<br><span class='quiet'>{escape(row['because'])}</span></li>"
        for row in found["verdicts"]
    )
    parts = [
        f'<section class="experiment" id="experiment{n}" aria-labelledby="experiment{n}-title">',
        f'<h2 id="experiment{n}-title">{escape(title)}</h2>',
        f"<p>{escape(found['asks'])}</p>",
        f"<p class='quiet'>Experiment {escape(found['name'])}, budget {escape(found['budget'])}: "
        f"<code>{escape(found['command'])}</code></p>",
        f"<h3>Verdicts</h3><ul class='verdicts'>{verdicts}</ul>" if verdicts else "",
        downloads("Verdicts", f"experiment{n}-verdicts", ("csv", "tex"), files) if verdicts else "",
        "<h3>Ours and the paper's</h3>",
        table_with_files(tables.experiment(n, found), files),
        f"<p>Arms:</p><ul>{''.join(items)}</ul>" if items else "",
        "</section>",
    ]
    return "\n".join(filter(None, parts))


def _class(verdict: str) -> str:
    return {"holds": "holds", "fails": "fails"}.get(verdict, "unclear")


def _search(found: SearchData, arms: Sequence[ArmData], files: Mapping[str, bytes]) -> str:
    own, content = tables.of_search(found), found.content
    held, best = content["validation"], content["chosen"]
    states = [trial["state"] for trial in content["trials"]]
    counts = ", ".join(f"{states.count(state)} {escape(state)}" for state in dict.fromkeys(states))
    every = CADENCES.get(content["every"], f"every {content['every']} steps")
    links = ", ".join(f'<a href="#{arm.id}">{escape(arm.name)}</a>' for arm in arms if found.holds(arm))
    matters = ", ".join(f"{escape(name)} {share:.0%}" for name, share in content["importances"].items())
    caption = (
        f"One point per trial: its last accuracy on the {held['images']:,} images held out. A cross was stopped early, "
        "the star is the choice, the dashed line the prior. Alpha 0 stands left of the logarithmic axis."
    )
    again = "Trained once more, on all training images; the validation accuracy is what the search saw before that."
    picture = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Trials by alpha">'
        f'<img class="{"drawn panels" if found.layers else "drawn"}" '
        f'src="{data_uri("svg", files[f"{found.id}-trials.svg"])}" '
        'alt="Validation accuracy of each trial by alpha; the numbers are in the table below"></div>'
    )
    parts = [
        f'<section class="search" id="{found.id}" aria-labelledby="{found.id}-title">',
        f'<h2 id="{found.id}-title">{escape(found.name)}{"" if found.finished else " (unfinished)"}</h2>',
        f"<p>Searched: {escape(OVER.get(content['over'], content['over']))}, mixed {escape(every)}. "
        f"{_number(len(states), 'trial')} ({counts}) of at most {_number(content['epochs'], 'epoch')}, "
        f"seed {content['seed']}, judged by their accuracy on {held['images']:,} of {held['of']:,} training images, "
        "which were held out; the test images have no part in the choice.</p>",
        f"<p class='quiet'>Its runs: {links}</p>" if links else "",
        f"<h3>{'Chosen' if found.finished else 'The best so far'}</h3>",
        f"<p>Trial {best['number']}, {escape(best['title'])}: validation accuracy {best['value']:.2f} % "
        f"(the prior {content['prior']:.2f} %).</p>",
        table_with_files(own["chosen"], files),
        "<h3>On the test images</h3>",
        f"<p class='quiet'>{again}</p>{table_with_files(own['final'], files)}"
        if "final" in own
        else f"<p>There is no test yet; {RESUME}</p>",
        f"<figure><h3>Trials</h3>{picture}<figcaption>{caption}</figcaption>"
        f"{downloads('Trials by alpha', f'{found.id}-trials', ('png', 'svg'), files)}</figure>",
        f"<p>What matters for validation accuracy: {matters}.</p>" if matters else "",
        table_with_files(own["trials"], files),
        "</section>",
    ]
    return "\n".join(filter(None, parts))
