"""The operations of a network, each forward beside its backward, with torch's own kernels for both.

As in the reference each returns its output and a function from `dy` to `dx` and the gradients of its parameters. No
autograd tape: a gradient is written to a given place (`room`) and used at once, where a tape would allocate the size
of the network in every step. Leading lane axes pass through: `...` stands for `(L,)` or nothing. `dx` of a network's
`first` layer is not needed and not computed.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from imlp.accel.products import Patches, Quads, Strips
from imlp.accel.verbs import apply
from imlp.spec import Spec

Gradients = dict[str, Tensor]
Back = tuple[Tensor | None, Gradients]
Backward = Callable[[Tensor], Back]


def linear(
    x: Tensor, W: Tensor, b: Tensor, *, first: bool = False, room: Tensor | None = None
) -> tuple[Tensor, Backward]:
    """A dense layer, `y = x W^T + b`, with `x (..., N, M_in)`, `W (..., M_out, M_in)`, `b (..., M_out)`.

    The first layer of a stack of lanes, where `x (N, M_in)` is the same for all of them, is one product for all.
    """
    if W.ndim > x.ndim:
        return _linear_for_all(x, W, b, room)
    if W.ndim == 2:
        y, multiply = torch.addmm(b, x, W.T), torch.mm
    else:
        y, multiply = torch.baddbmm(b[:, None], x, W.mT), torch.bmm

    def backward(dy: Tensor) -> Back:
        dx = None if first else multiply(dy, W)
        return dx, {"weight": multiply(dy.mT, x, out=room), "bias": dy.sum(-2)}

    return y, backward


def _linear_for_all(x: Tensor, W: Tensor, b: Tensor, room: Tensor | None) -> tuple[Tensor, Backward]:
    L, M_out, M_in = W.shape
    y = torch.addmm(b.flatten(), x, W.view(L * M_out, M_in).T)  # (N, L M_out)

    def backward(dy: Tensor) -> Back:
        flat = dy.transpose(0, 1).reshape(-1, L * M_out)  # (N, L M_out)
        dW = torch.mm(flat.T, x, out=None if room is None else room.view(L * M_out, M_in))
        return None, {"weight": dW.view(W.shape), "bias": dy.sum(-2)}

    return y.view(-1, L, M_out).transpose(0, 1).contiguous(), backward


def structured(
    x: Tensor,
    spec: Spec,
    w: Tensor,
    b: Tensor,
    *,
    products: Strips | Patches | Quads | None = None,
    first: bool = False,
    record: bool = True,
) -> tuple[Tensor, Backward]:
    """A prior layer: as products if those are given, or else natively. Without `record` there is no backward."""
    if products is not None:
        return products.forward(x, w, b), lambda dy: _named(*products.backward(dy, first))
    if not record:
        return apply(spec, w, b, x), _no_backward
    inputs = (w, b) if first else (w, b, x)

    def run(w: Tensor, b: Tensor, x: Tensor = x) -> Tensor:
        return apply(spec, w, b, x)

    if torch.compiler.is_compiling():  # the compiler knows vjp but not autograd.grad; loading vjp takes seconds
        vjp: Any = torch.func.vjp  # its annotation has a third result, which only has_aux gives
        y, pull = vjp(run, *inputs)
        return y, lambda dy: _named(*pull(dy))
    leaves = [array.detach().requires_grad_() for array in inputs]
    with torch.enable_grad():
        y = run(*leaves)
    return y.detach(), lambda dy: _named(*torch.autograd.grad(y, leaves, dy))


def _named(dw: Tensor, db: Tensor, dx: Tensor | None = None) -> Back:
    return dx, {"weight": dw, "bias": db}


def _no_backward(dy: Tensor) -> Back:
    raise RuntimeError("this layer was run without record")


def layer_norm(
    x: Tensor, features: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Backward]:
    """`y = (x - mean) / sqrt(var + eps)` over each run of `features` numbers; then `weight y + bias`, if learned."""
    runs = x.view(*x.shape[:-1], -1, features)  # (..., N, R, features)
    z, mu, rstd = torch.native_layer_norm(runs, (features,), None, None, eps)
    scale = None if weight is None else weight[..., None, None, :]  # (..., 1, 1, features)
    y = z if scale is None or bias is None else torch.addcmul(bias[..., None, None, :], z, scale)

    def backward(dy: Tensor) -> Back:
        dy = dy.view(z.shape)
        own = {} if scale is None else {"weight": (dy * z).sum((-3, -2)), "bias": dy.sum((-3, -2))}
        d = dy if scale is None else dy * scale
        only_dx = (True, False, False)
        dx = torch.ops.aten.native_layer_norm_backward(d, runs, (features,), mu, rstd, None, None, only_dx)[0]
        return dx.view(x.shape), own

    return y.view(x.shape), backward


def gelu(x: Tensor) -> tuple[Tensor, Backward]:
    """`y = x Phi(x)`, the exact one with erf."""
    return functional.gelu(x), lambda dy: (torch.ops.aten.gelu_backward(dy, x), {})


def mean(x: Tensor, rows: int) -> tuple[Tensor, Backward]:
    """The mean over `rows` runs of features: `(..., N, rows C)` to `(..., N, C)`."""
    runs = x.view(*x.shape[:-1], rows, -1)
    return runs.mean(-2), lambda dy: ((dy[..., None, :] / rows).expand(runs.shape).reshape(x.shape), {})


def cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`-log softmax(logits)[y]` of each image, `(..., N)`; and its gradient at the logits, `softmax - onehot(y)`."""
    log_softmax = logits.log_softmax(-1)
    labels = y.expand(logits.shape[:-1])[..., None]  # (..., N, 1)
    gradient = log_softmax.exp().scatter_add_(-1, labels, logits.new_full((), -1.0).expand(labels.shape))
    return -log_softmax.gather(-1, labels)[..., 0], gradient
