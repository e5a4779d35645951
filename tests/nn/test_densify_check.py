"""`densify` never changes a function without a word: what the dense form would lose is refused by the layer's name."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import needs
from torch import nn

import imlp.nn
from imlp.errors import ArrayError, ModuleError
from imlp.nn.densify import differing
from imlp.nn.find import example

needs("accel")

IMAGE = (2, 5, 5)


class Net(nn.Module):
    """Two convolutions; `between` is given the output of the first and the network."""

    def __init__(self, between=lambda x, net: x):
        super().__init__()
        self.stem, self.conv, self.head = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 3, 3), nn.Linear(27, 2)
        self.between = between

    def forward(self, x):
        return self.head(self.conv(self.between(self.stem(x), self)).flatten(1))


def add_hook(kind, hook):
    def added(net):
        getattr(net.conv, kind)(hook)

    return added


def on_the_instance(net):
    net.conv.forward = lambda x, old=net.conv.forward: 2 * old(x)


def as_accelerate_does(net):
    def new_forward(module, *args, **kwargs):
        return module._old_forward(*args, **kwargs)

    net.conv._old_forward = net.conv.forward
    net.conv.forward = functools.update_wrapper(functools.partial(new_forward, net.conv), net.conv._old_forward)


LOST = {
    "conv has no dense form: it has a forward hook": add_hook("register_forward_hook", lambda m, x, y: 2 * y),
    "conv has no dense form: it has a forward pre hook": add_hook(
        "register_forward_pre_hook", lambda m, x: (2 * x[0],)
    ),
    "conv has no dense form: it has a backward hook": add_hook(
        "register_full_backward_hook", lambda m, x, y: (2 * x[0],)
    ),
    "conv has no dense form: it has a backward pre hook": add_hook(
        "register_full_backward_pre_hook", lambda m, y: (2 * y[0],)
    ),
    "conv has no dense form: a number of it has a hook": lambda net: net.conv.weight.register_hook(lambda g: 2 * g),
    "conv .* number of it has a hook": lambda net: net.conv.bias.register_post_accumulate_grad_hook(torch.zero_),
    "the forward of conv was replaced on the instance": on_the_instance,
    "the forward of conv was replaced .*remove_hook_from_module": as_accelerate_does,
}


@pytest.mark.parametrize("init", ["prior", "random"])
@pytest.mark.parametrize("match", LOST)
def test_what_would_be_dropped_is_refused(match, init):
    net = Net()
    LOST[match](net)
    with pytest.raises(ModuleError, match=match):
        imlp.nn.densify(net, IMAGE, init=init)


def test_hooks_on_other_modules_are_kept():
    net = Net()
    net.head.register_forward_hook(lambda m, x, y: 2 * y)
    x = torch.randn(3, *IMAGE)
    torch.testing.assert_close(imlp.nn.densify(net, IMAGE, init="prior")(x), net(x))


READ_ELSEWHERE = {
    "mean": lambda x, net: x * net.conv.weight.mean(),
    "__getitem__": lambda x, net: x + net.conv.bias[0],
    "conv2d": lambda x, net: nn.functional.conv2d(x, net.conv.weight, padding=1),
    "shape": lambda x, net: x * net.conv.weight.shape[0],
}


@pytest.mark.parametrize("init", ["prior", "random"])
@pytest.mark.parametrize("reader", READ_ELSEWHERE)
def test_a_weight_that_is_read_elsewhere_is_refused(reader, init):
    with pytest.raises(ModuleError, match=rf"conv has no dense form: its weight is read .*\(by {reader}\)"):
        imlp.nn.densify(Net(READ_ELSEWHERE[reader]), IMAGE, init=init)


def test_a_weight_that_a_function_of_the_original_reads_is_refused():
    """A copy shares functions: this one would read the prior's weight for ever, and not that of the dense layer."""
    net = Net()
    net.head.register_forward_hook(lambda m, x, y: y * net.conv.weight.mean())
    with pytest.raises(ModuleError, match=r"conv has no dense form: its weight is read .*\(by mean\)"):
        imlp.nn.densify(net, IMAGE)


def test_to_ask_a_weight_for_its_type_is_fine():
    net = Net(lambda x, net: x.to(net.conv.weight.dtype).to(net.conv.weight.device))
    x = torch.randn(3, *IMAGE)
    torch.testing.assert_close(imlp.nn.densify(net, IMAGE, init="prior")(x), net(x))


def test_a_function_of_the_layers_class_is_found_by_the_whole_output():
    net = Net(lambda x, net: 2 * x if isinstance(net.conv, nn.Conv2d) else x)
    with pytest.raises(ModuleError, match="conv has no dense form: what the module returns depends on more"):
        imlp.nn.densify(net, IMAGE, init="prior")
    assert isinstance(imlp.nn.densify(net, IMAGE, init="prior", check=False).conv, imlp.nn.Dense)


@pytest.mark.parametrize("init", ["prior", "random"])
def test_an_attribute_that_a_dense_layer_lacks_is_found_before_the_user_finds_it(init):
    with pytest.raises(ModuleError, match="'Dense' object has no attribute 'out_channels'"):
        imlp.nn.densify(Net(lambda x, net: x * net.conv.out_channels), IMAGE, init=init)


@pytest.mark.parametrize("init", ["prior", "random"])
def test_a_layer_that_computes_something_else_is_refused(init, monkeypatch):
    plain = nn.Conv2d._conv_forward
    monkeypatch.setattr(nn.Conv2d, "_conv_forward", lambda self, x, w, b: 1.001 * plain(self, x, w, b))
    with pytest.raises(ModuleError, match="\nits class Conv2d computes something else than Conv2d: stem, conv;\n"):
        imlp.nn.densify(Net(), IMAGE, init=init)


def test_a_wrong_matrix_is_refused_by_its_name():
    net = Net()
    dense = imlp.nn.densify(net, IMAGE, init="prior")
    plan, batch = imlp.nn.find(net, IMAGE), example(net, IMAGE, 1)
    assert not differing(net, dense, plan, batch, same_output=True)
    with torch.no_grad():
        dense.conv.weight[0, 0] += 0.01
    (wrong,) = differing(net, dense, plan, batch, same_output=True)
    assert wrong[:2] == ("conv", "its matrix returns something else than the layer")


def test_a_network_that_magnifies_rounding_is_not_refused():
    net = Net(lambda x, net: torch.sin(1e5 * x))
    dense = imlp.nn.densify(net, IMAGE, init="prior")
    x = torch.randn(3, *IMAGE)
    assert (dense(x) - net(x)).abs().max() > 1e-3 * net(x).abs().max()


class TokensFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x):
        return self.mix(x.transpose(0, 1)).transpose(0, 1)


@pytest.mark.parametrize("given", [(2, 4), torch.randn(3, 3, 4)], ids=["shape", "batch"])
def test_as_many_tokens_as_examples_are_not_taken_for_the_batch(given):
    with pytest.raises(ModuleError, match="mix has no dense form: the first axis of its input is not the batch"):
        imlp.nn.densify(TokensFirst(), given)


class Counting(nn.Module):
    """Changes its buffers (one in place, one by a new one) and an attribute when it runs; may need numbers to run."""

    def __init__(self, numbers):
        super().__init__()
        self.conv, self.numbers, self.seen = nn.Conv2d(2, 3, 3), numbers, []
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.mean = 0.9 * self.mean + 1
        self.seen.append(len(x))
        if self.numbers and float(self.calls) < 0:
            return x
        return self.conv(x) * self.calls


@pytest.mark.parametrize("numbers", [False, True])
def test_neither_the_module_nor_the_copy_is_changed(numbers):
    net = Counting(numbers)
    state = torch.get_rng_state()
    dense = imlp.nn.densify(net, IMAGE, init="prior")
    assert torch.equal(torch.get_rng_state(), state)
    for module in (net, dense):
        assert (float(module.calls), float(module.mean), module.seen) == (0, 0, [])
        assert all(own.training for own in module.modules())
    x = torch.randn(3, *IMAGE)
    torch.testing.assert_close(dense(x), net(x))


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, bias):
        self.calls += 1
        return 3 * bias


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_a_computed_weight_is_the_one_that_the_layer_computes_with_now():
    made = {
        "old": lambda conv: nn.utils.weight_norm(conv),
        "new": lambda conv: nn.utils.parametrizations.weight_norm(conv),
        "spectral": lambda conv: nn.utils.parametrizations.spectral_norm(conv),
        "prune": lambda conv: nn.utils.prune.l1_unstructured(conv, "weight", 0.5),
    }
    x = torch.randn(3, *IMAGE)
    made["bias"] = lambda conv: nn.utils.parametrize.register_parametrization(conv, "bias", Counted())
    for kind, computed in made.items():
        net = Net().train()
        computed(net.conv)
        with torch.no_grad():
            for parameter in net.conv.parameters():  # a step of an optimiser: what was computed before is old
                parameter.mul_(1.5)
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        dense = imlp.nn.densify(net, IMAGE, init="prior").eval()
        assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items()), kind
        torch.testing.assert_close(dense(x), net.eval()(x), msg=kind)


def test_requires_grad_follows():
    net = Net()
    net.stem.requires_grad_(False)
    net.conv.bias.requires_grad_(False)
    for init in ("prior", "random"):
        dense = imlp.nn.densify(net, IMAGE, init=init)
        trained = {name for name, parameter in dense.named_parameters() if parameter.requires_grad}
        assert trained == {"conv.weight", "head.weight", "head.bias"}


@pytest.mark.filterwarnings("ignore:.*FSDP", "ignore:.*FullyShardedDataParallel")
def test_modules_that_are_spread_over_processes_are_refused(tmp_path):
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        wrapped = [nn.parallel.DistributedDataParallel(Net()), FullyShardedDataParallel(Net(), device_id="cpu")]
        sharded = Net()
        fully_shard(sharded.conv, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
        for module in (*wrapped, nn.Sequential(wrapped[0]), sharded):
            with pytest.raises(ModuleError, match=r"is wrapped in .*; densify the module inside first, and wrap"):
                imlp.nn.densify(module, IMAGE)
        model = imlp.nn.densify(Net(), IMAGE)
        fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
        with pytest.raises(ArrayError, match="W is spread over processes; use DistributedDataParallel"):
            imlp.nn.Interpolation(model, Net(), 0.5).step()
    finally:
        torch.distributed.destroy_process_group()


def test_a_compiled_module_is_refused():
    with pytest.raises(ModuleError, match=r"the module is wrapped in OptimizedModule.*; densify the module inside"):
        imlp.nn.densify(torch.compile(Net()), IMAGE)


@pytest.mark.parametrize(
    ("module", "shape", "match"),
    [
        (None, IMAGE, "the module is None; give a torch.nn.Module"),
        (Net, IMAGE, "the module is <class .*; give a torch.nn.Module"),
        (Net(), (2, -5, 5), r"input_shape is \(2, -5, 5\); give \(channels"),
        (Net(), (2, 0, 5), r"input_shape is \(2, 0, 5\); give"),
        (Net(), (2, 5.5, 5), r"input_shape is \(2, 5.5, 5\); give"),
        (Net(), None, "input_shape is None; give"),
        (Net(), (), r"input_shape is \(\); give"),
        (Net(), torch.tensor(3.0), "the example is a batch of none"),
        (Net(), (2, 10**9, 10**10), "input_shape is .*; give a smaller one"),
        (Net(), (2, 10**30, 5), "input_shape is .*; give"),
    ],
)
def test_bad_arguments(module, shape, match):
    with pytest.raises(ModuleError, match=match):
        imlp.nn.densify(module, shape)


LARGE = """
import resource, torch, imlp.nn
from torch import nn
from imlp.errors import ModuleError

class NeedsNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
    def forward(self, x):
        return self.conv(x * float(x[0, 0, 0, 0]))

LARGE = (3, 10_000, 10_000)
cases = [
    (nn.Conv2d(3, 3, 3), LARGE, {}),
    (nn.Conv2d(3, 3, 4, padding="same"), LARGE, {}),
    (nn.Sequential(nn.Conv2d(3, 9, 3), nn.AdaptiveAvgPool2d(4), nn.Linear(4, 3)), (3, 10**5, 10**5), {'layers': '2'}),
    (nn.Sequential(nn.Conv2d(3, 3, 3), nn.Flatten(), nn.Linear(8, 3)), LARGE, {}),
    (NeedsNumbers(), LARGE, {}),
]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for module, shape, options in cases:
    try:
        imlp.nn.densify(module, shape, **options)
    except ModuleError as error:
        print(str(error).splitlines()[0])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_nothing_large_is_allocated_before_the_sizes_are_known():
    """In a process of its own: the peak of this one is that of other tests."""
    environment = {**os.environ, "PYTHONPATH": str(Path(imlp.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", LARGE], capture_output=True, text=True, timeout=300, check=True, env=environment
    )
    *refusals, megabytes = done.stdout.splitlines()
    begun = [re.split(r" takes |: ", line)[0] for line in refusals]
    cannot = "the module cannot take a batch of shape (2, 3, 10000, 10000)"
    assert begun == ["the dense form"] * 2 + ["a forward pass to check the dense form"] + [cannot] * 2
    assert int(megabytes) < 200
