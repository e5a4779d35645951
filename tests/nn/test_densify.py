"""The dense form of other people's networks is the same function; each layer without one is refused by name."""

import re

import pytest
import torch
import torchvision
from conftest import needs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import imlp.nn
from imlp.errors import ModuleError
from imlp.spec import Conv, Shared

needs("accel")

VIT = {"image_size": 8, "patch_size": 4, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24}


def convnext(**options):
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 2)], **options)


# (how it is made, image, number of dense layers)
MODELS = {
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=10), (3, 16, 16), 20),
    "mobilenet_v2": (lambda: torchvision.models.mobilenet_v2(num_classes=10, width_mult=0.25), (3, 16, 16), 52),
    "squeezenet1_1": (lambda: torchvision.models.squeezenet1_1(num_classes=10), (3, 20, 20), 26),
    "vit": (lambda: torchvision.models.VisionTransformer(**VIT, num_classes=10), (3, 8, 8), 5),
    "convnext": (lambda: convnext(num_classes=10), (3, 16, 16), 11),
}


def made(name):
    build, image, n = MODELS[name]
    torch.manual_seed(0)
    module = build().eval()
    for parameter in module.parameters():  # some start with zeros, which would hide what follows them
        if not parameter.any() or (parameter == parameter.flatten()[0]).all():
            nn.init.uniform_(parameter, 0.2, 0.8)
    return module, image, n


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_the_dense_form_of_a_torchvision_network_is_the_same_function(name, dtype):
    prior, image, n = made(name)
    prior = prior.to(dtype)
    dense = imlp.nn.densify(prior, image, init="prior")
    kinds = [type(layer) for layer in dense.modules()]
    assert kinds.count(imlp.nn.Dense) == n
    assert nn.Conv2d not in kinds
    x = torch.randn(3, *image, dtype=dtype)
    with torch.no_grad():
        expected, found = prior(x), dense(x)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()
    table = imlp.nn.verify(dense, prior, x)
    assert len(table) == n + 1
    assert max(row["error"] for row in table.values()) < tolerance


def test_the_whole_resnet18_of_the_issue_is_planned_at_32_pixels():
    plan = imlp.nn.find(torchvision.models.resnet18(num_classes=10), (3, 32, 32))
    assert len(plan.layers) == 20
    assert 155e6 < plan.numbers < 157e6
    assert plan.layers[0].name == "conv1"
    assert plan.layers[0].spec == Conv((3, 32, 32), 64, kernel=7, stride=2, padding=3)


@st.composite
def networks(draw):
    """A few layers of random geometry, with a residual around one of them."""
    h, w, c = draw(st.integers(3, 7)), draw(st.integers(3, 7)), draw(st.integers(1, 3))
    image, layers = (c, h, w), []
    for _ in range(draw(st.integers(1, 3))):
        groups = draw(st.sampled_from([g for g in (1, 2, 3) if c % g == 0]))
        out = groups * draw(st.integers(1, 3))
        kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        padding = draw(st.sampled_from(["valid", (1, 1), (2, 0), "same"]))
        stride = 1 if padding == "same" else draw(st.integers(1, 2))
        conv = nn.Conv2d(c, out, kernel, stride, padding, draw(st.integers(1, 2)), groups, bias=draw(st.booleans()))
        try:
            conv(torch.zeros(1, c, h, w))
        except RuntimeError:  # the kernel is larger than the image
            continue
        layers += [conv, nn.BatchNorm2d(out), nn.GELU()]
        c, h, w = nn.Sequential(*layers).eval()(torch.zeros(1, *image)).shape[1:]
    return nn.Sequential(
        *layers, nn.Flatten(2), nn.Conv1d(c, 2, 1, bias=False), nn.Linear(h * w, 3), nn.Flatten()
    ), image


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@settings(max_examples=30)
@given(networks(), st.integers(0, 99))
def test_the_dense_form_of_a_random_network_is_the_same_function(drawn, seed):
    prior, image = drawn
    prior = prior.double().eval()
    dense = imlp.nn.densify(prior, image, init="prior")
    assert not any(isinstance(layer, nn.Conv2d | nn.Conv1d | nn.Linear) for layer in dense.modules())
    x = torch.randn(2, *image, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(dense(x), prior(x), rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d])
def test_same_padding_with_an_even_kernel(kind):
    image = (4, 7) if kind is nn.Conv1d else (4, 5, 7)
    prior = nn.Sequential(kind(4, 6, 4, padding="same", dilation=1, groups=2)).double()
    dense = imlp.nn.densify(prior, image, init="prior")
    x = torch.randn(3, *image, dtype=torch.float64)
    torch.testing.assert_close(dense(x), prior(x), rtol=0, atol=1e-12)
    assert imlp.nn.bias_meter(dense, prior)["0"]["shared"] == pytest.approx(1)
    model = imlp.nn.densify(prior, image, init="random")
    imlp.nn.interpolate_(model, prior, alpha=1)
    torch.testing.assert_close(model(x), prior(x), rtol=0, atol=1e-12)
    copy = nn.Sequential(kind(4, 6, 4, padding="same", groups=2)).double()
    imlp.nn.project_(copy, model)
    torch.testing.assert_close(copy(x), prior(x), rtol=0, atol=1e-12)
    assert imlp.nn.find(prior, image).layers[0].spec.nnz < dense[0].weight.numel()


def test_conv1d_pooling_and_plain_linear_layers():
    prior = nn.Sequential(nn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=1, groups=2), nn.ReLU(), nn.Flatten())
    dense = imlp.nn.densify(prior, (2, 9), init="prior")
    x = torch.randn(3, 2, 9)
    torch.testing.assert_close(dense(x), prior(x))

    prior = nn.Sequential(nn.AvgPool2d(3, 2, padding=1), nn.Conv2d(2, 3, 1), nn.Flatten(), nn.Linear(27, 4))
    assert [f.name for f in imlp.nn.find(prior, (2, 5, 5)).layers] == ["1"]
    dense = imlp.nn.densify(prior, (2, 5, 5), layers=[nn.AvgPool2d, "3"], init="prior")
    assert [type(layer).__name__ for layer in dense] == ["Dense", "Conv2d", "Flatten", "Dense"]
    assert dense[0].bias is None
    assert dense[3].spec == Shared(1, 27, 4)
    x = torch.randn(3, 2, 5, 5)
    torch.testing.assert_close(dense(x), prior(x))
    assert set(imlp.nn.verify(dense, prior, x)) == {"0", "3", "output"}


def test_layers_are_chosen_by_name_glob_type_and_left_out():
    prior = torchvision.models.resnet18(num_classes=10)

    def chosen(layers):
        return [layer.name for layer in imlp.nn.find(prior, (3, 16, 16), layers).layers]

    layer4 = [f"layer4.{name}" for name in ("0.conv1", "0.conv2", "0.downsample.0", "1.conv1", "1.conv2")]
    assert chosen("conv1") == ["conv1"]
    assert chosen("layer4*") == chosen("layer4") == layer4
    assert chosen(nn.Linear) == ["fc"]
    assert chosen(["layer4", "!*.conv2"]) == [name for name in layer4 if not name.endswith("conv2")]
    assert len(chosen("!conv1")) == 19
    assert chosen("Linear") == ["fc"]
    assert chosen(["layer4", "fc", "!Conv2d"]) == ["fc"]
    with pytest.raises(ModuleError, match="layers has conf1, which is none of the layers; did you mean 'conv1'"):
        chosen("conf1")
    with pytest.raises(ModuleError, match="layers has 3; give names, globs"):
        chosen([3])


def test_what_is_not_replaced_is_copied_and_the_original_is_not_touched():
    prior = torchvision.models.resnet18(num_classes=4).train()
    prior.layer1.eval()
    before = {name: tensor.clone() for name, tensor in prior.state_dict().items()}
    state = torch.get_rng_state()
    imlp.nn.find(prior, (3, 16, 16))
    assert torch.equal(torch.get_rng_state(), state)
    dense = imlp.nn.densify(prior, (3, 16, 16), init="random")
    assert all(torch.equal(tensor, before[name]) for name, tensor in prior.state_dict().items())
    assert prior.training
    assert dense.training
    assert not prior.layer1.training
    assert not dense.layer1[0].conv1.training
    assert not prior._forward_hooks
    assert not any(own._forward_hooks for own in prior.modules())
    assert torch.equal(dense.fc.weight, prior.fc.weight)
    assert dense.fc.weight is not prior.fc.weight
    bound = dense.conv1.weight.shape[1] ** -0.5
    assert 0.9 * bound < dense.conv1.weight.abs().max() <= bound
    drawn = {"init": "random", "layers": "conv1"}
    same = [imlp.nn.densify(prior, (3, 16, 16), **drawn, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(same[0].conv1.weight, same[1].conv1.weight)


class Twice(nn.Module):
    def __init__(self, second=(3, 6, 6)):
        super().__init__()
        self.conv, self.second = nn.Conv2d(3, 3, 3, padding=1), second

    def forward(self, x):
        return self.conv(self.conv(x)[:, :, : self.second[1]])


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return self.used(x)


class Standardised(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) / 2


def tied(share_module):
    a, b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
    b.weight = a.weight
    return nn.Sequential(a, a if share_module else b)


REFUSED = {
    "conv has no dense form: it is called with different shapes, (3, 4, 6) and (3, 6, 6)": Twice((3, 4, 6)),
    "conv has no dense form: it is used 2 times, with one weight; make a layer for each use": Twice(),
    "its weight is shared: it is 0.weight and 1.weight: 0, 1": tied(False),
    "0 has no dense form: its weight is shared: it is 0.weight and 1.weight; give each": tied(True),
    "0 is lazy: it has no weight yet; run a batch through the module first": nn.Sequential(nn.LazyConv2d(3, 3)),
    "its class Standardised computes something else than Conv2d": nn.Sequential(Standardised(3, 3, 1)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_layer_without_a_dense_form_is_refused_by_name(message):
    with pytest.raises(ModuleError, match=re.escape(message)) as caught:
        imlp.nn.densify(REFUSED[message], (3, 6, 6))
    assert "layers=['!" in str(caught.value) or "lazy" in message


def several():
    """Three layers that are refused for two reasons, and one that is not."""
    return nn.Sequential(nn.Conv2d(3, 3, 1), *(Standardised(3, 3, 1) for _ in range(2)), Twice())


def test_one_refusal_names_every_layer_by_reason():
    with pytest.raises(ModuleError) as caught:
        imlp.nn.densify(several(), (3, 6, 6), layers=[nn.Conv2d])
    assert str(caught.value).splitlines() == [
        "3 layers have no dense form:",
        "its class Standardised computes something else than Conv2d: 1, 2;",
        "it is used 2 times, with one weight: 3.conv;",
        "leave them as they are: skip='refused', or layers=['Conv2d', '!1', '!2', '!3.conv']",
    ]
    left = ["Conv2d", "!1", "!2", "!3.conv"]
    assert [layer.name for layer in imlp.nn.find(several(), (3, 6, 6), left).layers] == ["0"]


def test_layers_that_are_refused_can_be_left_as_they_are():
    prior, x = several(), torch.randn(2, 3, 6, 6)
    dense = imlp.nn.densify(prior, (3, 6, 6), skip="refused")
    assert dense.left_structured == {
        "1": "its class Standardised computes something else than Conv2d",
        "2": "its class Standardised computes something else than Conv2d",
        "3.conv": "it is used 2 times, with one weight",
    }
    assert isinstance(dense[0], imlp.nn.Dense)
    torch.testing.assert_close(dense(x), prior(x))
    with pytest.raises(ModuleError, match="1 has no dense form"):  # nothing would be left
        imlp.nn.densify(prior[1:2], (3, 6, 6), skip="refused")
    with pytest.raises(ModuleError, match="unknown skip: 'all'; the known ones are refused"):
        imlp.nn.densify(prior, (3, 6, 6), skip="all")


def test_what_only_the_comparison_finds_is_left_as_well():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return self.a(self.b(x)) * (2 if isinstance(self.a, nn.Conv2d) else 1)

    dense = imlp.nn.densify(Reads(), (3, 4, 4), skip="refused")
    assert list(dense.left_structured) == ["a"]
    assert isinstance(dense.b, imlp.nn.Dense)


def test_the_remedy_for_size_never_leaves_out_every_layer():
    prior = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 8, 3), nn.Conv2d(8, 3, 3))
    with pytest.raises(imlp.nn.TooLargeError) as caught:
        imlp.nn.densify(prior, (3, 8, 8), layers=[nn.Conv2d], limit=60_000)
    assert str(caught.value).splitlines()[-1] == "leave out 0, 1: layers=['Conv2d', '!0', '!1']"
    with pytest.raises(imlp.nn.TooLargeError, match="no layer fits: give a smaller image") as caught:
        imlp.nn.densify(prior, (3, 8, 8), limit=1000)
    assert caught.value.left_out == []


def test_windows_of_an_image_are_part_of_the_batch():
    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.conv = nn.Linear(3, 4), nn.Conv2d(4, 2, 3)

        def forward(self, x):  # (N, 3, 8, 8)
            windows = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 4, 5, 1).reshape(-1, 16, 3)
            return self.conv(self.linear(windows).mT.reshape(-1, 4, 4, 4)).reshape(len(x), -1)

    prior, x = Windows(), torch.randn(3, 3, 8, 8)
    dense = imlp.nn.densify(prior, (3, 8, 8))
    assert dense.linear.weight.shape == (64, 48)
    torch.testing.assert_close(dense(x), prior(x))
    table = imlp.nn.size_table(imlp.nn.find(prior, (3, 8, 8)))
    assert [row["spec"] for row in table.values()] == ["Shared, 16 rows, 4 windows", "Conv 3x3, 4 windows"]
    model = imlp.nn.densify(prior, (3, 8, 8), init="random")
    imlp.nn.interpolate_(model, prior, 1)
    torch.testing.assert_close(model(x), prior(x))


def test_a_generator_without_anything_to_draw_is_refused():
    with pytest.raises(ModuleError, match="nothing is drawn; give init='random'"):
        imlp.nn.densify(nn.Conv2d(3, 3, 3), (3, 6, 6), generator=torch.Generator())


def test_an_axis_that_is_not_the_batch_is_refused():
    class TokensFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(4, 4)

        def forward(self, x):
            return self.mix(x.transpose(0, 1))

    with pytest.raises(
        ModuleError, match=r"mix has no .* the first axis of its input is not the batch of 2: \(5, 2, 4\);"
    ):
        imlp.nn.densify(TokensFirst(), (5, 4))


def test_calls_that_are_more_than_a_batch_are_refused_by_name():
    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose2d(2, 3, 3, stride=2)

        def forward(self, x):
            return self.up(x, output_size=[8, 8])

    with pytest.raises(ModuleError, match="up has no dense form: it is called with more than its input"):
        imlp.nn.densify(Sized(), (2, 3, 3))
    with pytest.raises(ModuleError, match="0 has no dense form: it is called without a batch"):
        imlp.nn.densify(nn.Sequential(nn.AvgPool2d(2)), (4, 4), layers="*")


def test_a_layer_that_is_never_called_is_left_or_refused_by_its_name():
    plan = imlp.nn.find(Unused(), (3, 6, 6))
    assert [layer.name for layer in plan.layers] == ["used"]
    assert plan.left == {"unused": "never called in the forward pass"}
    assert isinstance(imlp.nn.densify(Unused(), (3, 6, 6)).unused, nn.Conv2d)
    with pytest.raises(ModuleError, match="unused has no dense form: it is never called in the forward pass; leave it"):
        imlp.nn.densify(Unused(), (3, 6, 6), layers=["used", "unused"])
    with pytest.raises(ModuleError, match="no layer of the module has a dense form"):
        imlp.nn.densify(nn.Sequential(nn.ReLU()), (3, 6, 6))
    with pytest.raises(
        ModuleError, match=r"cannot take a batch of shape \(2, 4, 6, 6\).*; give the shape of one image as"
    ):
        imlp.nn.densify(Unused(), (4, 6, 6))
    with pytest.raises(ModuleError, match=r"input_shape is 32; give \(channels"):
        imlp.nn.densify(Unused(), 32)
    with pytest.raises(ValueError, match="unknown init: 'zeros'; the known ones are prior, random"):
        imlp.nn.densify(Unused(), (3, 6, 6), init="zeros")


def test_what_does_not_fit_is_refused_before_anything_is_allocated(monkeypatch):
    prior = torchvision.models.resnet18(num_classes=10)
    with pytest.raises(ModuleError) as caught:
        imlp.nn.densify(prior, (3, 224, 224))  # 366 billion numbers
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("the dense form takes 1,4")
    assert re.match(r"layer +spec +matrix +numbers +nonzero +MB", lines[1])
    assert len([line for line in lines if " Conv " in line]) == 20
    assert "leave out conv1, layer1.0.conv1" in lines[-1]

    with pytest.raises(ModuleError, match="but the limit is 100 MB"):
        imlp.nn.densify(prior, (3, 32, 32), limit=100_000_000)
    remedy = re.compile(r"layers=(\[.*\])")
    with pytest.raises(ModuleError) as caught:
        imlp.nn.densify(prior, (3, 16, 16), limit=30_000_000)
    names = eval(remedy.search(str(caught.value))[1])
    dense = imlp.nn.densify(prior, (3, 16, 16), limit=30_000_000, layers=names)
    assert sum(p.numel() for m in dense.modules() if isinstance(m, imlp.nn.Dense) for p in m.parameters()) < 7_500_000


def test_an_example_batch_instead_of_a_shape():
    prior = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))
    tokens = torch.arange(6).view(2, 3)
    dense = imlp.nn.densify(prior, tokens, init="prior")
    assert dense[1].spec == Shared(3, 4, 3)
    torch.testing.assert_close(dense(tokens), prior(tokens))
    torch.testing.assert_close(imlp.nn.densify(prior, tokens[:1])(tokens), prior(tokens))
    conv = nn.Conv2d(3, 4, 3)
    x = torch.randn(1, 3, 8, 8)  # as one traces and exports
    torch.testing.assert_close(imlp.nn.densify(conv, x)(x), conv(x))
    with pytest.raises(ModuleError, match=r"; give .* as the module takes it, without a batch: \(3, 8, 8\)"):
        imlp.nn.densify(conv, (1, 3, 8, 8))


def test_torchs_own_encoder_layer_does_not_bypass_the_dense_layers():
    """In evaluation it has a kernel that reads the weights of its linear layers without calling them."""
    prior = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval()
    dense = imlp.nn.densify(prior, (5, 8), init="prior")
    assert isinstance(dense.linear1, imlp.nn.Dense)
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        torch.testing.assert_close(dense(x), prior(x))


def test_a_single_layer_and_one_on_the_meta_device():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    x = torch.randn(4, 2, 5, 5)
    torch.testing.assert_close(imlp.nn.densify(conv, (2, 5, 5), init="prior")(x), conv(x))
    assert imlp.nn.densify(conv.to("meta"), (2, 5, 5)).weight.device.type == "meta"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_network_in_bfloat16_and_in_train_mode(device):
    prior = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    prior = prior.to(device, torch.bfloat16).train()
    running = prior[1].running_mean.clone()
    dense = imlp.nn.densify(prior, (3, 6, 6), init="prior")
    assert torch.equal(prior[1].running_mean, running)
    assert (dense[0].weight.dtype, dense[0].weight.device.type) == (torch.bfloat16, device)
    x = torch.randn(8, 3, 6, 6, dtype=torch.bfloat16, device=device)
    torch.testing.assert_close(dense(x), prior(x), rtol=0.05, atol=0.05)
    assert torch.equal(dense[1].num_batches_tracked, prior[1].num_batches_tracked)
    knob = imlp.nn.Interpolation(dense, prior, alpha=0.5)
    knob.step()
    torch.testing.assert_close(dense(x), prior(x), rtol=0.05, atol=0.05)
