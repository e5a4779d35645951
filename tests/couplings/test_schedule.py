"""Schedules against the paper's formula."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imlp import networks
from imlp.couplings.schedule import Alpha, Schedule, parse
from imlp.errors import AlphaError, SpecError


@given(a=st.floats(0, 1), k=st.floats(0, 16), epochs=st.integers(1, 200), data=st.data())
def test_decay_is_appendix_g(a, k, epochs, data):
    t = data.draw(st.integers(0, epochs - 1))
    assert Schedule("decay", (a, k)).at(t, epochs) == a * (1 - t / epochs) ** k


def test_the_schedules_over_five_epochs():
    over = {text: [parse(text).at(t, 5) for t in range(5)] for text in ("0.5", "end:0.5", "once:2:1", "list:0.1:0.2")}
    assert over["0.5"] == [0.5] * 5
    assert over["end:0.5"] == [None] * 4 + [0.5]
    assert over["once:2:1"] == [None, 1.0, None, None, None]
    assert over["list:0.1:0.2"] == [0.1, 0.2, 0.2, 0.2, 0.2]
    assert [parse("decay:0.5:0").at(t, 5) for t in range(5)] == [0.5] * 5


@given(a=st.floats(0, 1), k=st.floats(0, 9))
def test_text_and_schedule_are_the_same(a, k):
    for schedule in (
        Schedule("constant", (a,)),
        Schedule("rate", (k,)),
        Schedule("decay", (a, k)),
        Schedule("list", (a, 0.5)),
    ):
        assert parse(str(schedule)) == schedule


@pytest.mark.parametrize(
    "text",
    [
        "2",
        "-0.1",
        "nan",
        "half",
        "decay:0.5",
        "decay:0.5:-1",
        "decay:2:1",
        "end:",
        "once:0:1",
        "once:1.5:1",
        "x:1",
        "decay:0.5:inf",
        "once:inf:1",
        "decay:0.5:nan",
        "rate:",
        "rate:-1",
        "rate:nan",
        "rate:inf",
        "rate:1:2",
        "rate:\u0663",
    ],
)
def test_what_is_no_schedule_is_refused_with_what_would_be(text):
    with pytest.raises(AlphaError, match=r"from 0|write a number|K is a number from 0"):
        parse(text)


def test_one_alpha_a_layer_and_one_a_kind():
    network = networks.mixer()
    layers = network.interpolated
    by_kind = Alpha("patch-embed=0.5,token-mix-in=decay:0.5:1").by_layer(network, layers)
    assert by_kind == {
        "embed": parse("0.5"),
        "block1.token1": parse("decay:0.5:1"),
        "block2.token1": parse("decay:0.5:1"),
    }
    assert Alpha("0.3").by_layer(network, layers) == dict.fromkeys(layers, parse("0.3"))
    both = Alpha({"channel-mix": 0.1, "block1.channel1": 0.9}).by_layer(network, layers)
    assert both["block1.channel1"] == parse("0.9")
    assert both["block2.channel1"] == parse("0.1")


def test_an_unknown_layer_is_refused_with_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'conv1'"):
        Alpha("conv11=0.5").by_layer(networks.cnn(), networks.cnn().interpolated)


@pytest.mark.parametrize("text", ["=0.5", "conv1=0.5,=0.1", "conv1=0.5, conv1=0.1", {"": 0.5}, {}])
def test_each_layer_has_a_name_and_one_alpha(text):
    with pytest.raises(AlphaError, match=r"name is missing|named twice|names no layer"):
        Alpha(text)
