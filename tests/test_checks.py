"""Whatever is not an array of numbers is refused by name, in both backends, before anything is computed."""

import numpy as np
import pytest
from conftest import needs

from imlp import networks, reference
from imlp.errors import ArrayError, ImlpError, SpecError
from imlp.spec import Shared

SPEC = Shared(2, 1, 1)
NETWORK = networks.mixer(image=(3, 8, 8), patch=4, channels=6)
ONES = np.ones((2, 2))


class Anything:
    """An object that knows nothing about arrays."""


WRONG = [np.array([[Anything()]]), np.array([["1.0"]]), np.array([[1j]]), [[1.0], [2.0, 3.0]], Anything(), "one"]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
@pytest.mark.parametrize(
    "call", ["matrix", "expand_bias", "apply", "interpolate", "adjoint", "project", "measure", "forward"]
)
def test_the_reference_takes_real_numbers_only(call, wrong):
    calls = {
        "matrix": lambda: reference.matrix(SPEC, wrong),
        "expand_bias": lambda: reference.expand_bias(SPEC, wrong),
        "apply": lambda: reference.apply(SPEC, [[1.0]], None, wrong),
        "interpolate": lambda: reference.interpolate(ONES, SPEC, wrong, 0.5),
        "adjoint": lambda: reference.adjoint(SPEC, wrong),
        "project": lambda: reference.project(wrong, SPEC),
        "measure": lambda: reference.measure(ONES, SPEC, wrong),
        "forward": lambda: reference.forward(reference.init(NETWORK, dense=False, seed=0), wrong),
    }
    with pytest.raises(ArrayError, match="give real numbers"):
        calls[call]()


def test_the_reference_still_takes_lists_and_whole_numbers():
    assert reference.matrix(SPEC, [[7]]).toarray().tolist() == [[7, 0], [0, 7]]
    assert reference.interpolate(ONES.astype(np.float32), SPEC, ((3,),), 0.5).tolist() == [[2.0, 0.5], [0.5, 2.0]]


@pytest.mark.parametrize("wrong", [np.ones((1, 1), np.float32), [[1.0]], Anything()], ids=["numpy", "list", "other"])
def test_accel_takes_tensors_only(wrong):
    needs("accel")
    import torch

    from imlp import accel

    weight, dense = torch.ones(1, 1), torch.ones(2, 2)
    model = accel.init(NETWORK, dense=False, seed=0)
    labels = torch.zeros(1, dtype=torch.int64)
    calls = [
        lambda: accel.matrix(SPEC, wrong),
        lambda: accel.expand_bias(SPEC, wrong),
        lambda: accel.apply(SPEC, weight, None, wrong),
        lambda: accel.apply(SPEC, wrong, None, dense),
        lambda: accel.interpolate(wrong, SPEC, weight, 0.5),
        lambda: accel.interpolate(dense, SPEC, wrong, 0.5),
        lambda: accel.adjoint(SPEC, wrong),
        lambda: accel.adjoint_bias(SPEC, wrong),
        lambda: accel.project(wrong, SPEC),
        lambda: accel.measure(wrong, SPEC, weight),
        lambda: accel.measure(dense, SPEC, wrong),
        lambda: accel.to_numpy(wrong),
        lambda: accel.forward(model, wrong),
        lambda: accel.evaluate(model, wrong, labels),
        lambda: accel.train_step(model, torch.ones(1, 192), wrong),
        lambda: accel.batch(wrong, [0], None, [0.5], [0.5]),
    ]
    for call in calls:
        with pytest.raises(ArrayError, match=r"tensor|Tensor"):
            call()


def test_none_where_a_tensor_belongs():
    needs("accel")
    import torch

    from imlp import accel

    weight, dense = torch.ones(1, 1), torch.ones(2, 2)
    model = accel.init(NETWORK, dense=False, seed=0)
    calls = [
        lambda: accel.matrix(SPEC, None),
        lambda: accel.apply(SPEC, weight, None, None),
        lambda: accel.apply(SPEC, None, None, dense),
        lambda: accel.interpolate(None, SPEC, weight, 0.5),
        lambda: accel.interpolate(dense, SPEC, None, 0.5),
        lambda: accel.project(None, SPEC),
        lambda: accel.measure(None, SPEC, weight),
        lambda: accel.to_numpy(None),
        lambda: accel.place(None),
        lambda: accel.place(np.array([Anything()])),
        lambda: accel.forward(model, None),
        lambda: accel.loss_and_grads(model, None, None),
        lambda: accel.loss_and_grads(model, torch.ones(1, 192), None),
        lambda: accel.interpolate(dense.to_sparse(), SPEC, weight, 0.5),
        lambda: reference.matrix(SPEC, None),
        lambda: reference.project(None, SPEC),
        lambda: reference.measure(None, SPEC, ONES),
        lambda: reference.loss_and_grads(reference.init(NETWORK, dense=False, seed=0), np.ones((1, 192)), None),
    ]
    for call in calls:
        with pytest.raises(ArrayError):
            call()


@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_what_is_no_spec(backend):
    if backend == "accel":
        needs("accel")
    from imlp import backend as get_backend

    own = get_backend(backend)
    ones = own.place(ONES)
    for call in (
        lambda: own.matrix(None, ones),
        lambda: own.expand_bias(None, None),
        lambda: own.apply("conv", ones, None, ones),
        lambda: own.interpolate(ones, None, ones, 0.5),
        lambda: own.project(ones, None),
    ):
        with pytest.raises(SpecError, match="is not a spec"):
            call()


@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_objects_are_not_loaded(backend):
    if backend == "accel":
        needs("accel")
    from imlp import backend as get_backend

    own = get_backend(backend)
    arrays = own.export(own.init(NETWORK, dense=False, seed=0))
    arrays["head.bias"] = np.array([Anything()] * len(arrays["head.bias"]))
    with pytest.raises(ImlpError, match="does not hold numbers"):
        own.restore(NETWORK, arrays, dense=False)
