"""Whole networks and whole training steps: accel against the reference, against `torch.nn`, and lane against lane."""

import numpy as np
import pytest
from conftest import needs
from hypothesis import given
from hypothesis import strategies as st
from small_networks import SMALL, batch

needs("accel")

import torch  # noqa: E402
from paper_networks import Mixer, load, res_net, s_cnn, s_mlp  # noqa: E402

from imlp import accel, networks, reference  # noqa: E402
from imlp.accel.adam import adam  # noqa: E402
from imlp.accel.products import Patches, Quads, Strips, products_for  # noqa: E402
from imlp.errors import ArrayError, BackendError, ImlpError  # noqa: E402
from imlp.networks import Activation, Layer, Mean, Network, Norm, Residual  # noqa: E402
from imlp.optimizers import Adam  # noqa: E402
from imlp.spec import Conv, Shared  # noqa: E402

EVERY = pytest.mark.parametrize("network", SMALL.values(), ids=SMALL)
FORMS = [{"dense": False}, {"dense": True}, {"dense": True, "lanes": 3}]
FORM = pytest.mark.parametrize("form", FORMS, ids=["prior", "i-mlp", "lanes"])
ALPHAS = [0.0, 0.01, 1.0]


def torch_batch(network, n=5, seed=0, dtype=torch.float64, device="cpu"):
    x, y = batch(network, n, seed)
    return torch.tensor(x, dtype=dtype, device=device), torch.tensor(y, device=device)


def assert_equal_models(fast, slow, atol):
    """Parameters, moments and step."""
    fast, slow = accel.export(fast), reference.export(slow)
    assert list(fast) == list(slow)
    for name, array in slow.items():
        np.testing.assert_allclose(fast[name], array, rtol=0, atol=atol, err_msg=name)


@EVERY
@FORM
def test_both_backends_start_from_the_same_numbers(network, form):
    fast = accel.init(network, seed=7, dtype="float64", **form)
    assert_equal_models(fast, reference.init(network, seed=7, **form), atol=0)


@EVERY
@FORM
def test_loss_and_gradients_equal_the_references(network, form):
    slow = reference.init(network, seed=1, **form)
    for step in range(3):
        reference.train_step(slow, *batch(network, seed=step), optimizer=Adam(lr=0.01))
    fast = accel.restore(network, reference.export(slow), dense=form["dense"])
    loss, grads = accel.loss_and_grads(fast, *torch_batch(network, seed=5))
    slow_loss, slow_grads = reference.loss_and_grads(slow, *batch(network, seed=5))
    np.testing.assert_allclose(loss, slow_loss, rtol=0, atol=1e-12)
    assert set(grads) == set(slow_grads)
    for name, gradient in slow_grads.items():
        np.testing.assert_allclose(grads[name], gradient, rtol=0, atol=1e-12, err_msg=name)
    x, _ = batch(network, seed=5)
    np.testing.assert_allclose(accel.forward(fast, torch.tensor(x)), reference.forward(slow, x), rtol=0, atol=1e-12)


def algorithm_1(backend, network, batches, every=5, **kind):
    """The prior and three lanes on the same batches, with the interpolation step in between; returns all losses."""
    prior = backend.init(network, dense=False, seed=0, **kind)
    lanes = backend.init(network, dense=True, seed=0, lanes=3, **kind)
    losses = []
    for step, (x, y) in enumerate(batches, start=1):
        losses.append([float(backend.train_step(prior, x, y)), *map(float, backend.train_step(lanes, x, y))])
        if step % every == 0:
            backend.mix(lanes, prior, ALPHAS)
    return prior, lanes, np.array(losses)


def same_20_steps(network, n, steps=20):
    slow = algorithm_1(reference, network, [batch(network, n, seed) for seed in range(steps)])
    batches = [torch_batch(network, n, seed) for seed in range(steps)]
    fast = algorithm_1(accel, network, batches, dtype="float64")
    np.testing.assert_allclose(fast[2], slow[2], rtol=0, atol=1e-9)
    for a, b in zip(fast[:2], slow[:2], strict=True):
        assert_equal_models(a, b, atol=1e-9)
    assert slow[2][-1, 1] != slow[2][-1, 3]  # the lanes have become different


@EVERY
def test_20_steps_of_algorithm_1_agree(network):
    same_20_steps(network, n=8)


def test_20_steps_of_algorithm_1_agree_on_the_papers_cnn():
    same_20_steps(networks.cnn(), n=2)


def test_steps_of_algorithm_1_agree_on_a_larger_mixer():
    same_20_steps(networks.mixer(channels=16), n=4)


@EVERY
def test_a_lane_of_a_stack_is_the_lane_trained_alone(network):
    """On every network, to 1e-12; `tests/accel/test_stack.py` compares the bits."""
    batches = [torch_batch(network, 8, seed) for seed in range(10)]
    prior = accel.init(network, dense=False, seed=0, dtype="float64")
    stack = accel.init(network, dense=True, seed=0, lanes=3, dtype="float64")
    alone = [accel.init(network, dense=True, seed=0, dtype="float64") for _ in ALPHAS]
    for step, (x, y) in enumerate(batches):
        accel.train_step(prior, x, y)
        losses = accel.train_step(stack, x, y)
        for loss, model in zip(losses, alone, strict=True):
            assert abs(loss - accel.train_step(model, x, y)) < 1e-12
        if step % 4 == 0:
            accel.mix(stack, prior, ALPHAS)
            for model, alpha in zip(alone, ALPHAS, strict=True):
                accel.mix(model, prior, alpha)
    for lane, model in enumerate(alone):
        chosen = accel.export(accel.select(stack, [lane]))
        for name, array in accel.export(model).items():
            taken = chosen[name] if name == "optimizer.step" else chosen[name][0]
            np.testing.assert_allclose(taken, array, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("module", "name", "options", "dense"),
    [
        (s_cnn, "cnn", {}, False),
        (s_mlp, "cnn", {}, True),
        (Mixer, "mixer", {}, False),
        (lambda: Mixer(residual=False), "mixer", {"residual": False}, False),
        (res_net, "resnet", {}, False),
    ],
    ids=["S-CNN", "S-MLP", "MLP-Mixer", "MLP-Mixer, not residual", "ResNet"],
)
def test_logits_and_losses_are_those_of_plain_torch_modules(module, name, options, dense):
    network = networks.make(name, **options)
    model, plain = accel.init(network, dense=dense, seed=0, dtype="float64"), module().double()
    assert sum(p.numel() for p in plain.parameters()) == network.n_parameters(dense=dense)
    load(plain, model.parameters)
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3)
    for step in range(6):
        x, y = torch_batch(network, 8, seed=step)
        torch.testing.assert_close(accel.forward(model, x), plain(x).detach(), rtol=0, atol=1e-9)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(plain(x), y)
        loss.backward()
        optimizer.step()
        assert abs(accel.train_step(model, x, y, optimizer=Adam(lr=1e-3)) - loss.detach()) < 1e-9


@EVERY
@FORM
def test_float32_follows_float64(network, form):
    exact, single = (accel.init(network, seed=0, dtype=dtype, **form) for dtype in ("float64", None))
    assert all(p.dtype == torch.float32 for p in single.parameters.values())
    for seed in range(5):
        loss = accel.train_step(single, *torch_batch(network, seed=seed, dtype=torch.float32))
        torch.testing.assert_close(
            loss.double(), accel.train_step(exact, *torch_batch(network, seed=seed)), rtol=0, atol=2e-5
        )


def test_the_injection_variants_equal_the_references():
    network = SMALL["mixer"]
    for options in (
        {"alpha": 0.3},
        {"alpha": [0.1, None, 1.0]},
        {"alpha": {"embed": [None, 0.5, None], "block1.channel1": 0.25}},
        {"alpha": 1, "coupling": "add", "biases": False},
        {"alpha": 0.5, "layers": ["block2.token2"], "head": True},
    ):
        results = []
        for backend, kind in ((accel, {"dtype": "float64"}), (reference, {})):
            prior = backend.init(network, dense=False, seed=0, **kind)
            lanes = backend.init(network, dense=True, seed=0, lanes=3, **kind)
            assert backend.mix(lanes, prior, **options) is lanes
            results.append(lanes)
        assert_equal_models(*results, atol=1e-15)


def test_a_single_model_can_be_injected_in_place():
    network = SMALL["cnn"]
    prior, model = (accel.init(network, dense=dense, seed=0) for dense in (False, True))
    place = model.parameters["conv1.weight"].data_ptr()
    accel.mix(model, prior, 1)
    assert model.parameters["conv1.weight"].data_ptr() == place
    w_p = accel.matrix(network.layers[0].spec, prior.parameters["conv1.weight"])
    torch.testing.assert_close(model.parameters["conv1.weight"], w_p, rtol=0, atol=0)


def test_evaluate_equals_the_references_and_leaves_training_possible():
    network = SMALL["cnn"]
    for form in FORMS:
        fast, slow = accel.init(network, seed=0, dtype="float64", **form), reference.init(network, seed=0, **form)
        for seed in range(2):
            found = accel.evaluate(fast, *torch_batch(network, 23, seed), batch=7)
            expected = reference.evaluate(slow, *batch(network, 23, seed))
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)
            accel.train_step(fast, *torch_batch(network))
            reference.train_step(slow, *batch(network))


def test_a_model_moves_between_backends_and_goes_on():
    network = SMALL["mixer"]
    fast = accel.init(network, dense=True, seed=0, lanes=2, dtype="float64")
    accel.train_step(fast, *torch_batch(network))
    slow = reference.restore(network, accel.export(fast), dense=True)
    accel.train_step(fast, *torch_batch(network, seed=1))
    reference.train_step(slow, *batch(network, seed=1))
    assert_equal_models(fast, slow, atol=1e-12)
    assert (
        accel.restore(network, accel.export(fast), dense=True, dtype="float32").parameters["head.bias"].dtype
        == torch.float32
    )


def test_nothing_in_a_step_reads_a_number_back():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.add(str(function))
            return function(*args, **(kwargs or {}))

    for network in SMALL.values():
        for form in FORMS:
            model = accel.init(network, seed=0, **form)
            x, y = torch_batch(network, dtype=torch.float32)
            with Watch():
                accel.train_step(model, x, y)
    assert "aten._fused_adam_.default" in seen
    assert not [name for name in seen if "_local_scalar_dense" in name or "nonzero" in name or "item" in name]


convolutions = st.builds(
    lambda c, h, w, o, k, s, p, d: (Conv, ((c, h, w), o, k, s, p, d)),
    *[st.integers(1, 5)] * 4,
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
)


@given(convolutions, st.sampled_from(["a row", "all rows", "patches"]))
def test_products_are_the_convolution(geometry, how):
    make, arguments = geometry
    try:
        spec = make(*arguments)
    except ImlpError:
        return
    like = torch.zeros((), dtype=torch.float64)
    rows = 1 if how == "a row" else spec.out_shape[1]
    products_are_the_convolution(spec, Patches(spec, like) if how == "patches" else Strips(spec, like, rows))


@given(st.integers(1, 5), st.integers(1, 5))
def test_nine_products_are_the_convolution_of_2_x_2_pixels(c, o):
    spec = Conv((c, 2, 2), o, 3, padding=1)
    products_are_the_convolution(spec, Quads(spec, torch.zeros((), dtype=torch.float64)))


def products_are_the_convolution(spec, products):
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, spec.matrix_shape[1]), spec.weight_shape, spec.bias_shape)
    x, w, b = (torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes)
    y = accel.apply(spec, w, b, x)
    dy = torch.randn(y.shape, dtype=torch.float64, generator=generator)
    expected = torch.autograd.grad(y, (w, b, x), dy)
    with torch.no_grad():
        for _ in range(2):  # the second time in the memory of the first
            torch.testing.assert_close(products.forward(x, w, b), y.detach(), rtol=0, atol=1e-12)
            for found, wanted in zip(products.backward(dy, first=False), expected, strict=True):
                torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
        assert products.backward(dy, first=True)[2] is None


def test_products_are_used_where_they_are_less_work():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    specs = [layer.spec for layer in networks.cnn().layers]
    assert [products_for(spec, cpu) for spec in specs] == [Strips] * 3 + [Patches] * 2 + [Quads]
    assert [products_for(spec, cuda) for spec in specs] == [None] * 5 + [Quads]
    assert [Strips.work(spec)[0] for spec in specs[:3]] == [1, 1, 1]
    assert Strips.work(Conv((8, 2, 2), 8, 3, padding=1))[0] == 2
    assert products_for(Conv((4, 2, 2), 4, 3, padding=1, groups=2), cpu) is None
    assert products_for(Conv((3, 224, 224), 64, 7, 2, 3), cpu) is None
    assert products_for(Conv((256, 8, 8), 256, 3, padding=1), cpu) is None
    assert products_for(networks.mixer().layers[0].spec, cpu) is None


def test_a_gradient_that_is_stored_otherwise_is_still_its_parameters():
    model = accel.init(networks.cnn(), dense=False, seed=0, dtype="float64")
    name = "conv6.weight"
    assert not model.parameters[name].is_contiguous()  # taps first
    expected = model.parameters[name] - 0.5 * model.parameters[name].sign()
    model.keep_state(Adam(), torch.zeros_like)
    assert model.state["first"][name].stride() == model.parameters[name].stride()
    adam(model, {name: model.parameters[name].contiguous()}, Adam(lr=0.5, eps=1e-300))
    torch.testing.assert_close(model.parameters[name], expected, rtol=0, atol=1e-12)


def test_a_compiled_step_is_the_step():
    needs("g++")
    one, beside = (Layer(name, Shared(1, 4, 4), "dense") for name in ("one", "beside"))
    body = (Residual("pair", (one, Norm("norm", 4)), beside), Activation("relu"), Mean(2))
    network = Network("mine", (1, 2, 2), 2, body)
    x, y = torch_batch(network)
    models = [accel.init(network, dense=True, seed=0, lanes=2, dtype="float64") for _ in range(2)]
    for _ in range(2):
        losses = [
            accel.train_step(model, x, y, compile=compiled)
            for model, compiled in zip(models, (True, False), strict=True)
        ]
        torch.testing.assert_close(*losses, rtol=0, atol=1e-12)
    for name, parameter in models[0].parameters.items():
        torch.testing.assert_close(parameter, models[1].parameters[name], rtol=0, atol=1e-12)


def test_without_a_compiler_the_error_says_what_to_do():
    import torch._inductor.config as inductor

    network = networks.cnn(image=(1, 4, 4), classes=3, width=16, strides=(1,))
    model = accel.init(network, dense=True, seed=0)
    with inductor.patch({"cpp.cxx": (None, "/no/such/compiler"), "fx_graph_cache": False}):
        with pytest.raises(BackendError, match="install a C\\+\\+ compiler, or use compile=False"):
            accel.train_step(model, *torch_batch(network, dtype=torch.float32), compile=True)
    assert model.step == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: accel.forward(m, torch.zeros(2, 5)), r"flatten them to \(N, 32\)"),
        (lambda m: accel.forward(m, torch.zeros(2, 32).double()), r"convert them with \.to\('cpu', torch.float32\)"),
        (lambda m: accel.train_step(m, torch.zeros(2, 32), torch.zeros(3).long()), "labels of shape"),
        (lambda m: accel.train_step(m, torch.zeros(2, 32), torch.zeros(2)), r"labels of torch.float32 on cpu"),
        (lambda m: accel.init(m.network, dense=True, seed=0, dtype="int32"), "use float32 or float64"),
        (lambda m: accel.init(m.network, dense=False, seed=0, lanes=2), "lanes of a prior"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ArrayError, match=message):
        call(accel.init(SMALL["cnn"], dense=True, seed=0))


@pytest.mark.gpu
@EVERY
def test_20_steps_of_algorithm_1_agree_on_cuda(network):
    needs("gpu")
    slow = algorithm_1(reference, network, [batch(network, 8, seed) for seed in range(20)])
    batches = [torch_batch(network, 8, seed, device="cuda") for seed in range(20)]
    fast = algorithm_1(accel, network, batches, dtype="float64", device="cuda")
    np.testing.assert_allclose(fast[2], slow[2], rtol=0, atol=1e-9)
    for a, b in zip(fast[:2], slow[:2], strict=True):
        assert_equal_models(a, b, atol=1e-9)


@pytest.mark.gpu
def test_a_step_on_cuda_never_waits():
    needs("gpu")
    network = networks.cnn()
    x, y = torch_batch(network, 8, dtype=torch.float32, device="cuda")
    models = [accel.init(network, seed=0, device="cuda", **form) for form in FORMS]
    for model in models:
        accel.train_step(model, x, y)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for model in models:
            accel.train_step(model, x, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")
