"""A lane's numbers never depend on the other lanes: neither on how many there are, nor on its place among them.

Bits are compared. How a product rounds depends on the processor and on the settings of the BLAS: `make test-bits` runs
this file under several of them.
"""

import numpy as np
import pytest
from conftest import needs
from small_networks import SMALL

needs("accel")

import torch  # noqa: E402

from imlp import accel, networks  # noqa: E402
from imlp.optimizers import Adam  # noqa: E402
from imlp.spec import Conv, Shared  # noqa: E402

pytestmark = pytest.mark.bits

NETWORKS = {
    "small": networks.cnn((3, 8, 8), width=64, strides=(1, 2, 2)),
    "odd": networks.cnn((1, 5, 7), 3, width=35, strides=(1, 1), learned_norm=True),
    "odd, one pixel": networks.cnn((1, 3, 3), 7, width=(9, 12, 13), strides=(1, 2, 2)),
    "odd mixer": networks.mixer((3, 9, 6), 5, patch=3, channels=7, learned_norm=True),
    "odd resnet": networks.resnet((1, 3, 3), 7, width=36, stem_stride=1, strides=(2,)),
    "in another order": SMALL["in another order"],
    "large": networks.cnn((3, 32, 32)),
}
BATCHES = {"large": 128}
LANES = range(1, 14)
STEPS = 3


@pytest.fixture(params=[1, 2], ids=["1 thread", "2 threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def alphas(n):
    """A different value for each of n lanes, with the same names as the lanes of a larger stack."""
    return [0.0, 1.0, 0.5, *np.linspace(0.01, 0.9, 10)][:n]


def trained(name, chosen, dtype):
    """Losses, evaluation, measures and weights of some of the lanes, after a few steps beside one prior."""
    network, rng = NETWORKS[name], np.random.default_rng(0)
    m_in, n = int(np.prod(network.image)), BATCHES.get(name, 37)
    model = accel.init(network, dense=True, seed=0, lanes=len(chosen), dtype=dtype)
    prior = accel.init(network, dense=False, seed=0, dtype=dtype)
    mixed = [alphas(13)[lane] for lane in chosen]
    found = []
    for _ in range(STEPS if n < 128 else 1):
        x = torch.from_numpy(rng.standard_normal((n, m_in))).to(prior.parameters["head.bias"].dtype)
        y = torch.from_numpy(rng.integers(0, network.classes, n))
        accel.train_step(prior, x, y, optimizer=Adam(lr=3e-3))
        found.append(accel.train_step(model, x, y, optimizer=Adam(lr=3e-3), check=True))
        accel.mix(model, prior, mixed)
    found += [accel.forward(model, x), *accel.evaluate(model, x, y, batch=20), *accel.loss_and_grads(model, x, y)[:1]]
    for layer in network.interpolated:
        weights = (m.parameters[f"{layer}.weight"] for m in (model, prior))
        found += accel.measure(next(weights), network.layer(layer).spec, next(weights)).values()
    found += [*model.parameters.values(), *(array for group in model.state.values() for array in group.values())]
    return [[accel.to_numpy(array[k]).tobytes() for array in found] for k in range(len(chosen))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "large"])
@pytest.mark.usefixtures("threads")
def test_a_lane_is_the_same_in_every_company(name, dtype):
    alone = [trained(name, [lane], dtype)[0] for lane in LANES if lane < 13] + [trained(name, [0], dtype)[0]]
    alone = dict(zip([*range(1, 13), 0], alone, strict=True))
    for n in LANES:
        for lane, found in enumerate(trained(name, range(n), dtype)):
            assert found == alone[lane], f"lane {lane} of {n}"


@pytest.mark.usefixtures("threads")
def test_a_lane_of_the_papers_size_is_the_same_in_every_company():
    all_of_them = trained("large", [0, 1, 2, 3, 4], "float32")
    for chosen in ([1], [4, 1], [3, 4, 0]):
        for lane, found in zip(chosen, trained("large", chosen, "float32"), strict=True):
            assert found == all_of_them[lane], f"lane {lane} among {chosen}"


@pytest.mark.usefixtures("threads")
def test_a_lane_that_moves_to_another_place_keeps_its_numbers():
    network, rng = NETWORKS["odd"], np.random.default_rng(0)
    x, y = torch.from_numpy(rng.standard_normal((37, 35))).float(), torch.from_numpy(rng.integers(0, 3, 37))
    model = accel.init(network, dense=True, seed=0, lanes=5)
    prior = accel.init(network, dense=False, seed=0)
    accel.mix(model, prior, alphas(5))
    moved = accel.select(model, [2, 4])
    for _ in range(STEPS):
        for each in (model, moved):
            accel.train_step(each, x, y, optimizer=Adam(lr=3e-3))
    for name, stack in moved.parameters.items():
        for lane, place in ((2, 0), (4, 1)):
            assert stack[place].numpy().tobytes() == model.parameters[name][lane].numpy().tobytes(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("lanes", [None, 1, 3])
def test_every_lane_of_every_parameter_is_aligned(lanes, dtype):
    network = NETWORKS["odd"]
    model = accel.init(network, dense=True, seed=0, lanes=lanes, dtype=dtype)
    models = [model, accel.restore(network, accel.export(model), dense=True, dtype=dtype)]
    models += [] if lanes is None else [accel.select(model, range(lanes))]
    for each in models:
        for name, stack in each.parameters.items():
            for lane in stack if lanes else [stack]:
                assert lane.data_ptr() % 64 == 0, name
                assert lane.is_contiguous()


@pytest.mark.parametrize("spec", [Conv((1, 3, 5), 1, 3, padding=1), Shared(3, 5, 5)])
def test_a_stack_with_gaps_between_its_lanes_can_be_mixed(spec):
    m_out, m_in = spec.matrix_shape
    rng = np.random.default_rng(0)
    room = torch.from_numpy(rng.standard_normal((3, 256)))
    dense = room[:, : m_out * m_in].view(3, m_out, m_in)
    before, gaps = dense.clone(), room[:, m_out * m_in :].clone()
    weight = torch.from_numpy(rng.standard_normal(spec.weight_shape))
    assert not dense.is_contiguous()
    accel.interpolate(dense, spec, weight, [0.1, 0.2, 0.3])
    torch.testing.assert_close(dense, accel.interpolate(before.contiguous(), spec, weight, [0.1, 0.2, 0.3]))
    assert torch.equal(room[:, m_out * m_in :], gaps)
