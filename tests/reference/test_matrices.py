"""The reference's matrices against independent code: SciPy, NumPy, einops and PyTorch."""

import einops
import numpy as np
import pytest
from conftest import needs
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal
from strategies import convs, locals_, patchifies, shareds, sizes, specs, transposes

from imlp import reference
from imlp.reference import convolution
from imlp.spec import Chain, Conv, Local, Patchify, Shared, Transpose

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def correlated(spec: Conv, F: np.ndarray, image: np.ndarray) -> np.ndarray:
    """The convolution of one image by scipy.signal, channel by channel, with stride and dilation by slicing."""
    (p_y, p_x), (s_y, s_x), (d_y, d_x) = spec.padding, spec.stride, spec.dilation
    spread = np.zeros((*F.shape[:2], *spec.reach))
    spread[:, :, ::d_y, ::d_x] = F
    padded = np.pad(image, ((0, 0), (p_y, p_y), (p_x, p_x)))
    o_group, c_group = spec.out_channels // spec.groups, spec.in_shape[0] // spec.groups
    planes = [
        sum(signal.correlate2d(padded[o // o_group * c_group + q], spread[o, q], mode="valid") for q in range(c_group))
        for o in range(spec.out_channels)
    ]
    return np.stack(planes)[:, ::s_y, ::s_x]


@given(spec=convs())
def test_w_f_is_scipys_correlation(spec):
    F, image = normal(*spec.weight_shape), normal(*spec.in_shape, seed=1)
    expected = correlated(spec, F, image)
    assert expected.shape == spec.out_shape
    np.testing.assert_allclose(reference.matrix(spec, F) @ image.ravel(), expected.ravel(), **EXACT)


@given(spec=convs())
def test_w_f_is_torchs_convolution(spec):
    needs("accel")
    import torch

    F, bias, images = normal(*spec.weight_shape), normal(spec.out_channels, seed=1), normal(2, *spec.in_shape, seed=2)
    geometry = (spec.stride, spec.padding, spec.dilation, spec.groups)
    expected = torch.nn.functional.conv2d(*map(torch.tensor, (images, F, bias)), *geometry).flatten(1).numpy()
    np.testing.assert_allclose(reference.apply(spec, F, bias, images.reshape(2, -1)), expected, **EXACT)


@given(spec=convs())
def test_the_sparse_evaluation_is_the_literal_formula(spec):
    F = normal(*spec.weight_shape)
    np.testing.assert_array_equal(convolution.matrix(spec, F).toarray(), convolution.literal_matrix(spec, F))


@given(spec=patchifies())
def test_p_is_einops_rearrange(spec):
    image = normal(spec.channels, spec.height, spec.width)
    expected = einops.rearrange(image, "c (R r) (C s) -> (R C c r s)", r=spec.patch, s=spec.patch)
    np.testing.assert_array_equal(reference.matrix(spec) @ image.ravel(), expected)


@given(spec=transposes)
def test_t_is_numpys_transpose(spec):
    x = normal(spec.rows, spec.cols)
    np.testing.assert_array_equal(reference.matrix(spec) @ x.ravel(), x.T.ravel())


@given(spec=shareds)
def test_w_tilde_is_numpys_kron(spec):
    w = normal(*spec.weight_shape)
    np.testing.assert_array_equal(reference.matrix(spec, w).toarray(), np.kron(np.eye(spec.rows), w))


@given(spec=patchifies(), outputs=sizes)
def test_a_patch_embedding_is_a_convolution_with_stride(spec, outputs):
    """Erratum 3: with channels inside the patch, `W~ P` is the convolution whose kernel and stride are the patch."""
    c, P = spec.channels, spec.patch
    h, w = spec.grid
    embed = Chain(spec, Shared(h * w, c * P * P, outputs))
    F = normal(outputs, c, P, P)
    conv = Conv((c, spec.height, spec.width), outputs, kernel=P, stride=P)
    by_channel = reference.matrix(conv, F).toarray().reshape(outputs, h * w, -1)
    by_patch = reference.matrix(embed, F.reshape(outputs, -1)).toarray().reshape(h * w, outputs, -1)
    np.testing.assert_array_equal(by_patch, by_channel.swapaxes(0, 1))


@given(rows=sizes, cols=sizes, hidden=sizes)
def test_token_mixing_transposes_its_input_or_its_output(rows, cols, hidden):
    x, w_in, w_out = normal(rows, cols), normal(hidden, rows, seed=1), normal(rows, hidden, seed=2)
    mixed = reference.matrix(Chain(Transpose(rows, cols), Shared(cols, rows, hidden)), w_in) @ x.ravel()
    np.testing.assert_allclose(mixed, (w_in @ x).T.ravel(), **EXACT)
    back = reference.matrix(Chain(Shared(cols, hidden, rows), Transpose(cols, rows)), w_out) @ mixed
    np.testing.assert_allclose(back, (w_out @ w_in @ x).ravel(), **EXACT)


@given(spec=st.one_of(patchifies(), transposes))
def test_a_permutation_times_its_transpose_is_the_identity(spec):
    matrix = reference.matrix(spec)
    np.testing.assert_array_equal((matrix @ matrix.T).toarray(), np.eye(spec.matrix_shape[0]))


@given(spec=specs)
def test_the_bias_expands_as_if_it_were_another_input(spec):
    """`apply` to zeros is the bias: compared with the layer run on ones with a weight that is all bias."""
    if spec.bias_shape is None:
        np.testing.assert_array_equal(reference.expand_bias(spec, None), np.zeros(spec.matrix_shape[0]))
        return
    outputs = spec.bias_shape[0]
    numbered = np.arange(1.0, outputs + 1)  # which output channel each row of the matrix belongs to
    shape = spec.weight_shape
    first = numbered.reshape(shape[1], shape[0]).T if len(shape) == 5 else numbered  # Local: (positions, channels)
    weight = np.broadcast_to(first.reshape(*first.shape, *[1] * (len(shape) - first.ndim)), shape)
    matrix = reference.matrix(spec, weight)
    expanded = reference.expand_bias(spec, numbered)
    assert expanded.shape == (spec.matrix_shape[0],)
    assert sorted(set(expanded)) == list(numbered)
    largest = matrix.max(axis=1).toarray().ravel()
    reached = largest > 0  # a row with nothing but padding has no information
    np.testing.assert_array_equal(expanded[reached], largest[reached])


@given(spec=specs)
def test_project_gives_back_the_weight_of_a_matrix(spec):
    if spec.weight_shape is None:
        assert reference.project(np.ones(spec.matrix_shape), spec) is None
        return
    weight = normal(*spec.weight_shape)
    ones = reference.project(reference.matrix(spec, np.ones(spec.weight_shape)).toarray(), spec)
    unreached = ones == 0  # taps that never meet the image leave no trace; 0 is the smallest choice
    found = reference.project(reference.matrix(spec, weight).toarray(), spec)
    np.testing.assert_allclose(found, np.where(unreached, 0, weight), **EXACT)


@given(spec=specs)
def test_project_is_the_least_squares_minimum(spec):
    """Against a solver that knows nothing about the structure: lstsq on the matrices of all unit weights."""
    if spec.weight_shape is None or np.prod(spec.weight_shape) * np.prod(spec.matrix_shape) > 3e5:
        return
    dense = normal(*spec.matrix_shape)
    units = np.eye(int(np.prod(spec.weight_shape))).reshape(-1, *spec.weight_shape)
    basis = np.stack([reference.matrix(spec, unit).toarray().ravel() for unit in units], axis=1)
    expected = np.linalg.lstsq(basis, dense.ravel(), rcond=None)[0]
    np.testing.assert_allclose(reference.project(dense, spec).ravel(), expected, rtol=1e-9, atol=1e-9)


@given(spec=specs, alpha=st.floats(0, 1))
def test_interpolate_is_the_papers_formula(spec, alpha):
    weight = None if spec.weight_shape is None else normal(*spec.weight_shape)
    dense = normal(2, *spec.matrix_shape, seed=1)
    w_p = reference.matrix(spec, weight).toarray()
    before = dense.copy()
    mixed = reference.interpolate(dense, spec, weight, [alpha, 0])
    np.testing.assert_allclose(mixed[0], (1 - alpha) * dense[0] + alpha * w_p, **EXACT)
    np.testing.assert_array_equal(mixed[1], dense[1])
    added = reference.interpolate(dense[0], spec, weight, alpha, add=True)
    np.testing.assert_allclose(added, dense[0] + alpha * w_p, **EXACT)
    np.testing.assert_array_equal(dense, before)


def test_alpha_one_is_the_prior_exactly():
    spec = Conv((3, 5, 5), 2, 3, 2, 1)
    weight = normal(*spec.weight_shape)
    mixed = reference.interpolate(normal(*spec.matrix_shape), spec, weight, 1)
    np.testing.assert_array_equal(mixed, reference.matrix(spec, weight, layout="dense"))


@pytest.mark.parametrize(
    ("spec", "weight", "message"),
    [
        (Shared(2, 3, 4), np.ones((3, 4)), r"weight of shape \(3, 4\).*must have shape \(4, 3\)"),
        (Shared(2, 3, 4), None, r"needs a weight; give an array of shape \(4, 3\)"),
        (Patchify(1, 4, 4, 2), np.ones(3), "has no weight"),
    ],
)
def test_a_weight_that_does_not_fit_is_refused(spec, weight, message):
    with pytest.raises(ValueError, match=message):
        reference.matrix(spec, weight)


def test_an_input_or_a_matrix_that_does_not_fit_is_refused():
    spec = Conv((3, 4, 4), 2, 3, padding=1)
    with pytest.raises(ValueError, match=r"flatten it to \(N, 48\)"):
        reference.apply(spec, np.ones(spec.weight_shape), None, np.ones((2, 3, 4, 4)))
    with pytest.raises(ValueError, match=r"must be \(32, 48\), or \(lanes, 32, 48\)"):
        reference.project(np.ones((48, 32)), spec)


def test_a_large_convolution_is_built_without_the_identity():
    """3 x 224 x 224 to 16 channels with stride 2: the identity alone would take 90 GB."""
    spec = Conv((3, 224, 224), 16, kernel=3, stride=2, padding=1)
    matrix = reference.matrix(spec, normal(*spec.weight_shape))
    assert matrix.shape == (200_704, 150_528)
    assert matrix.nnz == spec.nnz == 5_386_800
    image = normal(*spec.in_shape, seed=1)
    F = normal(*spec.weight_shape)
    np.testing.assert_allclose(matrix @ image.ravel(), correlated(spec, F, image).ravel(), rtol=1e-9, atol=1e-9)


@given(spec=specs, seed=st.integers(0, 9))
def test_adjoint_is_the_transpose_of_matrix(spec, seed):
    """`<matrix(w), D> = <w, adjoint(D)>`, and the same of biases, for lanes too."""
    D, d = normal(2, *spec.matrix_shape, seed=seed), normal(2, spec.matrix_shape[0], seed=seed)
    if spec.weight_shape is None:
        assert reference.adjoint(spec, D) is None
        assert reference.adjoint_bias(spec, d) is None
        return
    w, b = normal(*spec.weight_shape, seed=seed + 1), normal(*spec.bias_shape, seed=seed + 2)
    dw, db = reference.adjoint(spec, D), reference.adjoint_bias(spec, d)
    for lane in range(2):
        expected = (reference.matrix(spec, w).toarray() * D[lane]).sum()
        np.testing.assert_allclose((w * dw[lane]).sum(), expected, rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(
            (b * db[lane]).sum(), reference.expand_bias(spec, b) @ d[lane], rtol=1e-12, atol=1e-10
        )
        np.testing.assert_array_equal(reference.adjoint(spec, D[lane]), dw[lane])
        np.testing.assert_array_equal(reference.adjoint_bias(spec, d[lane]), db[lane])


def unfolded(spec: Local, w: np.ndarray, images: np.ndarray) -> np.ndarray:
    """The layer by torch: patches that `unfold` cuts out, and a product of its own for each position and group."""
    import torch

    patches = torch.nn.functional.unfold(
        torch.tensor(images), spec.kernel, dilation=spec.dilation, padding=spec.padding, stride=spec.stride
    )  # (N, c k k, positions)
    taps = w.shape[2] * w.shape[3] * w.shape[4]
    o_group = spec.out_channels // spec.groups
    columns = []
    for position in range(w.shape[0]):
        patch = patches[:, :, position].view(len(images), spec.groups, taps)
        outputs = [
            patch[:, o // o_group] @ torch.tensor(w[position, o].reshape(taps)) for o in range(spec.out_channels)
        ]
        columns.append(torch.stack(outputs, 1))
    return torch.stack(columns, 2).flatten(1).numpy()


@given(spec=locals_())
def test_w_l_is_torchs_unfold_with_weights_of_its_own_at_each_position(spec):
    needs("accel")
    w, images = normal(*spec.weight_shape), normal(2, *spec.in_shape, seed=1)
    bias = normal(spec.matrix_shape[0], seed=2)
    found = reference.apply(spec, w, bias, images.reshape(2, -1))
    np.testing.assert_allclose(found, unfolded(spec, w, images) + bias, **EXACT)


@given(spec=convs())
def test_convolutions_lie_inside_local_layers_and_those_inside_dense_ones(spec):
    """As matrices: each `W_F` is a `W_L` with equal kernels, each `W_L` a `W`; projecting twice changes nothing."""
    fields = ("in_shape", "out_channels", "kernel", "stride", "padding", "dilation", "groups")
    local = Local(**{name: getattr(spec, name) for name in fields})
    F, W = normal(*spec.weight_shape), normal(*spec.matrix_shape, seed=1)
    equal = np.broadcast_to(F, local.weight_shape)
    np.testing.assert_array_equal(reference.matrix(local, equal).toarray(), reference.matrix(spec, F).toarray())
    W_L = reference.matrix(local, reference.project(W, local))
    np.testing.assert_allclose(reference.project(W_L.toarray(), spec), reference.project(W, spec), **EXACT)
    places = reference.matrix(local, np.ones(local.weight_shape)).toarray() != 0
    np.testing.assert_array_equal(W_L.toarray(), W * places)  # every number has an entry of its own
    dense = Shared(1, *reversed(spec.matrix_shape))
    np.testing.assert_array_equal(reference.matrix(dense, W_L.toarray()).toarray(), W_L.toarray())
    assert spec.rank <= local.rank <= dense.rank
    assert local.nnz == spec.nnz == places.sum()
