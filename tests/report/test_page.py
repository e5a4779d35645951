"""The page: nothing hostile gets in, nothing comes from elsewhere, and what a browser makes of it."""

import csv
import io
import json
import re
import shutil
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_runs
from PIL import Image
from runs_to_report import HOSTILE, LANES, Stop, rows_of, train_runs

from imlp.paper.experiments import from_paper
from imlp.report import figures, make
from imlp.report.page import valley
from imlp.train.config import Lane, from_mapping
from imlp.train.loop import Interrupted

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def made(runs):
    return make([runs])


# As text


@pytest.mark.parametrize(("lane", "is_shown"), [({"alpha": 0.1}, 1), ({"alpha": 1}, 0), ({"coupling": "self"}, 0)])
def test_the_valley_is_explained_where_a_little_of_a_prior_is_worse_than_none(lane, is_shown):
    models = [(Lane(alpha="0"), 50.0), (from_mapping(Lane, lane), 40.0)]
    shown = [SimpleNamespace(lane=own, epochs=[SimpleNamespace(accuracy=accuracy)]) for own, accuracy in models]
    assert ("worse than none" in valley(SimpleNamespace(models=shown))) == is_shown


class Found(HTMLParser):
    """Every tag and every attribute that could fetch something or run."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.outside, self.handlers = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        addresses = [value for name, value in attributes if name in ("src", "href")]
        self.outside += [value for value in addresses if not value.startswith(("data:", "#"))]


def check_harmless(text: str) -> None:
    found = Found(text)
    assert found.outside == found.handlers == []
    assert found.tags.count("script") == found.tags.count("style") == 1
    assert "<img src=x" not in text
    assert "@import" not in text


def test_nothing_comes_from_outside_and_nothing_hostile_gets_in(made):
    check_harmless(made.page)
    assert made.page.startswith("<!doctype html>")
    ids = re.findall(r' id="([^"]+)"', made.page)
    assert len(ids) == len(set(ids))
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&amp;" in made.page


def test_hostile_names_of_data_and_folders(tmp_path):
    tiny_runs.run(tmp_path / "<b onclick=x>", epochs=1, data=HOSTILE, lanes=tiny_runs.lanes(0))
    made = make([tmp_path])
    check_harmless(made.page)
    assert "b" not in Found(made.page).tags
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in (*made.figures, *made.tables))
    for figure in made.figures.values():
        ET.fromstring(figures.svg(figure))


def test_the_fit_and_the_verdicts_are_written_out(made):
    assert "two straight lines in log<sub>10</sub>(alpha) meet at alpha" in made.page
    assert "Is there a <code>V</code>?" in made.page
    for mark, verdict in (("✓", "holds"), ("✗", "fails"), ("?", "cannot tell")):
        assert f"{mark}</span> {verdict}</strong>" in made.page


def test_arms_that_another_experiment_shows_are_linked(runs, tmp_path):
    shutil.copytree(runs / "main", tmp_path / "first")
    (tmp_path / "second").mkdir()
    experiment = json.loads((tmp_path / "first" / "experiment.json").read_text())
    (tmp_path / "second" / "experiment.json").write_text(json.dumps({**experiment, "name": "again"}))
    text = make([tmp_path]).page
    assert text.count('id="first-arm-results"') == 1
    assert 'Its runs are shown under <a href="#first-arm">first arm</a>' in text


# In a browser


def opened(page, text: str, folder: Path):
    (folder / "page.html").write_text(text)
    page.goto((folder / "page.html").as_uri())
    return page


@pytest.fixture
def shown(page, made, tmp_path):
    opened(page, made.page, tmp_path)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    return page


def test_one_run_is_a_page_to_show(page, tmp_path):
    tiny_runs.run(tmp_path / "run", lanes=tiny_runs.lanes(0, (1, {"every": "step"})))
    accuracies = [
        100 * row["test_accuracy"] for row in json.loads((tmp_path / "run" / "result.json").read_text())["models"]
    ]
    opened(page, make([tmp_path / "run"]).page, tmp_path)
    prior, plain, mixed = (f"{accuracy:.1f} %" for accuracy in accuracies)
    assert page.locator(".lead").inner_text() == (
        f"The same MLP, trained 2 times: S-MLP (alpha 0) gets {plain} of the pictures right; "
        f"I-MLP alpha 1 gets {mixed}. The S-CNN itself gets {prior}."
    )
    captions = page.locator(".cards figcaption:visible")
    assert captions.all_inner_texts() == ["before training", "S-MLP (alpha 0)", "S-CNN (the prior)"]
    assert page.locator(".bars:visible dd").first.inner_text() == plain
    page.locator(".slider input").press("End")
    assert captions.all_inner_texts() == ["before training", "I-MLP alpha 1, every step", "S-CNN (the prior)"]
    assert page.locator(".bars:visible dd").first.inner_text() == mixed
    assert page.locator("img.chart").count() == 3
    assert page.locator("table.overview").count() == 0
    for width in (320, 390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for image in page.locator("img:visible").all():
            assert image.evaluate("image => image.decode().then(() => image.naturalWidth > 0)")


def test_a_run_without_weights_or_without_an_epoch_has_a_page_too(runs, tmp_path):
    shutil.copytree(runs / "main" / "seed0", tmp_path / "bare", ignore=shutil.ignore_patterns("checkpoint"))
    text = make([tmp_path / "bare"]).page
    assert "without their weights" in text
    assert 'class="cards"' not in text
    assert re.search(r'<summary>The bias meter in numbers</summary>.*id="cnn-bars-bias"', text, re.DOTALL)
    shutil.copytree(runs / "other" / "unfinished", tmp_path / "new")
    (tmp_path / "new" / "metrics.jsonl").unlink()
    assert "No epoch is complete yet." in make([tmp_path / "new"]).page


def test_one_experiment_is_open(page, made, tmp_path):
    opened(page, made.page, tmp_path)
    assert page.locator("h1").inner_text() == "Figure 2 & more"
    assert page.locator("#first-arm img.chart").first.is_visible()
    assert page.locator("table.overview").count() == 0
    assert page.locator(".lead").inner_text().startswith("Test accuracy after 3 epochs, 2 seeds: ")


def test_several_are_a_table_whose_links_open_their_sections(page, runs, tmp_path):
    for name in ("main/seed0", "other/stopped"):
        shutil.copytree(runs / name, tmp_path / "runs" / name)
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "runs" / "unfinished", Stop(), inputs="unit")
    opened(page, make([tmp_path / "runs"]).page, tmp_path)
    assert page.locator("main > figure img.chart").is_visible()
    rows, sections = page.locator("table.overview tbody tr"), page.locator("main > section")
    assert rows.count() == sections.count() == 3
    assert "unfinished" in rows.nth(2).inner_text()
    assert page.locator("details.part[open]").count() == 0
    rows.nth(2).get_by_role("link").click()
    assert sections.nth(2).locator("img.chart").first.is_visible()
    assert page.locator("details.part[open]").count() == 1
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.locator("details:not([open])").count() == 0  # on paper everything is there


def test_the_record_is_one_small_page(page, tmp_path, monkeypatch):
    """The results of this repository: a sentence, a figure, and a table short enough to look over."""
    monkeypatch.chdir(ROOT)
    text = make([Path("results")], compare=from_paper).page
    assert len(text) < 3_000_000
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        opened(page, text, tmp_path)
        assert page.locator("main > figure img.chart").bounding_box()["y"] < 844
        assert page.evaluate("document.documentElement.scrollWidth") == width
    lines = page.locator("table.overview tbody tr").all_inner_texts()
    short = ["unfinished" in line or "39,100 steps" in line for line in lines]
    assert short == sorted(short)  # what is at full length comes first


def test_tables_sort_by_mouse_and_keyboard(shown):
    table = shown.locator("#first-arm-results")

    def column(title: str) -> list[str]:
        k = table.locator("thead th").all_inner_texts().index(title)
        return table.locator("tbody tr").evaluate_all(
            "(rows, k) => rows.map(row => row.cells[k].dataset.value ?? row.cells[k].textContent)", k
        )

    before = column("model")
    button, head = table.get_by_role("button", name="mean, %"), table.locator("th", has_text="mean, %")
    button.click()
    means = [float(value) for value in column("mean, %")]
    assert means == sorted(means)
    assert head.get_attribute("aria-sort") == "ascending"
    button.focus()
    shown.keyboard.press("Enter")
    assert [float(value) for value in column("mean, %")] == sorted(means, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    assert column("model") != before
    table.get_by_role("button", name="alpha").click()
    assert head.get_attribute("aria-sort") == "none"
    alphas = column("alpha")
    assert [float(alpha) for alpha in alphas[:8]] == [0, 1e-4, 1e-3, 0.01, 0.01, 0.1, 1, 1]
    assert alphas[8:] == ["decay:0.5:2", "decay:0.5:2", "decay:0.5:4", ""]  # no numbers after numbers, nothing last


def test_the_keyboard_reaches_everything(shown):
    reached = set()
    for _ in range(400):
        shown.keyboard.press("Tab")
        tag = shown.evaluate("document.activeElement.tagName.toLowerCase()")
        if tag == "body":
            break
        reached.add(tag)
        assert shown.evaluate("document.activeElement.matches(':focus-visible')")
    assert {"a", "button", "summary", "div"} <= reached


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_no_horizontal_overflow(shown, width):
    shown.set_viewport_size({"width": width, "height": 844})
    assert shown.evaluate("document.documentElement.scrollWidth") == width


def test_dark_mode_differs_and_both_can_be_read(shown):
    contrast = """() => {
      const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(c => c / 255)
          .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const ink = light(getComputedStyle(document.querySelector(".quiet")).color);
      const paper = light(getComputedStyle(document.body).backgroundColor);
      return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    }"""
    picture = shown.locator("#first-arm img.chart").first
    for scheme, dark in (("light", False), ("dark", True)):
        shown.emulate_media(color_scheme=scheme)
        assert shown.evaluate(contrast) >= 4.5
        with Image.open(io.BytesIO(picture.screenshot())) as image:
            grey = np.asarray(image.convert("L"))
        assert (np.median(grey) < 60) == dark
        assert np.ptp(grey) > 180  # ink on it
    shown.emulate_media(color_scheme="dark", media="print")
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown.set_viewport_size({"width": 760, "height": 1000})
    assert shown.evaluate("document.documentElement.scrollWidth") == 760  # nothing scrolls on paper


def test_figures_and_tables_can_be_saved(shown, made):
    def saved(name: str) -> bytes:
        with shown.expect_download() as download:
            shown.locator(f"[data-save='{name}']").first.click()
        assert download.value.suggested_filename == name
        return Path(download.value.path()).read_bytes()

    assert saved("first-arm-epochs.svg") == figures.svg(made.figures["first-arm-epochs"])
    with Image.open(io.BytesIO(saved("first-arm-epochs.png"))) as image:
        assert min(image.size) > 500
    for name in ("first-arm-results", "experiment1-beside-paper"):  # the second with a hostile name in it
        assert list(csv.DictReader(io.StringIO(saved(f"{name}.csv").decode()))) == rows_of(made.tables[name])
    assert len(rows_of(made.tables["first-arm-results"])) == 1 + len(LANES)


def test_a_hostile_page_runs_nothing(page, tmp_path):
    """The fixture fails on any error in the console, and the image of the name would ask for a file that is not."""
    tiny_runs.run(tmp_path / "run", epochs=2, data=HOSTILE, lanes=tiny_runs.lanes(0, 1))
    page.on("dialog", lambda dialog: pytest.fail("a script ran"))
    opened(page, make([tmp_path]).page, tmp_path)
    assert page.locator("img[src='x']").count() == 0
    assert HOSTILE.split("/")[-1] in page.locator(".caption").first.inner_text()
