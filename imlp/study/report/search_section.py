"""The section of the page about one search: the choice, its test, and the trials."""

from collections.abc import Mapping, Sequence
from html import escape

from imlp.study.report import tables
from imlp.study.report.data import ArmData, SearchData
from imlp.study.report.html_parts import data_uri, downloads, folded, number_of, table_with_files

RESUME = "the same search command resumes it."
OVER = {
    "alpha": "one alpha for all layers",
    "alpha-per-layer": "one alpha per layer",
    "schedule": "the kind of schedule and its alpha",
    "settings": "the settings of a coupling that has no alpha",
}
CADENCES = {
    "epoch": "once per epoch",
    "step": "every step",
    "both": "once per epoch or every step, which was searched too",
}


def search_section(found: SearchData, arms: Sequence[ArmData], files: Mapping[str, bytes]) -> str:
    """The content of its section: what was searched, what was chosen, and every trial."""
    own, content = tables.of_search(found), found.content
    held, best = content["validation"], content["chosen"]
    prior = "no prior was trained" if content["prior"] is None else f"the prior {content['prior']:.2f} %"
    states = [trial["state"] for trial in content["trials"]]
    counts = ", ".join(f"{states.count(state)} {escape(state)}" for state in dict.fromkeys(states))
    settings = content["over"] == "settings"
    every = "" if settings else f", mixed {CADENCES.get(content['every'], 'every ' + content['every'] + ' steps')}"
    by = "setting" if settings else "alpha"
    links = ", ".join(f'<a href="#{arm.id}">{escape(arm.name)}</a>' for arm in arms if found.holds(arm))
    matters = ", ".join(f"{escape(name)} {share:.0%}" for name, share in content["importances"].items())
    caption = (
        f"One point per trial: its last accuracy on the {held['images']:,} images held out. A cross was stopped early, "
        "the star is the choice, the dashed line the prior."
        + ("" if settings else " Alpha 0 stands left of the logarithmic axis.")
    )
    again = "Trained once more, on all training images; the validation accuracy is what the search saw before that."
    picture = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Trials by {by}">'
        f'<img class="{"drawn panels" if found.layers else "drawn"}" '
        f'src="{data_uri("svg", files[f"{found.id}-trials.svg"])}" '
        f'alt="Validation accuracy of each trial by {by}; the numbers are in the table below"></div>'
    )
    parts = [
        f"<figure>{picture}<figcaption>{caption}</figcaption>"
        f"{downloads(f'Trials by {by}', f'{found.id}-trials', ('png', 'svg'), files)}</figure>",
        f"<p>Searched: {escape(OVER.get(content['over'], content['over']))}{escape(every)}. "
        f"{number_of(len(states), 'trial')} ({counts}) of at most {number_of(content['epochs'], 'epoch')}, "
        f"seed {content['seed']}, judged by their accuracy on {held['images']:,} of {held['of']:,} training images, "
        "which were held out; the test images have no part in the choice.</p>",
        f"<p class='quiet'>Its runs: {links}</p>" if links else "",
        f"<h3>{'Chosen' if found.finished else 'The best so far'}</h3>",
        f"<p>Trial {best['number']}, {escape(best['title'])}: validation accuracy {best['value']:.2f} % ({prior}).</p>",
        table_with_files(own["chosen"], files),
        "<h3>On the test images</h3>",
        f"<p class='quiet'>{again}</p>{table_with_files(own['final'], files)}"
        if "final" in own
        else f"<p>There is no test yet; {RESUME}</p>",
        f"<p>What matters for validation accuracy: {matters}.</p>" if matters else "",
        folded(f"All {number_of(len(states), 'trial')}", table_with_files(own["trials"], files), printed=True),
    ]
    return "\n".join(filter(None, parts))
