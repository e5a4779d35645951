"""The teaching page in a browser: its maths against the reference, and what a reader does with it."""

import json
import re
import subprocess
import sys
from itertools import islice
from math import prod
from pathlib import Path

import archive
import build
import numpy as np
import pytest
from typer.testing import CliRunner

from imlp import reference
from imlp.cli import app
from imlp.errors import SpecError
from imlp.kinds import KINDS, make
from imlp.look import explore
from imlp.look.explain import columns, entry, explain

ROOT = Path(__file__).parents[2]
ACCURACY = json.loads((ROOT / "imlp" / "look" / "explore" / "accuracy.json").read_text())
IMAGE = ("channels", "height", "width")


def spec_of(kind, geometry):
    """The spec that the page's controls describe; they have one control for each of the three sizes of an image."""
    rest = {name: tuple(v) if isinstance(v, list) else v for name, v in geometry.items() if name not in IMAGE}
    image = {"image": tuple(geometry[name] for name in IMAGE)} if "height" in geometry else {}
    return make(kind, **image, **rest)


def numbered(spec):
    """The matrix of the weight 1, 2, 3, ..."""
    weight = None if spec.weight_shape is None else np.arange(1.0, prod(spec.weight_shape) + 1)
    return reference.matrix(spec, None if weight is None else weight.reshape(spec.weight_shape), layout="dense")


def draws(kind, seed=0):
    """Endless geometries, most of them valid: rectangles, strides, paddings, dilations, groups, single pixels."""
    rng = np.random.default_rng(seed)

    def number(least, most):
        return int(rng.integers(least, most + 1))

    def pair(least, most):
        return [number(least, most), number(least, most)]

    while True:
        image = {"channels": number(1, 4), "height": number(1, 7), "width": number(1, 7)}
        match kind:
            case "conv" | "local":
                own = {"kernel": pair(1, 4), "stride": pair(1, 3), "padding": pair(0, 3), "dilation": pair(1, 3)}
                yield {**image, "out_channels": number(1, 4), **own, "groups": number(1, 3)}
            case "patchify" | "patch-embed":
                patch = number(1, 3)
                image |= {"height": patch * number(1, 3), "width": patch * number(1, 3)}
                yield {**image, "patch": patch, **({"dim": number(1, 5)} if kind == "patch-embed" else {})}
            case "transpose":
                yield {"rows": number(1, 7), "cols": number(1, 7)}
            case "shared":
                yield {"rows": number(1, 6), "in_features": number(1, 6), "out_features": number(1, 6)}
            case _:
                yield {"patches": number(1, 6), "dim": number(1, 6), "hidden": number(1, 6)}


def valid(kind, count, seed=0):
    """`count` valid geometries with their specs."""

    def specs():
        for geometry in draws(kind, seed):
            try:
                yield geometry, spec_of(kind, geometry)
            except SpecError:
                pass

    return list(islice(specs(), count))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "explore.html"
    result = CliRunner().invoke(app, ["explore", "--out", str(path)])
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture
def opened(page, file):
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(file.as_uri())
    return page


def choose(page, kind, **geometry):
    """Set the controls as a reader does, and return the spec that they should describe."""
    page.get_by_role("radio", name=kind, exact=True).check()
    for name, value in geometry.items():
        inputs = page.locator(f"#geometry [name={name}]")
        for axis, number in enumerate(value if isinstance(value, list) else [value]):
            inputs.nth(axis).fill(str(number))
    fields = page.evaluate("BUILD[state.kind].fields.map(([name]) => name)")
    shown = {}
    for name in fields:
        values = [int(one.input_value()) for one in page.locator(f"#geometry [name={name}]").all()]
        shown[name] = values if len(values) > 1 else values[0]
    return spec_of(kind, shown)


def lit(page, grid):
    return sorted(int(cell.get_attribute("data-index")) for cell in page.locator(f"#{grid} .lit").all())


def point_at(page, spec, i, j, act="hover"):
    """Move the mouse to the middle of entry (i, j)."""
    canvas = page.locator("#matrix")
    canvas.scroll_into_view_if_needed()
    box, (m_out, m_in) = canvas.bounding_box(), spec.matrix_shape
    place = {"x": (j + 0.5) * box["width"] / m_in, "y": (i + 0.5) * box["height"] / m_out}
    getattr(canvas, act)(position=place)


# The maths, against the reference


@pytest.mark.parametrize("kind", KINDS)
def test_every_matrix_is_the_references(kind, opened):
    cases = valid(kind, 150 if kind == "conv" else 40)
    script = """([kind, cases]) => cases.map((geometry) => {
        const spec = build(kind, geometry);
        const weight = spec.weight && range(product(spec.weight)).map((k) => k + 1);
        return { shape: spec.shape, weight: spec.weight, matrix: [...matrix(spec, weight)] };
    })"""
    found = opened.evaluate(script, [kind, [geometry for geometry, _ in cases]])
    for (geometry, spec), ours in zip(cases, found, strict=True):
        assert tuple(ours["shape"]) == spec.matrix_shape, geometry
        assert ours["weight"] == (None if spec.weight_shape is None else list(spec.weight_shape)), geometry
        np.testing.assert_array_equal(np.reshape(ours["matrix"], ours["shape"]), numbered(spec), err_msg=str(geometry))


def test_the_geometries_tried_have_everything():
    """Otherwise the test above would show less than it claims."""
    specs = [spec for _, spec in valid("conv", 150)]
    for name in ("kernel", "stride", "padding", "dilation"):
        assert any(len(set(getattr(spec, name))) == 2 for spec in specs), name
    assert any(spec.in_shape[1] != spec.in_shape[2] for spec in specs)
    assert {spec.groups for spec in specs} == {1, 2, 3}


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_that_of_the_terminal(kind, opened):
    rng = np.random.default_rng(1)
    asked, expected = [], []
    for geometry, spec in valid(kind, 40, seed=1):
        entries = {entry(spec)}
        entries |= {
            (int(rng.integers(spec.matrix_shape[0])), int(rng.integers(spec.matrix_shape[1]))) for _ in range(5)
        }
        for i, j in sorted(entries):
            asked.append([geometry, i, j])
            expected.append(explain(spec, i, j))
    script = "([kind, asked]) => asked.map(([geometry, i, j]) => explain(build(kind, geometry), i, j))"
    found = opened.evaluate(script, [kind, asked])
    assert any(derivation.tap is None for derivation in expected)
    assert any(derivation.tap is not None for derivation in expected)
    for ours, derivation in zip(found, expected, strict=True):
        assert ours["steps"] == [vars(step) for step in derivation.steps]
        assert ours["conclusion"] == derivation.conclusion
        assert ours["tap"] == (None if derivation.tap is None else list(derivation.tap))
        assert (ours["output"], ours["input"]) == (list(derivation.output), list(derivation.input))


@pytest.mark.parametrize("kind", ["conv", "local", "patchify", "patch-embed"])
def test_a_geometry_that_cannot_be_is_refused_in_the_same_words(kind, opened):
    rng = np.random.default_rng(2)
    cases, messages = [], []
    for geometry in islice(draws(kind, seed=2), 200):
        if "patch" in geometry:
            geometry["patch"] = int(rng.integers(1, 7))
        try:
            spec_of(kind, geometry)
        except SpecError as error:
            cases.append(geometry)
            messages.append(str(error))
    assert len(set(messages)) > 10
    script = """([kind, cases]) => cases.map((geometry) => {
        try { build(kind, geometry); } catch (error) { return [error.message, error.field]; }
    })"""
    found = opened.evaluate(script, [kind, cases])
    assert [message for message, _ in found] == messages
    assert {field for _, field in found} == ({"patch"} if "patch" in kind else {"groups", "kernel"})


# What a reader does


@pytest.mark.parametrize("kind", KINDS)
def test_pointing_at_an_entry_lights_what_it_joins(kind, opened):
    spec = choose(opened, kind)
    matrix, rng = numbered(spec), np.random.default_rng(3)
    zeros, others = np.argwhere(matrix == 0), np.argwhere(matrix)
    for i, j in [*rng.permutation(others)[:3].tolist(), *rng.permutation(zeros)[:2].tolist()]:
        point_at(opened, spec, i, j)
        assert lit(opened, "input") == [j]
        assert lit(opened, "output") == [i]
        tap = [] if spec.weight_shape is None or not matrix[i, j] else [int(matrix[i, j]) - 1]
        assert lit(opened, "weight") == tap
        shown = opened.locator("#readout").inner_text()
        assert f"Entry ({i}, {j})" in shown
        assert ("does not read" in shown) == (matrix[i, j] == 0)


def test_groups_strides_and_dilation_light_the_right_tap(opened):
    spec = choose(opened, "conv", channels=2, width=7, out_channels=4, kernel=[2, 3], stride=[2, 1], padding=[0, 2],
                  dilation=[2, 2], groups=2)  # fmt: skip
    matrix = numbered(spec)
    for i, j in np.argwhere(matrix)[::25].tolist():
        point_at(opened, spec, i, j)
        assert (lit(opened, "output"), lit(opened, "input"), lit(opened, "weight")) == ([i], [j], [matrix[i, j] - 1])


def test_a_local_layer_shows_a_kernel_for_each_position(opened):
    spec = choose(opened, "local", channels=2, height=3, width=4, out_channels=2, kernel=[2, 2], padding=[0, 0])
    assert opened.evaluate("state.spec.weight") == [6, 2, 2, 2, 2] == list(spec.weight_shape)
    labels = opened.locator("#weight .label").all_text_contents()
    assert len(labels) == 24
    assert (labels[0], labels[4], labels[23]) == ("0, 0: 0 ← 0", "0, 1: 0 ← 0", "1, 2: 1 ← 1")
    at = [[int(one.get_attribute(axis)) for axis in "yx"] for one in opened.locator("#weight .label").all()]
    assert (len({y for y, _ in at}), len({x for _, x in at})) == (4, 6)  # 2 x 3 positions of 2 x 2 kernels each
    assert at[0][0] == at[1][0] == at[4][0] < at[2][0] < at[12][0]
    opened.locator("#weight [data-index='17']").hover()
    assert "position 1, output channel 0, input channel 0, row 0, column 1" in opened.locator("#readout").inner_text()
    assert "It fills 1 entry of W_P." in opened.locator("#readout").inner_text()
    assert opened.evaluate("lit().entries") == np.argwhere(numbered(spec) == 18).tolist()
    largest = max(abs(number) for number in opened.evaluate("[...state.weight]"))
    assert 8**-0.5 / 2 < largest < 8**-0.5  # the fan-in is that of one kernel


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_lights_its_row_and_an_input_its_column(kind, opened):
    spec = choose(opened, kind)
    matrix = numbered(spec)
    i, j = spec.matrix_shape[0] // 3, spec.matrix_shape[1] // 2
    opened.locator(f"#output [data-index='{i}']").hover()
    assert lit(opened, "input") == np.flatnonzero(matrix[i]).tolist() == sorted(columns(spec, i))
    assert lit(opened, "output") == [i]
    assert opened.evaluate("lit().entries") == [[i, int(at)] for at in np.flatnonzero(matrix[i])]
    opened.locator(f"#input [data-index='{j}']").hover()
    assert lit(opened, "output") == np.flatnonzero(matrix[:, j]).tolist()
    assert lit(opened, "input") == [j]
    if spec.weight_shape is not None:
        opened.locator("#weight [data-index='1']").hover()
        assert opened.evaluate("lit().entries") == np.argwhere(matrix == 2).tolist()


def pixel(page, spec, i, j):
    """The colour in the middle of an entry, as it was drawn."""
    script = """([i, j, rows, columns]) => {
        const canvas = by("matrix"), pen = canvas.getContext("2d");
        const [x, y] = [((j + 0.5) * canvas.width) / columns, ((i + 0.5) * canvas.height) / rows];
        return [...pen.getImageData(Math.floor(x), Math.floor(y), 1, 1).data];
    }"""
    return page.evaluate(script, [i, j, *spec.matrix_shape])


def test_zeros_are_drawn_as_nothing_and_a_row_is_marked(opened):
    spec = choose(opened, "transpose")
    j = int(np.flatnonzero(numbered(spec)[0])[0])
    other = (j + 1) % spec.matrix_shape[1]
    nothing, blue = opened.evaluate('["--cell", "--positive"].map(rgb)')
    assert pixel(opened, spec, 0, other) == [*nothing, 255]
    assert pixel(opened, spec, 0, j) == [*blue, 255]
    opened.locator("#output [data-index='0']").hover()
    assert pixel(opened, spec, 0, other) != [*nothing, 255]
    assert pixel(opened, spec, 1, other) == [*nothing, 255]


def test_a_click_keeps_an_entry_when_the_mouse_goes(opened):
    spec = choose(opened, "conv")
    point_at(opened, spec, 3, 4, "click")
    point_at(opened, spec, 7, 8)
    assert (lit(opened, "output"), lit(opened, "input")) == ([7], [8])
    opened.locator("h1").hover()
    assert (lit(opened, "output"), lit(opened, "input")) == ([3], [4])
    assert (opened.locator("#row").input_value(), opened.locator("#column").input_value()) == ("3", "4")


def test_the_keyboard_does_it_all(opened):
    """From the chosen kind by Tab alone to the matrix, the grids, the steps and alpha."""
    opened.get_by_role("radio", name="conv", exact=True).focus()
    opened.keyboard.press("ArrowRight")
    assert opened.evaluate("state.kind") == "local"
    opened.keyboard.press("ArrowLeft")
    reached = []
    for _ in range(30):
        opened.keyboard.press("Tab")
        reached.append(opened.evaluate("document.activeElement.id || document.activeElement.name"))
        if reached[-1]:  # after the last come the browser's own bars
            assert opened.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", reached[-1]
    wanted = ["channels", "kernel", "input", "matrix", "output", "weight", "alpha", "row", "column", "previous", "next"]
    assert [name for name in dict.fromkeys(reached) if name in wanted] == wanted

    opened.locator("#matrix").focus()
    i, j = (opened.evaluate(f"state.pinned.{name}") for name in "ij")
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
        opened.keyboard.press(key)
    assert (lit(opened, "output"), lit(opened, "input")) == ([i - 2], [j - 1])
    for _ in range(40):
        opened.keyboard.press("ArrowUp")
    assert lit(opened, "output") == [0]

    opened.locator("#output").focus()
    opened.keyboard.press("ArrowDown")  # starts from what is lit
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("ArrowRight")
    assert lit(opened, "output") == [6]
    assert "Output 6" in opened.locator("#readout").inner_text()

    opened.locator("#alpha").focus()
    opened.keyboard.press("Home")
    assert opened.locator("#alpha-value").inner_text() == "0"


def test_arrow_keys_go_on_from_block_to_block(opened):
    choose(opened, "patchify")
    opened.locator("#output [data-index='1']").click()
    opened.locator("#output").focus()
    opened.keyboard.press("ArrowRight")
    assert lit(opened, "output") == [4]  # from patch 0 into patch 1
    opened.keyboard.press("ArrowUp")
    assert lit(opened, "output") == [4]  # the edge


def test_everything_has_a_name(opened):
    for kind in KINDS:
        choose(opened, kind)
        for control in opened.locator("input, button, [tabindex]").all():
            name = control.evaluate(
                "e => e.ariaLabel || e.textContent || [...(e.labels ?? [])].map(l => l.textContent).join()"
            )
            assert name.strip(), control.evaluate("e => e.outerHTML")


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        ("patchify", "patch", "5", "Patchify.patch 5 does not divide the height 4; use one of 1, 2, 4"),
        ("conv", "groups", "2", "Conv.groups 2 does not divide the 1 input channels; use 1"),
        ("conv", "dilation", "3", None),  # 7 pixels fit in 5 + 2
        ("conv", "padding", "", "padding is not a number; give a whole number from 0 to 3"),
        ("conv", "out_channels", "0", "out channels is 0; give a whole number from 1 to 4"),
        ("shared", "rows", "99", "rows is 99; give a whole number from 1 to 12"),
        ("shared", "rows", "2.5", "rows is 2.5; give a whole number from 1 to 12"),
        ("patch-embed", "dim", "-1", "dim is -1; give a whole number from 1 to 12"),
    ],
)
def test_bad_geometry_is_told_in_place(kind, field, value, message, opened):
    choose(opened, kind)
    before = opened.locator("#matrix-shape").inner_text()
    box = opened.locator(f"#geometry [name={field}]").first
    was = box.input_value()
    box.fill(value)
    error = opened.get_by_role("alert")
    if message is None:
        assert not error.is_visible()
        return
    assert error.inner_text() == message
    assert box.get_attribute("aria-invalid") == "true"
    assert opened.locator("#matrix-shape").inner_text() == before  # the last valid one stays
    box.fill(was)
    assert not error.is_visible()
    assert box.get_attribute("aria-invalid") == "false"


def test_a_matrix_too_large_to_see(opened):
    choose(opened, "conv", height=8, width=8, out_channels=4)
    opened.locator("#geometry [name=padding]").first.fill("3")
    assert opened.get_by_role("alert").inner_text() == (
        "the output has 384 numbers, and at most 256 can be seen; make out channels smaller"
    )
    assert opened.locator("[name=out_channels]").get_attribute("aria-invalid") == "true"


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_of_a_chosen_row(kind, opened):
    spec = choose(opened, kind)
    for i in {0, 1, spec.matrix_shape[0] // 2, spec.matrix_shape[0] - 1}:
        opened.locator("#row").fill(str(i))
        j = int(opened.locator("#column").input_value())
        found = explain(spec, i, j)
        assert found.tap is not None
        lines = [f"{s.meaning}\n{s.name} = {s.formula} = {s.numbers} = {s.value}" for s in found.steps]
        assert [line.inner_text() for line in opened.locator("#steps .step").all()] == lines
        assert opened.locator("#conclusion").inner_text().startswith(f"entry ({i}, {j}) = {found.conclusion}")


def test_stepping_fills_the_numbers_in_one_by_one(opened):
    spec = choose(opened, "patchify")
    opened.locator("#row").fill("13")
    found = explain(spec, *entry(spec, 13))
    filled = [f"{s.name} = {s.formula} = {s.numbers} = {s.value}" for s in found.steps]
    bare = [f"{s.name} = {s.formula}" for s in found.steps]

    def shown():
        return [text.split("\n")[1] for text in opened.locator("#steps .step").all_inner_texts()]

    assert shown() == filled
    for done in range(1, len(filled) + 1):
        opened.locator("#next").click()
        assert shown() == [*filled[:done], *bare[done:]]
        assert opened.locator("#progress").inner_text() == f"Step {done} of {len(filled)}"
        assert opened.locator("#conclusion").inner_text() == ""
    opened.locator("#previous").click()
    assert shown() == [*filled[:-1], *bare[-1:]]
    opened.locator("#next").click()
    opened.locator("#next").click()
    assert shown() == filled
    assert "entry (13, 13) = 1" in opened.locator("#conclusion").inner_text()


@pytest.mark.parametrize(("field", "value"), [("row", "999"), ("row", ""), ("column", "-1"), ("column", "1.5")])
def test_an_entry_that_is_not_there_is_marked_and_changes_nothing(field, value, opened):
    before = opened.locator("#readout").inner_text()
    opened.locator(f"#{field}").fill(value)
    assert opened.locator(f"#{field}").get_attribute("aria-invalid") == "true"
    assert opened.locator("#readout").inner_text() == before


def slide(page, position):
    page.locator("#alpha").fill(str(position))


@pytest.mark.parametrize("kind", ["conv", "token-mix-in", "patchify"])
def test_alpha_mixes_the_matrix(kind, opened):
    spec = choose(opened, kind)
    script = "({ shown: [...state.mixed], W: [...state.dense], W_P: [...state.prior] })"
    pictures = set()
    for position in (0, 0.4, 0.8, 1):
        slide(opened, position)
        found = opened.evaluate(script)
        alpha, W, W_P = position**3, np.array(found["W"]), np.array(found["W_P"])
        np.testing.assert_allclose(found["shown"], (1 - alpha) * W + alpha * W_P, atol=1e-15)
        pictures.add(opened.evaluate("by('matrix').toDataURL()"))
    assert len(pictures) == 4
    assert np.count_nonzero(W) == W.size
    assert np.count_nonzero(W_P) == spec.nnz
    bound = spec.matrix_shape[1] ** -0.5
    assert bound / 2 < np.abs(W).max() < bound
    assert abs(W.mean()) < bound / 4


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_the_matrix_and_its_slider_are_in_view_together(size, opened):
    opened.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    for kind in KINDS:
        choose(opened, kind)
        matrix, slider = (opened.locator(f"#{name}").bounding_box() for name in ("matrix", "alpha"))
        assert slider["y"] + slider["height"] - matrix["y"] < size[1]


@pytest.mark.parametrize("curve", ACCURACY["curves"])
def test_the_accuracy_shown_is_the_one_measured(curve, opened):
    def spread(point):
        deviation = f" ± {100 * point['std']:.2f}" if point["std"] is not None else ""
        return f"{100 * point['accuracy']:.2f}{deviation} %"

    for point in ACCURACY["curves"][curve]:
        slide(opened, round(point["alpha"] ** (1 / 3), 2))
        assert opened.locator(f"[data-curve={curve}]").inner_text() == spread(point)
        assert opened.locator(f"[data-note={curve}]").inner_text() == f"measured at {point['alpha']:g}"
    low, high = ACCURACY["curves"][curve][-2:]
    slide(opened, 0.95)
    shown = opened.locator(f"[data-curve={curve}]").inner_text()
    share = (0.95 - low["alpha"] ** (1 / 3)) / (1 - low["alpha"] ** (1 / 3))
    between = low["accuracy"] + share * (high["accuracy"] - low["accuracy"])
    assert abs(float(shown.split(" %")[0]) - 100 * between) < 0.006
    assert f"between {spread(low)} at {low['alpha']:g}" in opened.locator(f"[data-note={curve}]").inner_text()
    assert spread(ACCURACY["prior"]) in opened.locator("#accuracy").inner_text()
    assert opened.locator("#curve text").count() == 0  # it would lie under a curve
    assert ACCURACY["what"] in opened.locator("#measured").text_content()


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_between_two_measurements_everything_stays_in_the_card(size, opened):
    opened.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    slide(opened, 0.27)
    card = opened.locator(".stage").bounding_box()
    for part in opened.locator("#accuracy > *").all():
        box = part.bounding_box()
        assert card["x"] < box["x"]
        assert box["x"] + box["width"] < card["x"] + card["width"]
        assert box["height"] < 70  # never one word per line
    assert opened.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_a_layer_of_the_mixer_does_not_show_the_curve_of_the_cnn(opened):
    for kind in KINDS:
        choose(opened, kind)
        assert opened.locator("#curve").is_visible() == (kind in ("conv", "local"))
        assert opened.locator("#accuracy").is_visible() == (kind in ("conv", "local"))


def until(opened, condition):
    """Wait for it; `wait_for_function` evaluates a string in the page, which the page's policy forbids."""
    for _ in range(600):
        if opened.evaluate(condition):
            return
        opened.wait_for_timeout(50)
    raise AssertionError(condition)


def test_play_moves_alpha_to_the_prior_and_can_be_paused(opened):
    slide(opened, 0.95)
    opened.locator("#play").click()
    until(opened, "state.alpha === 1 && by('play').textContent === 'Play'")
    paused = opened.evaluate(  # from the start again; in the page, whose clock does not wait for a busy machine
        """async () => {
            by("play").click();
            const words = [by("play").textContent];
            while (!(state.alpha > 0)  || state.alpha === 1) await new Promise((done) => setTimeout(done, 10));
            by("play").click();
            const stopped = state.alpha;
            await new Promise((done) => setTimeout(done, 200));
            return [...words, by("play").textContent, stopped, state.alpha];
        }"""
    )
    assert paused[:2] == ["Pause", "Play"]
    assert 0 < paused[2] == paused[3] < 1


def test_a_link_restores_what_is_shown(opened, file):
    spec = choose(opened, "conv", height=4, kernel=[2, 3], out_channels=2)
    opened.locator("#coupling").select_option("self")
    slide(opened, 0.5)
    point_at(opened, spec, 7, 3, "click")
    link = opened.locator("#link").get_attribute("href")
    until(opened, "location.hash === by('link').getAttribute('href')")
    script = "[state.kind, state.spec.shape, state.coupling, state.alpha, state.pinned, [...state.mixed]]"
    before = opened.evaluate(script)
    opened.goto("about:blank")
    opened.goto(file.as_uri() + link)
    assert opened.evaluate(script) == before


@pytest.mark.parametrize(
    "wrong", ["kind=x", "kernel=-1", "alpha=7&entry=999,-4", "coupling=__proto__&entry=a,b", "%%%"]
)
def test_a_link_that_is_wrong_opens_the_page_all_the_same(wrong, page, file):
    page.goto(f"{file.as_uri()}#{wrong}")
    assert page.evaluate("state.kind") == "conv"
    assert page.locator("#error").is_visible() == wrong.startswith("kernel")
    page.get_by_role("radio", name="shared", exact=True).check()
    assert page.evaluate("state.spec.shape") == [12, 20]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(scheme, opened):
    opened.emulate_media(color_scheme=scheme)
    background = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = sum(map(int, re.findall(r"\d+", background))) / 3
    assert lightness > 200 if scheme == "light" else lightness < 50
    spec = choose(opened, "transpose")
    nothing = opened.evaluate("rgb('--cell')")
    assert pixel(opened, spec, 0, spec.matrix_shape[1] - 1) == [*nothing, 255]
    assert np.mean(nothing) > 200 if scheme == "light" else np.mean(nothing) < 60


def test_nothing_moves_for_those_who_do_not_want_it(opened):
    script = "[...document.querySelectorAll('*')].map(e => getComputedStyle(e).transitionDuration)"
    assert any(duration != "0s" for duration in opened.evaluate(script))
    opened.emulate_media(reduced_motion="reduce")
    assert {*opened.evaluate(script)} == {"0s"}


def test_on_a_phone_by_touch(browser, file):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, offline=True)
    phone, errors = context.new_page(), []
    phone.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    phone.on("pageerror", lambda error: errors.append(str(error)))
    phone.goto(file.as_uri())
    for kind in KINDS:
        spec = choose(phone, kind)
        point_at(phone, spec, 2, 5, "tap")
        assert (lit(phone, "output"), lit(phone, "input")) == ([2], [5])
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390
        assert phone.locator("#matrix").bounding_box()["width"] <= 390
    largest = choose(phone, "conv", channels=4, height=8, width=8, out_channels=4)
    assert largest.matrix_shape == (256, 256)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
    assert errors == []


# The command, and what is committed


def test_the_page_is_one_file_that_asks_for_nothing(file):
    text = file.read_text()
    assert text == explore.page()
    assert "{{" not in text
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert "default-src 'none'" in text
    assert {name.rpartition("w3.org")[0] for name in re.findall(r"https?://[^\"\s]+", text)} == {"http://www."}


def test_the_asset_is_figure_2_of_the_record():
    """Better runs were collected if this fails: `python results/build.py` takes them over."""
    computed = build.computed(build.HERE, archive.records(ROOT / "results"))
    assert json.loads(computed[build.EXPLORE]) == ACCURACY
    assert "step" in ACCURACY["curves"]
    for points in ACCURACY["curves"].values():
        alphas = [point["alpha"] for point in points]
        assert alphas == sorted(alphas)
        assert (alphas[0], alphas[-1]) == (0, 1)


def refused(*arguments):
    result = CliRunner().invoke(app, ["explore", *map(str, arguments)])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_bad_input_gives_one_line_with_the_remedy(tmp_path):
    assert "use .html" in refused("--out", tmp_path / "page.png")
    assert "choose a folder that exists" in refused("--out", tmp_path / "missing" / "page.html")


def test_the_page_is_written_without_torch_and_matplotlib(tmp_path):
    code = (
        "import sys; from imlp.cli import app\n"
        f"app(['explore', '--out', {str(tmp_path / 'page.html')!r}], standalone_mode=False)\n"
        "assert not {'torch', 'matplotlib'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_the_couplings_show_what_the_reference_computes(opened):
    spec = choose(opened, "conv", channels=1, height=4, width=4, out_channels=2, kernel=[3, 3], padding=[1, 1])
    opened.evaluate("state.alpha = 0.3")
    W, prior = (np.reshape(opened.evaluate(f"[...state.{name}]"), spec.matrix_shape) for name in ("dense", "prior"))
    expected = {
        "interpolate": 0.7 * W + 0.3 * prior, "add": W + 0.3 * prior, "self": reference.pull(W, spec, 0.3),
        "locality": reference.pull(W, spec, 0.3, 0), "sharing": reference.pull(W, spec, 0, 0.3),
        "relax": prior, "pathway": prior + W, "gate": 0.3 * prior + 0.7 * W,
    }  # fmt: skip
    for coupling, matrix in expected.items():
        opened.get_by_label("Coupling").select_option(coupling)
        found = np.reshape(opened.evaluate("[...state.mixed]"), spec.matrix_shape)
        np.testing.assert_allclose(found, matrix, atol=1e-12, err_msg=coupling)
    assert opened.locator("#matrix-name").inner_text().endswith("g) U, g = 0.3")
    choose(opened, "transpose")  # has no weight, so nothing is nearest to W
    assert opened.evaluate("state.coupling") == "interpolate"
    assert opened.locator("#coupling option[value=self]").is_disabled()
