"""The spec that is read from a layer's call has the matrix that torch differentiates out of the layer."""

import pytest
import torch
from conftest import needs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import imlp.nn
from imlp import reference
from imlp.errors import ModuleError
from imlp.nn.convnd import ConvNd
from imlp.nn.geometry import spec_of
from imlp.nn.pairs import current, is_computed
from imlp.spec import Conv

needs("accel")


class SameConv(nn.Conv2d):
    """Pads by the size of its input, as TensorFlow does."""

    def forward(self, x):
        sizes = zip(x.shape[-2:], self.kernel_size, self.stride, self.dilation, strict=True)
        pads = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, k, s, d in sizes]
        (h, w) = pads
        x = functional.pad(x, (w // 2, w - w // 2, h // 2, h - h // 2))
        return functional.conv2d(x, self.weight, self.bias, self.stride, (0, 0), self.dilation, self.groups)


class StandardisedConv(nn.Conv2d):
    """Computes with a weight of mean 0 and variance 1."""

    def forward(self, x):
        flat = self.weight.flatten(1)
        weight = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, keepdim=True) + 1e-5).sqrt()
        weight = weight.view_as(self.weight)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def the_same(layer, image):
    """The layer with what it is differentiated to, and with its own dense form."""
    layer = layer.double()
    spec = spec_of(layer, image)
    with torch.no_grad():
        origin = layer(torch.zeros(1, *image, dtype=torch.float64))[0]
        jacobian = torch.func.jacrev(lambda x: layer(x[None])[0])(torch.zeros(image, dtype=torch.float64))
    W = jacobian.reshape(spec.matrix_shape)
    small = current(layer, "weight").reshape(spec.weight_shape)
    torch.testing.assert_close(torch.tensor(reference.matrix(spec, small.numpy()).toarray()), W, rtol=0, atol=1e-12)
    torch.testing.assert_close(imlp.nn.matrix(layer, image), W, rtol=0, atol=1e-12)
    dense = imlp.nn.densify(layer, image)
    torch.testing.assert_close(dense.weight, W, rtol=0, atol=1e-12, check_dtype=True)
    if dense.bias is not None:
        torch.testing.assert_close(dense.bias, origin.flatten(), rtol=0, atol=1e-12)
    model = imlp.nn.densify(nn.Sequential(layer), image, init="random")
    imlp.nn.interpolate_(model, nn.Sequential(layer), 1)
    torch.testing.assert_close(model[0].weight, W, rtol=0, atol=1e-12)
    assert spec.nnz == reference.matrix(spec, torch.ones(spec.weight_shape).numpy()).nnz
    return spec


@st.composite
def layers(draw):
    n = draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    mode = "zeros" if transposed else draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"]))
    sizes = [draw(st.integers(2, (8, 5, 4)[n - 1])) for _ in range(n)]
    groups = draw(st.integers(1, 2))
    channels, out = (groups * draw(st.integers(1, 2)) for _ in range(2))
    kernel, stride, dilation, padding = ([] for _ in range(4))
    for size in sizes:
        kernel.append(draw(st.integers(1, 4 if n < 3 else 2)))
        stride.append(draw(st.integers(1, 3)))
        padding.append(draw(st.integers(0, min(2, size - 1))))
        reach = (size + 2 * padding[-1] - 1) // max(1, kernel[-1] - 1)
        dilation.append(draw(st.integers(1, 2)) if reach >= 2 else 1)
        if not transposed:
            kernel[-1] = min(kernel[-1], (size + 2 * padding[-1] - 1) // dilation[-1] + 1)
        padding[-1] = min(padding[-1], (kernel[-1] - 1) * dilation[-1]) if transposed else padding[-1]
    same = not transposed and draw(st.integers(0, 4)) == 0
    if same:
        stride, padding = [1] * n, "same"
        if mode == "reflect":
            mode = "zeros"
    options = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "bias": draw(st.booleans()),
    }
    if transposed:
        options["output_padding"] = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{n}d")
    return kind(channels, out, kernel, padding_mode=mode, **options), (channels, *sizes)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@settings(max_examples=40)
@given(layers())
def test_every_convolution_of_torch_has_the_matrix_that_torch_differentiates(drawn):
    layer, image = drawn
    try:
        layer(torch.zeros(1, *image))
    except RuntimeError:  # more padding than there is to wrap around or to reflect
        return
    the_same(layer, image)


@settings(max_examples=15)
@given(
    st.sampled_from([SameConv, StandardisedConv]), st.integers(4, 8), st.integers(4, 8), st.integers(2, 4), st.data()
)
def test_classes_of_their_own(kind, h, w, size, data):
    stride, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    the_same(kind(2, 4, size, stride, size - 1, dilation, groups=2), (2, h, w))


@settings(max_examples=15)
@given(st.integers(2, 8), st.integers(1, 6), st.integers(1, 4), st.data())
def test_poolings_and_linear_layers(size, rows, stride, data):
    """A pool that rounds its size up is one that does not, where nothing is left over."""
    kernel = data.draw(st.integers(1, size))
    ceil = (size - kernel) % stride == 0
    padding, divisor = 0 if ceil else data.draw(st.integers(0, kernel // 2)), data.draw(st.sampled_from([None, 3]))
    pool = nn.AvgPool2d((kernel, 1), stride, (padding, 0), ceil, not ceil, divisor)
    image = (2, size, 1 + stride * rows)
    W = imlp.nn.matrix(pool, image)
    jacobian = torch.func.jacrev(lambda x: pool(x[None])[0])(torch.zeros(image))
    torch.testing.assert_close(W, jacobian.reshape(W.shape))
    the_same(nn.Linear(size, stride, bias=ceil), (rows, size))


def test_a_padding_mode_without_padding_is_a_plain_convolution():
    for mode in ("circular", "reflect", "replicate"):
        assert isinstance(spec_of(nn.Conv2d(2, 3, 3, padding_mode=mode), (2, 5, 5)), Conv)
    spec = spec_of(nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5))
    assert isinstance(spec, ConvNd)
    assert spec.mode == "circular"
    table = imlp.nn.size_table(imlp.nn.find(nn.ConvTranspose2d(2, 4, 3, 2, groups=2), (2, 5, 5)))
    assert table["the module"]["spec"] == "ConvTranspose 3x3 /2 g2"


def test_a_weight_that_a_class_computes_is_followed_and_never_written():
    prior = nn.Sequential(StandardisedConv(2, 3, 3, padding=1), SameConv(3, 3, 2, 2)).double()
    x = torch.randn(2, 2, 6, 6, dtype=torch.float64)
    model = imlp.nn.densify(prior, (2, 6, 6))
    assert is_computed(prior[0], "weight")
    assert not is_computed(prior[1], "weight")
    with torch.no_grad():
        prior[0].weight.mul_(torch.rand_like(prior[0].weight))
    imlp.nn.Interpolation(model, prior, 1).step()
    torch.testing.assert_close(model(x), prior(x))
    imlp.nn.project_(prior, model, layers="1")
    with pytest.raises(ModuleError, match="layer 0: the weight of StandardisedConv is computed"):
        imlp.nn.project_(prior, model)


class Dynamic(nn.Conv2d):
    def forward(self, x):
        return functional.conv2d(x, self.weight * x.mean(), self.bias)


class Cropped(nn.Conv2d):
    def forward(self, x):
        return functional.conv2d(functional.pad(x, (-1, 0)), self.weight, self.bias, padding=1)


class PaddedByOnes(nn.Conv2d):
    def forward(self, x):
        return functional.conv2d(functional.pad(x, (1, 1), value=1.0), self.weight, self.bias)


class After(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


class Reflected(nn.Conv2d):
    def forward(self, x):
        return functional.conv2d(functional.pad(x, (2, 2, 2, 2), mode="reflect"), self.weight, self.bias)


def test_a_class_may_pad_by_more_than_its_kernel_reaches():
    the_same(Reflected(2, 3, 1), (2, 4, 5))


class Padded(nn.Conv2d):
    width = 1

    def forward(self, x):
        return functional.conv2d(functional.pad(x, (self.width,) * 4), self.weight, self.bias)


def test_a_geometry_that_was_changed_is_noticed():
    pool, conv = nn.AvgPool2d(2, padding=1), Padded(1, 1, 3)
    assert spec_of(conv, (1, 4, 4)).matrix_shape == (16, 16)
    imlp.nn.matrix(pool, (1, 4, 4))
    conv.width, pool.count_include_pad = 2, False
    assert spec_of(conv, (1, 4, 4)).matrix_shape == (36, 16)
    with pytest.raises(ModuleError, match=r"divides by another number at the border .*; use it as it is"):
        imlp.nn.matrix(pool, (1, 4, 4))


class WithoutBias(nn.Conv2d):
    def forward(self, x):
        return functional.conv2d(x, self.weight)


class BiasOfItsOwn(nn.Conv2d):
    def forward(self, x):
        return functional.conv2d(x, self.weight, self.weight.mean((1, 2, 3)))


class Pooling(nn.Conv2d):
    def forward(self, x):
        return functional.avg_pool2d(x, 2)


class LargerPool(nn.AvgPool2d):
    def forward(self, x):
        return functional.avg_pool2d(x, 3, 1)


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        (WithoutBias(2, 2, 1), "its class WithoutBias computes something else than Conv2d"),
        (BiasOfItsOwn(2, 2, 1, bias=False), "its class BiasOfItsOwn computes something else than Conv2d"),
        (Pooling(2, 2, 1, bias=False), "its class Pooling computes something else than Conv2d"),
        (LargerPool(2), "its class LargerPool computes something else than AvgPool2d"),
        (Dynamic(2, 2, 1), "its class Dynamic computes something else than Conv2d"),
        (Cropped(2, 2, 1), "it pads in a way that is no padding of a convolution"),
        (PaddedByOnes(2, 2, 1), "it pads in a way that is no padding of a convolution"),
        (After(5, 2), "its class After computes something else than Linear"),
        (nn.AvgPool2d(2, ceil_mode=True), "it divides by another number at the border"),
        (nn.AvgPool2d((6, 1), ceil_mode=True), "the padded height is 5"),
    ],
)
def test_what_is_not_a_matrix_of_its_weight_is_refused(layer, match):
    with pytest.raises(ModuleError, match=match):
        imlp.nn.densify(layer, (2, 5, 5), layers=type(layer), check=False)


def test_the_matrix_of_a_layer():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    dense, sparse = (imlp.nn.matrix(conv, (2, 4, 4), layout=layout) for layout in ("dense", "sparse"))
    assert (dense.layout, sparse.layout) == (torch.strided, torch.sparse_csr)
    assert torch.equal(sparse.to_dense(), dense)
    pool = nn.AvgPool2d(2)
    x = torch.randn(1, 2, 4, 4)
    torch.testing.assert_close(imlp.nn.matrix(pool, x) @ x.flatten(), pool(x).flatten())
    assert imlp.nn.matrix(nn.Linear(3, 4), (3,)).shape == (4, 3)
    with pytest.raises(ModuleError, match="Sequential is no layer with a matrix; give one of Conv1d, "):
        imlp.nn.matrix(nn.Sequential(conv), (2, 4, 4))
    with pytest.raises(ValueError, match="layout"):
        imlp.nn.matrix(conv, (2, 4, 4), layout="csr")
    with pytest.raises(ModuleError, match=r"the matrix takes .* MB, but there are .* MB; give layout='sparse'"):
        imlp.nn.matrix(conv, (2, 4000, 4000))


def test_the_layers_of_timm():
    needs("timm")
    from timm.layers import Conv2dSame, ScaledStdConv2d, ScaledStdConv2dSame, StdConv2d, StdConv2dSame

    for kind in (Conv2dSame, ScaledStdConv2d, ScaledStdConv2dSame, StdConv2d, StdConv2dSame):
        the_same(kind(2, 4, 3, stride=2), (2, 6, 5))
