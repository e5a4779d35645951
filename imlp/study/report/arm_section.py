"""What the page says of one arm: its figure and results, then, folded, the other charts, its runs and settings."""

from collections.abc import Mapping, Sequence
from html import escape

from imlp.study.report import tables
from imlp.study.report.data import ArmData, SearchData
from imlp.study.report.html_parts import data_uri, downloads, folded, table_with_files
from imlp.study.report.verdicts import verdict_list
from imlp.study.report.weights import Weights, png
from imlp.study.two_lines import V

LONGEST = 12  # rows; a longer table is folded


def arm_content(n: int, arm: ArmData, searches: Sequence[SearchData], files: Mapping[str, bytes]) -> str:
    """What the page says of arm `n`: one figure, its table, and the rest folded."""
    own = tables.of_arm(arm)
    results = table_with_files(own["results"], files)
    alpha, epochs = _alpha(n, arm, own, files), _epochs(n, arm, own, files)
    first, other = (alpha, epochs) if arm.has_curve else (epochs, alpha)
    other_title = f"{arm.measure.capitalize()} {'by epoch' if arm.has_curve else 'against alpha'}"
    weights = _weights(arm, files)
    parts = [
        *_held_out(arm, searches),
        _knobs(arm, files),
        "".join(first),
        verdict_list(arm.verdicts),
        folded(f"All {len(arm.models)} models", results) if len(arm.models) > LONGEST else results,
        folded(other_title, "".join(other)) if other else "",
        folded("Bias meter by layer and epoch", bias) if (bias := "".join(_bias(n, arm, own, files))) else "",
        f"<h3>First layer</h3>{weights}" if arm.is_one_run else folded("First layer", weights),
        folded("Runs", table_with_files(own["runs"], files)),
        folded("Settings", table_with_files(own["settings"], files), printed=True),
        folded("Environment", table_with_files(own["environment"], files), printed=True),
    ]
    return "\n".join(filter(None, parts))


def main_figure(n: int, arm: ArmData, files: Mapping[str, bytes], own: str) -> str:
    """The one figure of an arm, again, with an identifier of its own; nothing if no epoch is complete."""
    kind = "alpha" if arm.has_curve else "epochs"
    if f"{arm.id}-{kind}.svg" not in files:
        return ""
    title = f"{arm.measure.capitalize()} {'against alpha' if arm.has_curve else 'by epoch'}: {arm.name}"
    return (
        f'<figure class="chart" id="{own}-chart" data-chart="{kind}" data-arm="{n}"><h3>{escape(title)}</h3>'
        "<div class='controls'></div><div class='plot'></div><div class='legend'></div></figure>"
    )


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
        lines + folded("The fits as a table", table_with_files(own["fits"], files))
        if lines
        else f"<p class='quiet'>{few}</p>"
    )
    return [_chart("alpha", n, arm, f"{arm.measure.capitalize()} against alpha", caption, files), fits]


def _sentence(name: str, fit: V) -> str:
    left, right = fit.left, fit.right
    return (
        f"Mixed {escape(name)}: two straight lines in log<sub>10</sub>(alpha) meet at alpha {fit.alpha:.2g} with "
        f"{fit.accuracy:.2f} %; the left one {_goes(left.slope)} points per decade "
        f"(R² {left.r2:.3f}, {left.n} alphas), "
        f"the right one {_goes(right.slope)} (R² {right.r2:.3f}, {right.n} alphas)."
    )


def _goes(slope: float) -> str:
    return f"{'rises' if slope >= 0 else 'falls'} by {abs(slope):.2f}"


def _epochs(n: int, arm: ArmData, own: Mapping[str, tables.Table], files: Mapping[str, bytes]) -> list[str]:
    if f"{arm.id}-epochs.svg" not in files:
        return ["<p>No epoch is complete yet.</p>"]
    caption = (
        "Mean over seeds after each epoch's mixing; the band is one standard deviation. "
        "Choose lanes above; in the chart, the arrow keys read out an epoch."
    )
    table = folded("The numbers by epoch", table_with_files(own["by_epoch"], files))
    return [_chart("epochs", n, arm, f"{arm.measure.capitalize()} by epoch", caption, files), table]


def _bias(n: int, arm: ArmData, own: Mapping[str, tables.Table], files: Mapping[str, bytes]) -> list[str]:
    if f"{arm.id}-bias.svg" not in files:
        return []
    caption = (
        "How much structure each layer holds, and which. Shared: the part of |W|² in the prior's subspace (a prior "
        "layer is all shared). Local: what else stands where the prior can be non-zero. Outside: the rest. The first "
        "bar of a layer is a random matrix. The distance is that of the shared part from the prior's own weights."
    )
    table = folded("The meter after the last epoch", table_with_files(own["bias"], files))
    return [_chart("bias", n, arm, "Bias meter by layer and epoch", caption, files), table]


def _chart(kind: str, n: int, arm: ArmData, title: str, caption: str, files: Mapping[str, bytes]) -> str:
    return (
        f'<figure class="chart" id="{arm.id}-{kind}-chart" data-chart="{kind}" data-arm="{n}">'
        f"<h4>{title}</h4><div class='controls'></div><div class='plot'></div><div class='legend'></div>"
        f"<figcaption>{caption}</figcaption>{downloads(title, f'{arm.id}-{kind}', ('png', 'svg'), files)}</figure>"
    )


def _knobs(arm: ArmData, files: Mapping[str, bytes]) -> str:
    if f"{arm.id}-knobs.svg" not in files:
        return ""
    title = f"{arm.measure.capitalize()} by locality and sharing"
    caption = (
        "Mean and standard deviation over seeds. Locality moves W towards the prior's support, sharing moves what lies "
        "there towards equal weights; at 0 and 0 stands the plain MLP, at 1 and 1 a layer of the prior's kind."
    )
    return (
        f'<figure id="{arm.id}-knobs"><h4>{title}</h4>'
        f'<img src="{data_uri("svg", files[f"{arm.id}-knobs.svg"])}" alt="{title}: a heat map">'
        f"<figcaption>{caption}</figcaption>{downloads(title, f'{arm.id}-knobs', ('png', 'svg'), files)}</figure>"
    )


def _weights(arm: ArmData, files: Mapping[str, bytes]) -> str:
    if not isinstance(arm.weights, Weights):
        return f"<p>{escape(arm.weights)}</p>"
    found = arm.weights
    what = f"{len(found.rows)} rows of {escape(found.layer)} as images"
    cards = "".join(
        f'<figure><img src="{data_uri("png", png(pixels))}" alt="{what}: {escape(title)}">'
        f"<figcaption>{escape(title)}</figcaption></figure>"
        for title, pixels in found.images
    )
    rows = ", ".join(map(str, found.rows))
    caption = (
        f"Rows {rows} of {escape(found.layer)} folded into the shape of an image ({escape(found.where)}): "
        "which pixels an output reads. Grey is 0, and each row is scaled by its largest weight. The larger alpha, the "
        "more of the prior's small local pattern shows."
    )
    links = downloads("First layer", f"{arm.id}-weights", ("png", "svg"), files)
    return f"<p>{caption}</p><div class='weights'>{cards}</div>{links}"
