"""The draws of crops and flips, which need only NumPy."""

import numpy as np
import pytest

from imlp import augment
from imlp.errors import DataError

IMAGE = (3, 12, 10)


def test_draws_come_from_the_generator_alone() -> None:
    one, same, other = (augment.draw("resized", 50, IMAGE, rng=np.random.default_rng(seed)) for seed in (3, 3, 4))
    for name in ("top", "left", "height", "width", "flip"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert not np.array_equal(one.height, other.height)


@pytest.mark.parametrize("kind", ["pad", "pad-mean"])
def test_pad_draws_every_shift_and_flips_half(kind: str) -> None:
    draw = augment.draw(kind, 9000, (3, 32, 32), rng=np.random.default_rng(0))
    for offsets in (draw.top, draw.left):
        counts = np.bincount(offsets + 4, minlength=9)
        assert len(counts) == 9
        assert counts.min() > 850
    assert abs(draw.flip.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(draw.top, draw.left)[0, 1]) < 0.05
    assert (draw.height == 32).all()


def test_none_draws_the_whole_picture() -> None:
    draw = augment.draw("none", 5, IMAGE, rng=np.random.default_rng(0))
    assert not draw.flip.any()
    assert (draw.height == 12).all()
    assert (draw.width == 10).all()
    assert not draw.top.any()


def test_unknown_kind() -> None:
    with pytest.raises(DataError, match="unknown augmentation: 'mixup'; the known ones are pad, pad-mean"):
        augment.draw("mixup", 1, IMAGE, rng=np.random.default_rng(0))
