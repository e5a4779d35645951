"""The operations of a network, each forward beside its backward, with torch's own kernels for both.

As in the reference each returns its output and a function from `dy` to `dx` and the gradients of its parameters. No
autograd tape: a gradient is written to a given place (`room`) and used at once, where a tape would allocate the size
of the network in every step. `dx` of a network's `first` layer is not needed and not computed.

There is no lane axis here: the lanes of a model are computed one after the other. A kernel may round differently for
a different number of lanes (batched products, reductions over a stack, the tails of vectorised loops), and a lane's
numbers must not depend on the others.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from imlp.accel.precision import multiplied_in
from imlp.accel.products import Patches, Quads, Strips
from imlp.accel.verbs import apply
from imlp.spec import Spec

Gradients = dict[str, Tensor]
Back = tuple[Tensor | None, Gradients]
Backward = Callable[[Tensor], Back]


def linear(
    x: Tensor, W: Tensor, b: Tensor, *, first: bool = False, room: Tensor | None = None
) -> tuple[Tensor, Backward]:
    """A dense layer, `y = x W^T + b`, with `x (N, M_in)`, `W (M_out, M_in)`, `b (M_out,)`."""
    if multiplied_in() == "bfloat16":
        return _linear_in_bfloat16(x, W, b, first, room)
    y = product(x, W.T, b)

    def backward(dy: Tensor) -> Back:
        dx = None if first else product(dy, W)
        return dx, {"weight": torch.mm(dy.T, x, out=room), "bias": dy.sum(0)}

    return y, backward


def _linear_in_bfloat16(x: Tensor, W: Tensor, b: Tensor, first: bool, room: Tensor | None) -> tuple[Tensor, Backward]:
    """`linear` as `torch.autocast` computes it: factors and products are rounded to bfloat16, sums are not."""
    X, rounded = x.bfloat16(), W.bfloat16()
    y = torch.mm(X, rounded.T).to(x.dtype).add_(b)

    def backward(dy: Tensor) -> Back:
        dY = dy.bfloat16()
        dx = None if first else torch.mm(dY, rounded).to(x.dtype)
        dW = torch.mm(dY.T, X)
        return dx, {"weight": dW.to(x.dtype) if room is None else room.copy_(dW), "bias": dy.sum(0)}

    return y, backward


def product(x: Tensor, A: Tensor, b: Tensor | None = None) -> Tensor:
    """`x A`, with `x (N, K)`, `A (K, M)`, plus `b (M,)` if given.

    With several threads each multiplies a block of A's columns: for a batch of this size MKL would divide the rows of
    `x` instead, and every thread would read all of A. It depends on nothing but the shapes and the number of threads.
    """
    alone = torch.compiler.is_compiling() or A.device.type != "cpu" or A.element_size() < 4
    blocks = 1 if alone else torch.get_num_threads()
    if blocks == 1 or A.shape[1] % blocks or A.shape[1] // blocks < 256:
        return torch.mm(x, A) if b is None else torch.addmm(b, x, A)
    columns = A.unflatten(1, (blocks, -1)).transpose(0, 1)  # (blocks, K, M / blocks)
    y = torch.bmm(x.expand(blocks, -1, -1), columns).transpose(0, 1)  # (N, blocks, M / blocks)
    return y.flatten(1) if b is None else (y + b.view(blocks, -1)).flatten(1)


def structured(
    x: Tensor,
    spec: Spec,
    w: Any,
    b: Any,
    *,
    products: Strips | Patches | Quads | None = None,
    first: bool = False,
    record: bool = True,
) -> tuple[Tensor, Backward]:
    """A prior layer: as products if those are given, otherwise natively. Without `record` there is no backward."""
    if products is not None:
        return products.forward(x, w, b), lambda dy: _named(("weight", "bias"), *products.backward(dy, first))
    if not record:
        return apply(spec, w, b, x), _no_backward
    parameters = spec.named(w) | ({} if b is None else {"bias": b})
    inputs = [*parameters.values()] if first else [*parameters.values(), x]

    def run(*arrays: Tensor) -> Tensor:
        given = dict(zip(parameters, arrays, strict=False))
        return apply(spec, spec.unnamed(given), given.get("bias"), x if first else arrays[-1])

    if torch.compiler.is_compiling():  # the compiler knows vjp but not autograd.grad; loading vjp takes seconds
        vjp: Any = torch.func.vjp  # its annotation has a third result, which only has_aux returns
        y, pull = vjp(run, *inputs)
        return y, lambda dy: _named(parameters, *pull(dy))
    leaves = [array.detach().requires_grad_() for array in inputs]
    with torch.enable_grad():
        y = run(*leaves)
    return y.detach(), lambda dy: _named(parameters, *torch.autograd.grad(y, leaves, dy))


def _named(names: Iterable[str], *gradients: Tensor | None) -> Back:
    """The gradients of the parameters by name; what is left is `dx`."""
    by_name = dict(zip(names, gradients, strict=False))
    dx = gradients[len(by_name)] if len(gradients) > len(by_name) else None
    return dx, by_name  # type: ignore[return-value]  # only dx can be None


def _no_backward(dy: Tensor) -> Back:
    raise RuntimeError("this layer was run without record")


def layer_norm(
    x: Tensor, features: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Backward]:
    """`y = (x - mean) / sqrt(var + eps)` over each run of `features` numbers; then `weight y + bias`, if learned."""
    runs = x.view(len(x), -1, features)  # (N, R, features)
    z, mu, rstd = torch.native_layer_norm(runs, (features,), None, None, eps)
    y = z if weight is None or bias is None else torch.addcmul(bias, z, weight)

    def backward(dy: Tensor) -> Back:
        dy = dy.view(z.shape)
        gradients = {} if weight is None else {"weight": (dy * z).sum((0, 1)), "bias": dy.sum((0, 1))}
        d = dy if weight is None else dy * weight
        only_dx = (True, False, False)
        dx = torch.ops.aten.native_layer_norm_backward(d, runs, (features,), mu, rstd, None, None, only_dx)[0]
        return dx.view(x.shape), gradients

    return y.view(x.shape), backward


def gelu(x: Tensor) -> tuple[Tensor, Backward]:
    return functional.gelu(x), lambda dy: (torch.ops.aten.gelu_backward(dy, x), {})


def relu(x: Tensor) -> tuple[Tensor, Backward]:
    y = x.clamp_min(0)
    return y, lambda dy: (torch.ops.aten.threshold_backward(dy, y, 0), {})


def mean(x: Tensor, positions: int, channels_first: bool = False) -> tuple[Tensor, Backward]:
    """The mean over positions: `(N, P C)` to `(N, C)`, or of `(N, C P)` with `channels_first`."""
    dim = 2 if channels_first else 1
    runs = x.view(len(x), -1, positions) if channels_first else x.view(len(x), positions, -1)
    return runs.mean(dim), lambda dy: ((dy.unsqueeze(dim) / positions).expand(runs.shape).reshape(x.shape), {})


def cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`-log softmax(logits)[y]` of each image, `(N,)`; and its gradient at the logits, `softmax - onehot(y)`.

    Given shares of the classes, `y (N, classes)`: `-sum_k y_k log softmax(logits)_k`, and `softmax - y`.
    """
    log_softmax = logits.log_softmax(1)  # (N, classes)
    if y.ndim == 2:
        return -(y * log_softmax).sum(1), log_softmax.exp().sub_(y)
    labels = y[:, None]  # (N, 1)
    gradient = log_softmax.exp().scatter_add_(1, labels, logits.new_full((), -1.0).expand(labels.shape))
    return -log_softmax.gather(1, labels)[:, 0], gradient
