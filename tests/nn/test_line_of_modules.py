"""The line from a dense model to its prior, and the order of hidden units that is nearest to the prior's."""

from itertools import permutations

import numpy as np
import pytest
from conftest import needs

from imlp.model.align import Compared, matched

needs("accel")

import torch  # noqa: E402
from torch import nn  # noqa: E402

from imlp.errors import ModuleError  # noqa: E402
from imlp.nn import align_, densify, interpolate_, line  # noqa: E402


def test_the_best_order_of_all():
    """One hidden layer: the likeness that the assignment finds against every permutation."""
    rng = np.random.default_rng(0)
    one, other = (rng.standard_normal((6, 9)) for _ in range(2))
    found = matched(
        [Compared(one[:, :5], other[:, :5], ("h", None)), Compared(one[:, 5:].T, other[:, 5:].T, (None, "h"))]
    )
    best = max(permutations(range(6)), key=lambda order: (other * one[list(order)]).sum())
    assert tuple(found["h"]) == best


def test_orders_are_those_of_a_public_implementation():
    """What `rebasin` 0.0.47 finds for two MLPs without biases. It counts every layer but the last one twice."""

    def network(*factors):
        shapes = zip(factors, [(8, 6), (4, 8)], strict=True)
        return [np.sin(k * np.arange(1, 1 + n * m) ** 2.0).reshape(n, m) for k, (n, m) in shapes]

    first, second = map(Compared, network(0.7, 1.3), network(2.1, 0.9), [("h", None), (None, "h")])
    assert matched([first, first, second])["h"].tolist() == [1, 5, 3, 0, 7, 4, 2, 6]
    assert matched([first, second])["h"].tolist() == [5, 1, 3, 0, 7, 4, 2, 6]


def pair(seed=0):
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 2, 3, padding=1), nn.LayerNorm((2, 4, 4)), nn.GELU(), nn.Conv2d(2, 3, 2, stride=2), nn.ReLU()
    prior = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12, 3)).double()
    for own in prior[1].parameters():
        nn.init.normal_(own)
    return densify(prior, (1, 4, 4), init="random"), prior


def test_units_that_were_shuffled_are_found_and_the_function_stays():
    model, prior = pair()
    interpolate_(model, prior, 0.9)
    straight = [model[n].weight.detach().clone() for n in (0, 3)]
    shuffles = {"0": torch.randperm(32), "3": torch.randperm(12)}
    with torch.no_grad():
        for n, follow in (("0", "3"), ("3", "6")):
            own, order = model[int(n)], shuffles[n]
            for part in (*own.parameters(), *(model[1].parameters() if n == "0" else ())):
                flat = part.view(len(order), -1)
                flat.copy_(flat[order])
            model[int(follow)].weight.copy_(model[int(follow)].weight[:, order])
    x = torch.randn(5, 1, 4, 4, dtype=torch.float64)
    before = model(x)
    found = align_(model, prior)
    torch.testing.assert_close(model(x), before, rtol=0, atol=1e-12)
    for name, order in shuffles.items():
        assert torch.equal(order[found[name]], torch.arange(len(order)))
    for n, expected in zip((0, 3), straight, strict=True):
        assert torch.equal(model[n].weight, expected)


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x):
        y = self.one(x).relu()
        return y + self.two(y)


class Named(nn.Sequential):
    """Its batch norm is called as an activation is."""

    def __init__(self):
        super().__init__()
        self.one, self.relu, self.two = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Conv2d(2, 1, 3)


def weight_norm():
    return nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Flatten(), nn.utils.weight_norm(nn.Linear(16, 2)))


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`")
@pytest.mark.parametrize("make", [Skip, Named, weight_norm])
def test_units_that_something_else_reads_are_left_alone(make):
    with pytest.raises(ModuleError, match="no hidden units that may change places"):
        align_(densify(make(), (1, 4, 4), init="random"), make())


@pytest.mark.parametrize("at", [0, 1, 3])
def test_units_that_a_hook_may_read_are_left_alone(at):
    prior = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    model = densify(prior, (1, 4, 4))
    model[at].register_forward_hook(lambda own, x, y: y * torch.rand(y.shape))
    with pytest.raises(ModuleError, match="no hidden units that may change places"):
        align_(model, prior)


def test_the_line_ends_at_the_prior_and_leaves_the_model_as_it_was():
    model, prior = pair()
    x, y = torch.randn(40, 1, 4, 4, dtype=torch.float64), torch.randint(0, 3, (40,))
    before = {name: own.clone() for name, own in model.state_dict().items()}
    found = line(model, prior, x, y, points=3)
    assert list(found) == ["all layers", "0", "3"]
    ends = [nn.functional.cross_entropy(own(x), y).item() for own in (model, prior)]
    # the norm and the head are copies of the prior's, which has trained no further
    np.testing.assert_allclose([found["all layers"][n].loss for n in (0, 2)], ends, atol=1e-12)
    half = interpolate_(densify(prior, (1, 4, 4), init="random"), prior, 0.0)
    half.load_state_dict(before)
    interpolate_(half, prior, 0.5, layers="3")
    assert found["3"][1].loss == pytest.approx(nn.functional.cross_entropy(half(x), y).item(), abs=1e-12)
    assert all(torch.equal(own, before[name]) for name, own in model.state_dict().items())
