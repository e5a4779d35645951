"""`verify` and `info` as a user sees them."""

import json

import pytest
from conftest import needs
from typer.testing import CliRunner

needs("accel")

from imlp import networks  # noqa: E402
from imlp.accel import convolution, verbs  # noqa: E402
from imlp.cli import app  # noqa: E402
from imlp.commands.console import out  # noqa: E402
from imlp.commands.verify import _print  # noqa: E402
from imlp.look import verify  # noqa: E402
from imlp.spec import Chain, Conv, Shared, Transpose  # noqa: E402


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_the_papers_two_priors_pass():
    result = run("verify", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["passed"] is True
    assert len(found["errors"]) == 6 + 9
    assert set(found["errors"]["cnn conv1"]) == set(verify.VERBS)
    assert list(found["networks"]) == ["cnn", "mixer"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_kind_in_any_type(dtype):
    result = run("verify", "--spec", "token-mix-out", "--spec", "conv", "--dtype", dtype)
    assert result.exit_code == 0, result.output
    assert "all equal within rounding" in result.stdout


def test_a_miss_is_shown_and_exits_with_1(monkeypatch):
    right = convolution.apply
    monkeypatch.setitem(verbs.APPLY, Conv, lambda *arguments: right(*arguments) * 1.001)
    result = run("verify", "--spec", "conv", "--json")
    assert result.exit_code == 1
    errors = json.loads(result.stdout)["errors"]["conv"]
    assert errors["apply"] > verify.TOLERANCE["float32"] > errors["interpolate"]
    assert "not equal" in run("verify", "--spec", "conv").stdout


@pytest.mark.parametrize("verb", ["adjoint", "project", "expand_bias", "matrix"])
def test_every_verb_is_looked_at(verb, monkeypatch):
    from imlp import accel

    right = getattr(verbs, verb)
    monkeypatch.setattr(accel, verb, lambda *arguments, **options: right(*arguments, **options) + 0.5)
    errors = verify.layer_errors(Chain(Transpose(3, 4), Shared(4, 3, 2)))
    missed = [name for name, error in errors.items() if error > verify.TOLERANCE["float32"]]
    assert missed == ["bias" if verb == "expand_bias" else verb]


@pytest.mark.parametrize(
    ("operation", "wrong"),
    [
        ("gelu", {"prior logits", "prior gradients", "I-MLP logits", "I-MLP gradients"}),
        ("linear", {"I-MLP logits"}),
    ],
)
def test_whole_networks_are_looked_at(operation, wrong, monkeypatch):
    from imlp.accel import layers, operations

    right = getattr(layers, operation)

    def shifted(*arguments, **options):
        y, backward = right(*arguments, **options)
        return y + 0.01, backward

    monkeypatch.setattr(layers, operation, shifted)
    monkeypatch.setitem(operations.ACTIVATIONS, operation, shifted)
    network = networks.mixer(image=(3, 8, 8), patch=4, channels=6)
    errors = verify.network_errors(network, dtype="float64")
    assert {name for name, error in errors.items() if error > verify.TOLERANCE["float64"]} >= wrong
    assert errors["interpolation"] <= verify.TOLERANCE["float64"]


def test_numbers_that_are_not_finite_are_a_miss(monkeypatch):
    right = convolution.apply
    monkeypatch.setitem(verbs.APPLY, Conv, lambda *arguments: right(*arguments) / 0)
    assert verify.layer_errors(Conv((1, 3, 3), 1))["apply"] == float("inf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--network cnm", "did you mean 'cnn'?"),
        ("--spec magic", "unknown kind: 'magic'"),
        ("--device nowhere", "use auto or cpu"),
        ("--dtype bfloat16", "use float32, or --device cuda"),
    ],
)
def test_bad_input_gives_one_line_with_the_remedy(arguments, message):
    result = run("verify", *arguments.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_info_says_which_path_is_in_use_and_why():
    found = json.loads(run("info", "--json").stdout)
    assert found["interpolation"].startswith(("torch views", "fused", "C for convolutions"))
    assert found["because"]
    assert "torch" in run("info").stdout


def test_a_network_and_a_kind_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "from imlp.networks import cnn\nfrom imlp.spec import Shared as Own\n\n"
    text += "def mine(image=(1, 4, 4), classes=3, *, width=16):\n"
    text += "    return cnn(image, classes, width=width, strides=(1,))\n"
    (tmp_path / "mine.py").write_text(text)
    runner = CliRunner()
    result = runner.invoke(app, ["verify", "--network", "mine.py:mine", "--options", "width=32", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found["errors"]) == ["mine.py:mine conv1"]
    assert list(found["networks"]) == ["mine.py:mine"]
    sizes = ("rows=2", "in_features=3", "out_features=4")
    options = [word for size in sizes for word in ("--options", size)]
    result = runner.invoke(app, ["verify", "--kind", "mine.py:Own", *options, "--json"])
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout)["errors"]) == ["mine.py:Own"]
    result = runner.invoke(app, ["verify", "--options", "width=32"])
    assert result.exit_code == 2
    assert "name one of them: --network or --kind" in result.stderr


def test_the_table_fits_into_80_columns(monkeypatch):
    monkeypatch.setattr(out, "_width", 80)
    names = [f"{name} {layer.name}" for name in ("mixer", "resnet") for layer in networks.make(name).layers]
    with out.capture() as shown:
        _print(dict.fromkeys(names, dict.fromkeys(verify.VERBS, 1.2e-7)), 1e-5, "title", "layer")
    assert "resnet block3.shortcut" in shown.get()
    assert "…" not in shown.get()
