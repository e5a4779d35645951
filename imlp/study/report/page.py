"""The page: what Python knows as HTML, and the numbers that its script draws. Everything from a file is escaped."""

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files as resources
from string import Template
from typing import Any

import imlp
from imlp.study.report import tables
from imlp.study.report.data import ArmData, SearchData
from imlp.study.report.weights import Weights, png
from imlp.study.two_lines import V

TYPES = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv", "tex": "application/x-tex"}
NAMES = {"png": "PNG", "svg": "SVG", "csv": "CSV", "tex": "LaTeX"}
WHAT = "What was asked"  # heads the only experiment, whose title heads the page
GO_ON = "the same search command goes on with it."
OVER = {
    "alpha": "one alpha for all layers",
    "alpha-per-layer": "an alpha for each layer",
    "schedule": "the kind of schedule and its alpha",
}
CADENCES = {
    "epoch": "once an epoch",
    "step": "every step",
    "both": "once an epoch or every step, which was searched too",
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
    body += [_arm(n, arm, searches, files) for n, arm in enumerate(arms)]
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
    seconds = tables.duration(sum(run.seconds or 0 for run in runs))
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
    found += [f"{search.name} is unfinished; {GO_ON}" for search in searches if not search.finished]
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
        _downloads("Verdicts", f"experiment{n}-verdicts", ("csv", "tex"), files) if verdicts else "",
        "<h3>Ours and the paper's</h3>",
        _table(tables.experiment(n, found), files),
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
        f"A point a trial: its last accuracy on the {held['images']:,} images held out. A cross was stopped early, the "
        "star is the choice, the dashed line the prior. Alpha 0 stands left of the logarithmic axis."
    )
    again = "Trained once more, on all training images; the validation accuracy is what the search saw before that."
    picture = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Trials by alpha">'
        f'<img class="{"drawn panels" if found.layers else "drawn"}" '
        f'src="{_uri("svg", files[f"{found.id}-trials.svg"])}" '
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
        _table(own["chosen"], files),
        "<h3>On the test images</h3>",
        f"<p class='quiet'>{again}</p>{_table(own['final'], files)}"
        if "final" in own
        else f"<p>There is no test yet; {GO_ON}</p>",
        f"<figure><h3>Trials</h3>{picture}<figcaption>{caption}</figcaption>"
        f"{_downloads('Trials by alpha', f'{found.id}-trials', ('png', 'svg'), files)}</figure>",
        f"<p>What matters for validation accuracy: {matters}.</p>" if matters else "",
        _table(own["trials"], files),
        "</section>",
    ]
    return "\n".join(filter(None, parts))


def _arm(n: int, arm: ArmData, searches: Sequence[SearchData], files: Mapping[str, bytes]) -> str:
    own = tables.of_arm(arm)
    parts = [
        f'<section class="arm" id="{arm.id}" aria-labelledby="{arm.id}-title">',
        f'<h2 id="{arm.id}-title">{escape(arm.name)}</h2>',
        *_held_out(arm, searches),
        _table(own["results"], files),
        *_alpha(n, arm, own, files),
        *_epochs(n, arm, own, files),
        *_bias(n, arm, own, files),
        "<h3>First layer</h3>",
        _weights(arm, files),
        "<h3>Record</h3>",
        _table(own["runs"], files),
        _folded("Settings", _table(own["settings"], files), printed=True),
        _folded("Environment", _table(own["environment"], files), printed=True),
        "</section>",
    ]
    return "\n".join(parts)


def _held_out(arm: ArmData, searches: Sequence[SearchData]) -> list[str]:
    if arm.measure != "validation accuracy":
        return []
    links = [f' (<a href="#{search.id}">{escape(search.name)}</a>)' for search in searches if search.holds(arm)]
    about = "every accuracy here is on training images that were held out, none on the test images."
    return [f"<p>Trials of a search{''.join(links)}: {about}</p>"]


def _alpha(n: int, arm: ArmData, own: Mapping[str, tables.Table], files: Mapping[str, bytes]) -> list[str]:
    if f"{arm.id}-alpha.svg" not in files:
        return []
    caption = "Mean and standard deviation over seeds. The axis is logarithmic but for its first part, which reaches 0."
    lines = "".join(f"<p>{_sentence(series.name, series.fit)}</p>" for series in arm.series if series.fit)
    few = "A fit of two lines needs at least five alphas above 0 in a series."
    fits = (
        lines + _folded("The fits as a table", _table(own["fits"], files)) if lines else f"<p class='quiet'>{few}</p>"
    )
    return [_chart("alpha", n, arm, f"{arm.measure.capitalize()} against alpha", caption, files), fits]


def _sentence(name: str, fit: V) -> str:
    left, right = fit.left, fit.right
    return (
        f"Mixed {escape(name)}: two straight lines in log<sub>10</sub>(alpha) meet at alpha {fit.alpha:.2g} with "
        f"{fit.accuracy:.2f} %; the left one {_goes(left.slope)} points a decade (R² {left.r2:.3f}, {left.n} alphas), "
        f"the right one {_goes(right.slope)} (R² {right.r2:.3f}, {right.n} alphas)."
    )


def _goes(slope: float) -> str:
    return f"{'rises' if slope >= 0 else 'falls'} by {abs(slope):.2f}"


def _epochs(n: int, arm: ArmData, own: Mapping[str, tables.Table], files: Mapping[str, bytes]) -> list[str]:
    if f"{arm.id}-epochs.svg" not in files:
        return ["<p>No epoch is complete yet.</p>"]
    caption = (
        "Mean over seeds after each epoch's mixing, its band one standard deviation. "
        "Choose lanes below; in the chart, the arrow keys read out an epoch."
    )
    table = _folded("The numbers by epoch", _table(own["by_epoch"], files))
    return [_chart("epochs", n, arm, f"{arm.measure.capitalize()} by epoch", caption, files), table]


def _bias(n: int, arm: ArmData, own: Mapping[str, tables.Table], files: Mapping[str, bytes]) -> list[str]:
    if f"{arm.id}-bias.svg" not in files:
        return []
    caption = (
        "How much structure each layer holds: the share of |W|² that lies in the prior's subspace (1: a prior layer), "
        "or how far that part is from the prior's own weights. Beside a layer's name is the share of a random matrix."
    )
    table = _folded("The meter after the last epoch", _table(own["bias"], files))
    return [_chart("bias", n, arm, "Bias meter by layer and epoch", caption, files), table]


def _chart(kind: str, n: int, arm: ArmData, title: str, caption: str, files: Mapping[str, bytes]) -> str:
    return (
        f'<figure class="chart" id="{arm.id}-{kind}-chart" data-chart="{kind}" data-arm="{n}">'
        f"<h3>{title}</h3><div class='controls'></div><div class='plot'></div><div class='legend'></div>"
        f"<figcaption>{caption}</figcaption>{_downloads(title, f'{arm.id}-{kind}', ('png', 'svg'), files)}</figure>"
    )


def _weights(arm: ArmData, files: Mapping[str, bytes]) -> str:
    if not isinstance(arm.weights, Weights):
        return f"<p>{escape(arm.weights)}</p>"
    found = arm.weights
    what = f"{len(found.rows)} rows of {escape(found.layer)} as images"
    cards = "".join(
        f'<figure><img src="{_uri("png", png(pixels))}" alt="{what}: {escape(title)}">'
        f"<figcaption>{escape(title)}</figcaption></figure>"
        for title, pixels in found.images
    )
    rows = ", ".join(map(str, found.rows))
    caption = (
        f"Rows {rows} of {escape(found.layer)} folded into the shape of an image ({escape(found.where)}): "
        "which pixels an output reads. Grey is 0, and each row is scaled by its largest weight. The larger alpha, the "
        "more of the prior's small local pattern shows."
    )
    links = _downloads("First layer", f"{arm.id}-weights", ("png", "svg"), files)
    return f"<p>{caption}</p><div class='weights'>{cards}</div>{links}"


def _table(table: tables.Table, files: Mapping[str, bytes]) -> str:
    return table.html() + _downloads(table.title, table.id, ("csv", "tex"), files)


def _folded(title: str, content: str, *, printed: bool = False) -> str:
    own = ' class="printed"' if printed else ""
    return f"<details{own}><summary>{title}</summary>{content}</details>"


def _downloads(title: str, name: str, suffixes: Sequence[str], files: Mapping[str, bytes]) -> str:
    links = " ".join(
        f'<a download="{name}.{suffix}" href="{_uri(suffix, files[f"{name}.{suffix}"])}" '
        f'aria-label="{escape(title)} as {NAMES[suffix]}">{NAMES[suffix]}</a>'
        for suffix in suffixes
    )
    return f'<p class="downloads">Download {links}</p>'


def _uri(suffix: str, content: bytes) -> str:
    return f"data:{TYPES[suffix]};base64,{base64.b64encode(content).decode()}"
