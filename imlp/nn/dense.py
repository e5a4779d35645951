"""A dense layer that knows which structured layer it can be moved towards."""

from math import prod

import numpy as np
import torch
import torch.fx
from torch import Tensor, nn

from imlp import checks
from imlp.accel import expand_bias, interpolate
from imlp.errors import ArrayError, ModuleError
from imlp.spec import Conv, Shape, Spec

LARGE, ALIGNMENT = 2**20, 64  # numbers; bytes
NUMPY_TYPES = {torch.float32: np.float32, torch.float64: np.float64}


def zeros(m_out: int, m_in: int, *, dtype: torch.dtype | None, device: torch.device | str | None) -> Tensor:
    """A matrix of zeros. A large one on the CPU is in NumPy's memory, which comes in huge pages where there are any.

    To map the pages of a large matrix one by one takes longer than to fill it.
    """
    kind = NUMPY_TYPES.get(dtype or torch.get_default_dtype())
    place = torch.device(device or torch.get_default_device())
    if kind is None or place.type != "cpu" or m_out * m_in < LARGE:
        return torch.zeros(m_out, m_in, dtype=dtype, device=device)
    room = np.zeros(m_out * m_in + ALIGNMENT // np.dtype(kind).itemsize, kind)
    start = -room.ctypes.data % ALIGNMENT // room.itemsize  # where products are fastest
    return torch.from_numpy(room[start : start + m_out * m_in].reshape(m_out, m_in))


class Dense(nn.Module):
    """`y = x W^T + b` with `W (M_out, M_in)`; tensors keep the shapes that they have in the structured layer.

    `in_shape` and `out_shape` are those of one image, without the batch; unless given, those of a convolution, or one
    flat axis.

    >>> layer = Dense(Conv((3, 8, 8), out_channels=4, kernel=3, padding=1))
    >>> layer.weight.shape, layer(torch.zeros(5, 3, 8, 8)).shape
    (torch.Size([256, 192]), torch.Size([5, 4, 8, 8]))
    """

    bias: Tensor | None

    def __init__(
        self,
        spec: Spec,
        in_shape: Shape | None = None,
        out_shape: Shape | None = None,
        *,
        bias: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        checks.is_spec(spec)
        m_out, m_in = spec.matrix_shape
        shapes = (spec.in_shape, spec.out_shape) if isinstance(spec, Conv) else ((m_in,), (m_out,))
        self.spec = spec
        self.in_shape = tuple(shapes[0] if in_shape is None else in_shape)
        self.out_shape = tuple(shapes[1] if out_shape is None else out_shape)
        for name, shape, size in (("in_shape", self.in_shape, m_in), ("out_shape", self.out_shape, m_out)):
            if prod(shape) != size:
                raise ModuleError(f"{name} {shape} has {prod(shape)} numbers", f"{spec} has {size}")
        self.weight = nn.Parameter(zeros(m_out, m_in, dtype=dtype, device=device))
        self.register_parameter("bias", nn.Parameter(torch.empty(m_out, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw as `nn.Linear` does: uniform within `1 / sqrt(M_in)`, from torch's own generator unless one is given."""
        bound = self.weight.shape[1] ** -0.5
        for parameter in self.parameters(recurse=False):
            parameter.uniform_(-bound, bound, generator=generator)

    @classmethod
    @torch.no_grad()
    def of_prior(
        cls,
        spec: Spec,
        weight: Tensor,
        bias: Tensor | None,
        in_shape: Shape | None = None,
        out_shape: Shape | None = None,
    ) -> "Dense":
        """The same function as the structured layer: `W = matrix(spec, weight)`, and its bias at every place."""
        made = cls(spec, in_shape, out_shape, bias=bias is not None, device="meta")
        W = zeros(*spec.matrix_shape, dtype=weight.dtype, device=weight.device)
        made.weight = nn.Parameter(interpolate(W, spec, weight, 1.0, add=True))
        made.bias = None if bias is None else nn.Parameter(expand_bias(spec, bias))
        return made

    def forward(self, input: Tensor) -> Tensor:
        """`input` can be given by name, as to torch's layers; `torch.jit.script` can read this."""
        if not torch.jit.is_scripting() and not torch.jit.is_tracing():
            _check_input(input, self.in_shape)
        y = nn.functional.linear(input.flatten(-len(self.in_shape)), self.weight, self.bias)
        return y.unflatten(-1, self.out_shape)

    def extra_repr(self) -> str:
        return f"{self.spec}, {self.in_shape} -> {self.out_shape}, bias={self.bias is not None}"


@torch.fx.wrap  # one step of a traced graph: a proxy has no shape to compare
def _check_input(x: Tensor, in_shape: Shape) -> None:
    if x.shape[-len(in_shape) :] != in_shape:
        raise ArrayError(f"input of shape {tuple(x.shape)} for Dense", f"it must end with {in_shape}")
