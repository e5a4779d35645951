"""Nouns as a user would write them: derived from `Spec`, with nothing but what a noun has to say."""

from dataclasses import dataclass
from math import prod

import numpy as np
from hypothesis import strategies as st
from scipy import sparse
from strategies import convs, permutations_of

from imlp.spec import Chain, Conv, Parameter, Shared, Spec, Transpose


@dataclass(frozen=True)
class Circulant(Spec):
    """Output `i` reads inputs `i`, `i + 1`, ..., with wrap-around; the weight is a vector, and there is no bias."""

    size: int
    taps: int
    bias_shape = None

    @property
    def matrix_shape(self):
        return self.size, self.size

    @property
    def parameters(self):
        return {"weight": Parameter((self.taps,), fan_in=self.taps)}

    def matrix(self, weight):
        i, k = np.indices((self.size, self.taps))
        return sparse.csr_array((weight[k].ravel(), (i.ravel(), (i + k).ravel() % self.size)), shape=self.matrix_shape)


@dataclass(frozen=True)
class Additive(Spec):
    """`W[i, j] = rows[i] + columns[j]`: two parameters that share each entry, one bias for each two outputs."""

    m_out: int
    m_in: int

    @property
    def matrix_shape(self):
        return self.m_out, self.m_in

    @property
    def parameters(self):
        return {"rows": Parameter((self.m_out,), self.m_in), "columns": Parameter((1, self.m_in), self.m_in)}

    @property
    def bias_shape(self):
        return (-(-self.m_out // 2),)

    @property
    def bias_index(self):
        return [i // 2 for i in range(self.m_out)]

    def matrix(self, rows, columns):
        return rows[:, None] + columns


@dataclass(frozen=True)
class Signed(Spec):
    """A number of its own for each row, times a fixed pattern of signs and thirds; a parameter called `scale`."""

    m_out: int
    m_in: int

    @property
    def matrix_shape(self):
        return self.m_out, self.m_in

    @property
    def parameters(self):
        return {"scale": Parameter((self.m_out, 1), fan_in=self.m_in)}

    def matrix(self, scale):
        i, j = np.indices(self.matrix_shape)
        return scale * ((i + 2 * j) % 3 - 1) / 3


@dataclass(frozen=True)
class Blur(Spec):
    """The mean of an input and the one before it: no parameters, and not a permutation."""

    size: int

    @property
    def matrix_shape(self):
        return self.size, self.size

    def matrix(self):
        return 2 / 3 * np.eye(self.size) + np.eye(self.size, k=-1) / 3


@dataclass(frozen=True)
class LowRank(Spec):
    """`left right`: not linear in its parameters."""

    m_out: int
    m_in: int
    inner: int
    linear = False

    @property
    def matrix_shape(self):
        return self.m_out, self.m_in

    @property
    def parameters(self):
        left, right = Parameter((self.m_out, self.inner), self.inner), Parameter((self.inner, self.m_in), self.m_in)
        return {"left": left, "right": right}

    def matrix(self, left, right):
        return left @ right


OUTSIDE: list[Spec] = [
    Circulant(6, 3),
    Circulant(30, 2),  # sparse enough for a sparse product
    Additive(5, 4),
    Signed(4, 7),
    Blur(6),
    Chain(Transpose(2, 3), Circulant(6, 2), Transpose(3, 2)),
    Chain(Blur(6), Shared(2, 3, 2), Blur(4)),
    Chain(Conv((1, 3, 4), 2, kernel=2), Blur(12)),
    Chain(Blur(4), Additive(6, 4), Transpose(2, 3)),
]
NOT_LINEAR: list[Spec] = [LowRank(5, 4, 2), Chain(Transpose(2, 2), LowRank(3, 4, 2))]

small = st.integers(1, 6)


@st.composite
def outside(draw: st.DrawFn) -> Spec:
    """One of these nouns, alone or between permutations and blurs; or a known noun before or after a blur."""
    core = draw(
        st.one_of(
            st.builds(lambda taps, more: Circulant(taps + more, taps), small, small),
            st.builds(Additive, small, small),
            st.builds(Signed, small, small),
            st.builds(Blur, small),
            convs().filter(lambda conv: prod(conv.matrix_shape) < 2000 and conv.rank),
        )
    )
    m_out, m_in = core.matrix_shape
    before = draw(st.sampled_from([(), (Blur(m_in),), (draw(permutations_of(m_in)),)]))
    after = draw(st.sampled_from([(), (Blur(m_out),), (draw(permutations_of(m_out)),)]))
    if isinstance(core, Conv) and not (before or after):
        after = (Blur(m_out),)
    return Chain(*before, core, *after) if before or after else core
