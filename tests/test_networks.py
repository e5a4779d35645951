"""The networks as data: the paper's counts, the names, and what is refused."""

import re
from dataclasses import replace

import pytest
from small_networks import SMALL

from imlp import kinds, networks
from imlp.errors import SpecError
from imlp.networks import (
    Activation,
    DenseOnly,
    Layer,
    Mean,
    Network,
    Norm,
    Residual,
    check_layers,
    cnn,
    mixer,
    mlp1,
    mlp2,
    resnet,
)
from imlp.spec import Conv, Shared, Transpose


@pytest.mark.parametrize(
    ("network", "prior", "dense"),
    [(cnn(), 757_982, 8_405_002), (mixer(), 93_130, 39_865_610)],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_counts_of_tables_2_and_3(network, prior, dense):
    assert network.n_parameters(dense=False) == prior
    assert network.n_parameters(dense=True) == dense


def test_the_counts_of_appendix_h():
    assert mlp1(classes=100).n_parameters(dense=True) == 16_922_724
    assert mlp2(classes=10).n_parameters(dense=True) == 16_812_042  # the paper prints 16,812,024
    assert mlp2().n_interpolated == 9_440_256 == 3072 * 3072 + 3072
    assert mlp2(first_channels=3, first_stride=1).n_interpolated == 9_440_256
    alexnet = mlp2(first_channels=48, first_stride=4, first_kernel=11, first_padding=4)
    assert alexnet.n_interpolated == 9_440_256
    assert alexnet.n_parameters(dense=True) == 16_812_042
    assert [layer.spec.out_shape for layer in alexnet.layers][:3] == [(48, 8, 8), (64, 4, 4), (256, 2, 2)]
    assert mlp1().n_interpolated == 8_394_752  # the six layers of the S-CNN: less than MLP-2's single one


def test_the_shapes_of_table_2():
    network = cnn()
    assert [layer.spec.weight_shape[:2] for layer in network.layers] == [
        (1, 3), (4, 1), (16, 4), (64, 16), (256, 64), (256, 256),
    ]  # fmt: skip
    assert [layer.spec.out_shape[1] for layer in network.layers] == [32, 16, 8, 4, 2, 2]
    kinds_of = [type(one).__name__ for one in network.body]
    assert kinds_of == ["Layer", "Norm", "Activation"] * 5 + ["Layer"]
    assert network.interpolated == ("conv1", "conv2", "conv3", "conv4", "conv5", "conv6")


def test_norm_and_gelu_may_follow_other_layers():
    both = networks.cnn(activated=(1, 5))
    assert [one.name for one in both.body if not isinstance(one, Layer)] == ["conv1.norm", "gelu", "conv5.norm", "gelu"]
    assert [both.body[n + 1].name for n, one in enumerate(both.body) if one.name == "conv5"] == ["conv5.norm"]
    assert both.n_parameters(dense=False) == 757_982
    assert networks.cnn(activated=range(1, 6)) == networks.cnn()
    for wrong in ((0,), (7,), "15", ("conv1",)):
        with pytest.raises(SpecError, match="give a list of layers from 1 to 6"):
            networks.cnn(activated=wrong)


def test_the_layers_of_table_3():
    network = mixer()
    assert [(layer.name, layer.kind) for layer in network.layers[:5]] == [
        ("embed", "patch-embed"),
        ("block1.token1", "token-mix-in"),
        ("block1.token2", "token-mix-out"),
        ("block1.channel1", "channel-mix"),
        ("block1.channel2", "channel-mix"),
    ]
    assert [layer.spec for layer in network.layers[:5]] == [
        kinds.make(layer.kind) for layer in network.layers[:5]
    ]  # the paper's geometry
    assert [layer.spec.matrix_shape for layer in network.layers] == [(2048, 3072)] + [(2048, 2048)] * 8


def test_the_prior_of_mlp1_is_an_s_cnn_below_layers_of_its_own():
    network = mlp1()
    (upper,) = [one.body for one in network.body if isinstance(one, DenseOnly)]
    assert [one.name for one in upper if isinstance(one, Layer)] == [f"dense{n}" for n in range(7, 15)]
    assert not [name for name in network.shapes(dense=False) if name.startswith("dense")]
    assert network.interpolated == cnn().interpolated
    assert [layer.spec for layer in network.layers[:6]] == [layer.spec for layer in cnn().layers]
    norms = 6 * 2 * 1024
    assert network.n_parameters(dense=False) == 757_982 + norms


def test_the_prior_of_mlp2_goes_on_as_an_s_cnn():
    for network in (mlp2(), mlp2(first_channels=3, first_stride=1)):
        shapes = [layer.spec.matrix_shape for layer in network.layers]
        assert shapes == [(3072, 3072), (1024, 3072)] + [(1024, 1024)] * 4
        assert network.interpolated == ("conv1",)
        assert network.layers[-1].spec.out_shape == (256, 2, 2)


@pytest.mark.parametrize("network", SMALL.values(), ids=SMALL)
def test_names_and_widths_join_up(network):
    names = [layer.name for layer in network.layers]
    assert len(set(names)) == len(names)
    for dense in (False, True):
        shapes = network.shapes(dense=dense)
        assert {name.rpartition(".")[2] for name in shapes} == {"weight", "bias"}
        assert list(shapes)[-2:] == ["head.weight", "head.bias"]
    assert hash(network) == hash(replace(network))
    assert {layer.kind for layer in network.layers} <= {*kinds.KINDS, "dense"}


def test_only_layers_with_a_prior_can_be_mixed():
    assert check_layers(cnn(), ["conv2", "conv1"]) == ("conv2", "conv1")
    with pytest.raises(SpecError, match=r"unknown layer of cnn with a prior: 'conv9'; did you mean 'conv\d'"):
        check_layers(cnn(), ["conv9"])
    with pytest.raises(SpecError, match="with a prior: 'dense7'"):
        check_layers(mlp1(), ["dense7"])
    with pytest.raises(SpecError, match="give a list of names"):
        check_layers(cnn(), "conv1")
    with pytest.raises(SpecError, match="layer conv1 is named twice"):
        check_layers(cnn(), ["conv1", "conv1"])


def test_make_refuses_what_it_does_not_know_with_the_nearest_name():
    assert networks.make("cnn", classes=100) == cnn(classes=100)
    assert networks.make("cnn", image=[3, 8, 8], width=64, strides=[1, 2]).image == (3, 8, 8)
    with pytest.raises(SpecError, match="unknown network: 'mixr'; did you mean 'mixer'"):
        networks.make("mixr")
    with pytest.raises(SpecError, match="unknown option of mixer: 'chanels'; did you mean 'channels'"):
        networks.make("mixer", chanels=64)


def network_of(*body):
    return Network("mine", (1, 2, 2), 2, body)


FOUR = Layer("one", Shared(1, 4, 4), "dense")
SIX = Layer("up", Shared(1, 4, 6), "dense", interpolated=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cnn(width=1000), "conv1: the dense layer has 1000 outputs, .* 32 x 32 pixels has a multiple of 1024"),
        (lambda: cnn(width=(1024, 1000), strides=(1, 2)), "conv2: the dense layer has 1000 .* multiple of 256; .* 768"),
        (lambda: cnn(width=(1024, 1024), strides=(1,)), "2 widths for 1 strides"),
        (lambda: mixer(patch=5), "Patchify.patch 5 does not divide"),
        (lambda: cnn(image=(32, 32)), r"image is \(32, 32\); give \(channels, height, width\)"),
        (lambda: Network("mine", (4, 4), 2, (FOUR,)), r"mine: image is \(4, 4\); give \(channels, height, width\)"),
        (lambda: cnn(classes=1), "classes is 1; give a whole number of at least 2"),
        (lambda: resnet(width=100), "stem: the dense layer has 100 outputs"),
        (lambda: network_of(Layer("a", Shared(1, 5, 4), "dense")), "a takes 5 numbers, but the image gives 4"),
        (lambda: network_of(FOUR, Layer("b", Shared(1, 3, 4), "dense")), "b takes 3 numbers, but one gives 4"),
        (lambda: network_of(FOUR, FOUR), "two layers called 'one'"),
        (lambda: network_of(FOUR, Norm("one", 4, learned=True)), "two layers called 'one'"),
        (lambda: network_of(Layer("a=b", Shared(1, 4, 4), "dense")), "a layer called 'a=b'; use letters, digits"),
        (lambda: network_of(Layer("t", Transpose(2, 2), "transpose")), "t has no parameters"),
        (
            lambda: network_of(FOUR, Activation("rellu")),
            "unknown activation of mine: 'rellu'; did you mean 'relu'.* gelu, relu",
        ),
        (lambda: network_of(FOUR, Norm("a.norm", 3)), "a.norm is a norm over 3 of 4 numbers; use a divisor of 4"),
        (lambda: network_of(FOUR, Mean(3)), "mine: the mean over 3 positions of 4 numbers"),
        (lambda: network_of(Residual("r", (SIX,))), "r is residual: its body ends with 6 numbers, 4 numbers beside it"),
        (lambda: network_of(Residual("r", (FOUR,), SIX)), "its body ends with 4 numbers, its shortcut 6; make them eq"),
        (lambda: network_of(Residual("r", (SIX,), Layer("s", Shared(1, 5, 6), "x"))), "s takes 5 numbers, but the ima"),
        (lambda: network_of(Layer("a", max, "x")), "a has <built-in function max> for a spec; .*attention, BatchNorm"),
        (lambda: network_of(FOUR, max), "<built-in function max> is not an operation; use Layer, Norm"),
        (lambda: network_of(FOUR, DenseOnly((SIX,))), "head takes 6 numbers in the I-MLP, but 4 in the prior"),
    ],
)
def test_widths_that_do_not_match_are_refused_by_name_and_number(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_a_network_of_ones_own_takes_a_few_lines():
    conv = Conv((1, 4, 4), 2, kernel=3, stride=2, padding=1)
    gelu = Activation("gelu")
    body = (Layer("conv", conv, "conv"), Norm("conv.norm", 8), gelu, Layer("mix", Shared(4, 2, 2), "shared"))
    mine = Network("mine", (1, 4, 4), 3, body)
    assert mine.n_parameters(dense=True) == 8 * 17 + 8 * 9 + 3 * 9
    assert mine.n_parameters(dense=False) == 2 * 10 + 2 * 3 + 3 * 9
    assert re.match("mix", mine.layer("mix").name)
    with pytest.raises(SpecError, match="did you mean 'conv'"):
        mine.layer("con")


def test_the_residual_network():
    network = resnet()
    assert network.n_parameters(dense=False) == 51_346
    assert network.n_parameters(dense=True) == 11_544_202
    first, last = (one for one in network.body if isinstance(one, Residual) and one.name in ("block1", "block3"))
    assert first.shortcut is None
    assert last.shortcut.spec == Conv((16, 8, 8), 64, kernel=1, stride=2)
    branch = ["block3.conv1", "block3.conv1.norm", "relu", "block3.conv2", "block3.conv2.norm"]
    assert [one.name for one in last.body] == branch
    assert network.body[-2:] == (Activation("relu"), Mean(16, channels_first=True))
    assert network.head.spec.matrix_shape == (10, 64)


def test_a_misspelt_kind_or_option_is_told_the_nearest_one():
    with pytest.raises(SpecError, match=r"unknown kind: 'patchfy'; did you mean 'patchify'\? the known ones are conv,"):
        kinds.make("patchfy")
    with pytest.raises(SpecError, match=r"kind conv: 'strid'; did you mean 'stride'\?"):
        kinds.make("conv", strid=2)
    with pytest.raises(SpecError, match=r"kind patchify: 'kernel'; the known ones are image, patch"):
        kinds.make("patchify", kernel=2)


@pytest.mark.parametrize(
    ("network", "options", "match"),
    [
        ("cnn", {"learned_norm": 7}, "learned_norm is 7; give true or false"),
        ("mlp2", {"depth": True}, "depth is True; it is neither true nor false"),
        ("mixer", {"token_hidden": False}, "token_hidden is False; it is neither"),
        ("mlp1", {"depth": -1}, "depth is -1; give a whole number of at least 1"),
        ("mlp2", {"depth": 0}, "depth is 0; give a whole number of at least 1"),
        ("mlp1", {"depth": 5}, "depth is 5, but there are 6 strides"),
    ],
)
def test_an_option_that_would_be_ignored_or_taken_for_another_value_is_refused(network, options, match):
    with pytest.raises(SpecError, match=match):
        networks.make(network, **options)
