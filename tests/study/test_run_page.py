"""The page of one run: its numbers, its matrices before and after, and what a browser makes of it."""

import base64
import io
import re

import numpy as np
import pytest
import tiny
from PIL import Image
from typer.testing import CliRunner

from imlp.cli import app
from imlp.init import network_parameters
from imlp.reference import matrix
from imlp.study.run_page import _corner, _layer, _png, run_page
from imlp.train.export import parameters
from imlp.train.run_reader import read_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "<one>"
    tiny.run(path, lanes=tiny.lanes(0, (0.1, {"every": "step"}), (1, {"every": "step"})))
    return path


def pictures(text: str) -> dict[str, np.ndarray]:
    found = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^:]+): entries', text)
    return {name: np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))) for content, name in found}


def test_it_shows_every_network_and_its_matrix_before_and_after(folder):
    text, run = run_page(read_run(folder)), read_run(folder)
    for model in run.result["models"]:
        assert f'<td class="number">{100 * model["test_accuracy"]:.1f} %</td>' in text
    shown = pictures(text)
    assert list(shown) == [
        "before training",
        "S-MLP (alpha 0)",
        "I-MLP alpha 0.1",
        "I-MLP alpha 1",
        "S-CNN (the prior)",
    ]
    network, prior = parameters(folder, "prior")
    layer = _layer(network)
    rows, columns = _corner(layer)
    key = f"{layer.name}.weight"
    drawn = {"S-CNN (the prior)": matrix(layer.spec, prior[key]).toarray()}
    drawn["before training"] = network_parameters(network, dense=True, seed=run.config.seed)[key]
    drawn |= {name: parameters(folder, n)[1][key] for n, name in enumerate(list(shown)[1:4])}
    for name, values in drawn.items():
        expected = np.asarray(Image.open(io.BytesIO(_png(np.asarray(values)[:rows, :columns]))))
        np.testing.assert_allclose(shown[name].astype(int), expected.astype(int), atol=2, err_msg=name)
    assert (shown["before training"] != shown["S-MLP (alpha 0)"]).any()
    assert "<one>" not in text


def test_the_command_writes_it_and_needs_a_known_type(folder, tmp_path):
    result = CliRunner().invoke(app, ["plot", str(folder), "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 0, result.output
    assert 'src="data:image/svg+xml' in (tmp_path / "page.html").read_text()
    assert "use .png, .svg, .pdf or .html" in CliRunner().invoke(app, ["plot", str(folder), "--out", "a.txt"]).stderr


def test_without_weights_there_are_no_matrices(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "bare", ignore=shutil.ignore_patterns("checkpoint"))
    text = run_page(read_run(tmp_path / "bare"))
    assert "The matrix inside" not in text
    assert "S-MLP (alpha 0)" in text


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_fits_every_window(page, folder, tmp_path, width):
    (tmp_path / "page.html").write_text(run_page(read_run(folder)))
    page.set_viewport_size({"width": width, "height": 844})
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for picture in page.locator("img").all():
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
