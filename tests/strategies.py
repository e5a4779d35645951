"""Geometry for property tests, and the fixed list of specs that every verb is tested on."""

from hypothesis import strategies as st

from imlp.kinds import KINDS, make
from imlp.spec import Chain, Conv, Local, Patchify, Shared, Spec, Transpose

SPECS: list[Spec] = [
    Conv((3, 8, 8), 4, kernel=3, stride=1, padding=1),
    Conv((2, 7, 5), 3, kernel=(3, 2), stride=(2, 1), padding=(1, 0)),
    Conv((4, 9, 6), 6, kernel=(2, 3), stride=(1, 2), padding=(2, 1), dilation=(3, 2), groups=2),
    Conv((3, 5, 5), 3, kernel=3, padding=1, groups=3),
    Conv((2, 1, 1), 3, kernel=3, padding=1),
    Conv((8, 6, 3), 2, kernel=(3, 1), dilation=(2, 1)),  # enough channels to change how it is split
    Conv((8, 3, 3), 2, kernel=3, stride=2, padding=1),
    Conv((16, 4, 2), 4, kernel=3, padding=1, groups=2),
    Conv((1, 2, 2), 2, kernel=3, stride=2, padding=1),
    Conv((1, 3, 4), 2, kernel=1, stride=3, padding=4),
    Conv((1, 1, 1), 1, kernel=(2, 1), padding=(2, 0), dilation=(3, 1)),  # no tap ever meets the image
    Local((2, 7, 5), 3, kernel=(3, 2), stride=(2, 1), padding=(1, 0)),
    Local((4, 9, 6), 6, kernel=(2, 3), stride=(1, 2), padding=(2, 1), dilation=(3, 2), groups=2),
    Local((8, 4, 4), 2, kernel=3, padding=1),  # enough channels to change how it is split
    Local((2, 1, 1), 3, kernel=3, padding=1),
    Local((1, 1, 1), 1, kernel=(2, 1), padding=(2, 0), dilation=(3, 1)),  # no tap ever meets the image
    Patchify(3, 8, 4, patch=2),
    Patchify(1, 3, 3, patch=3),
    Transpose(3, 5),
    Transpose(1, 1),
    Shared(3, 4, 2),
    Shared(1, 1, 1),
    Chain(Patchify(2, 4, 6, patch=2), Shared(6, 8, 3)),
    Chain(Transpose(3, 4), Shared(4, 3, 5)),
    Chain(Shared(4, 3, 5), Transpose(4, 5)),
    Chain(Transpose(4, 3), Shared(3, 4, 4), Transpose(3, 4)),
    Chain(Patchify(1, 4, 4, patch=2), Transpose(4, 4)),
    Chain(Conv((1, 4, 6), 2, kernel=3, padding=1), Patchify(2, 4, 6, patch=2)),
    Chain(Patchify(1, 4, 4, patch=2), Local((2, 2, 4), 2, kernel=2, padding=1), Transpose(6, 5)),
    Chain(Transpose(4, 6), Transpose(8, 3)),  # digits that do not nest
    Chain(Transpose(4, 6), Transpose(8, 3), Shared(3, 8, 2)),
    Chain(Transpose(4, 9), Conv((1, 6, 6), 2, kernel=3, stride=2, padding=1), Transpose(2, 9)),
]
PAPER: list[Spec] = [make(kind) for kind in KINDS]

sizes = st.integers(1, 7)


@st.composite
def convs(draw: st.DrawFn) -> Conv:
    """Rectangles, strides, paddings, dilations, groups and images of one pixel."""
    groups = draw(st.integers(1, 3))
    height, width = draw(sizes), draw(sizes)
    kernel, stride = (
        (draw(st.integers(1, 4)), draw(st.integers(1, 4))),
        (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
    )
    dilation = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    least = [
        max(0, -((size - d * (k - 1) - 1) // 2)) for size, k, d in zip((height, width), kernel, dilation, strict=True)
    ]
    padding = (draw(st.integers(least[0], least[0] + 3)), draw(st.integers(least[1], least[1] + 3)))
    c, o = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    return Conv((c, height, width), o, kernel, stride, padding, dilation, groups)


def locals_() -> st.SearchStrategy[Local]:
    """With the geometries of convolutions."""
    fields = ("in_shape", "out_channels", "kernel", "stride", "padding", "dilation", "groups")
    return convs().map(lambda conv: Local(**{name: getattr(conv, name) for name in fields}))


@st.composite
def patchifies(draw: st.DrawFn) -> Patchify:
    patch = draw(st.integers(1, 3))
    return Patchify(draw(st.integers(1, 3)), patch * draw(st.integers(1, 3)), patch * draw(st.integers(1, 3)), patch)


transposes = st.builds(Transpose, sizes, sizes)
shareds = st.builds(Shared, sizes, sizes, sizes)


@st.composite
def permutations_of(draw: st.DrawFn, size: int) -> Spec:
    """A permutation of `size` numbers: any way of reading them as a matrix or an image."""
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    a = draw(st.sampled_from(divisors))
    if draw(st.booleans()):
        return Transpose(a, size // a)
    b = draw(st.sampled_from([d for d in divisors if size // a % d == 0]))
    height, width = b, size // a // b
    patch = draw(st.sampled_from([p for p in range(1, min(height, width) + 1) if height % p == 0 and width % p == 0]))
    return Patchify(a, height, width, patch)


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Up to two permutations on each side of a layer with parameters, whether or not their digits nest."""
    core = draw(st.one_of(convs(), locals_(), shareds))
    before = [draw(permutations_of(core.matrix_shape[1])) for _ in range(draw(st.integers(0, 2)))]
    after = [draw(permutations_of(core.matrix_shape[0])) for _ in range(draw(st.integers(0, 2)))]
    return Chain(*before, core, *after)


specs = st.one_of(convs(), locals_(), patchifies(), transposes, shareds, chains())
