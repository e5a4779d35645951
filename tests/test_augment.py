"""Crops and flips: both backends against torchvision for the same offsets, and our draws against torchvision's."""

import numpy as np
import pytest
from conftest import needs
from hypothesis import given, settings
from hypothesis import strategies as st

from imlp import augment
from imlp.augment import Draw, Range
from imlp.reference import augment as reference

needs("accel")

import torch  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional  # noqa: E402

from imlp.accel import augment as accel  # noqa: E402

MEAN, STD = np.array([0.5, 0.4, 0.3]), np.array([0.2, 0.25, 0.3])
IMAGE = (3, 12, 10)  # not square, so that rows and columns cannot be mixed up
KINDS = pytest.mark.parametrize("kind", augment.AUGMENTATIONS)


def images(n: int, image: tuple[int, int, int] = IMAGE, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *image), dtype=np.uint8)


def one(kind: str, top: int, left: int, height: int, width: int, flip: bool) -> Draw:
    return Draw(kind, *(np.array([value]) for value in (top, left, height, width, flip)))


def both(x: np.ndarray, draw: Draw) -> list[np.ndarray]:
    """The batch of the first images by each backend, in float64."""
    index = np.arange(len(draw.flip))
    theirs = accel.batch(torch.from_numpy(x), index, draw, MEAN, STD, dtype=torch.float64)
    return [reference.batch(x, index, draw, MEAN, STD), theirs.numpy()]


def standardised(image: "torch.Tensor") -> "torch.Tensor":
    return functional.normalize(image.double() / 255, MEAN.tolist(), STD.tolist())


@settings(max_examples=60, deadline=None)
@given(top=st.integers(-4, 4), left=st.integers(-4, 4), flip=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_pad_is_torchvisions_crop_of_the_padded_picture(top: int, left: int, flip: bool, seed: int) -> None:
    x = images(1, seed=seed)
    _, h, w = IMAGE

    def crop(image: "torch.Tensor") -> "torch.Tensor":
        cropped = functional.crop(functional.pad(image, [4, 4, 4, 4]), top + 4, left + 4, h, w)
        return functional.horizontal_flip(cropped) if flip else cropped

    image = torch.from_numpy(x[0])
    for kind, expected in {"pad": standardised(crop(image)), "pad-mean": crop(standardised(image))}.items():
        for ours in both(x, one(kind, top, left, h, w, flip)):
            np.testing.assert_allclose(ours, expected.reshape(1, -1).numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("fill", [(0.5, 0.4, 0.3), (0.1, 0.9, 0.0)])
def test_the_colour_outside_can_be_given(fill: tuple[float, ...]) -> None:
    x, (_, h, w) = images(1), IMAGE
    picture = torch.from_numpy(x[0]).double() / 255
    padded = torch.tensor(fill, dtype=torch.float64)[:, None, None].repeat(1, h + 8, w + 8)
    padded[:, 4:-4, 4:-4] = picture
    expected = functional.crop(padded, 4 - 3, 4 + 2, h, w).reshape(1, -1).numpy()
    zeros, ones = np.zeros(3), np.ones(3)
    draw = one("pad-mean", -3, 2, h, w, False)
    ours = accel.batch(torch.from_numpy(x), [0], draw, zeros, ones, fill=fill, dtype=torch.float64).numpy()
    for found in (ours, reference.batch(x, [0], draw, zeros, ones, fill=fill)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[int, int, int, int]:
    _, h, w = IMAGE
    height, width = draw(st.integers(1, h)), draw(st.integers(1, w))
    return draw(st.integers(0, h - height)), draw(st.integers(0, w - width)), height, width


@settings(max_examples=100, deadline=None)
@given(box=boxes(), flip=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_resized_is_torchvisions_resized_crop(box: tuple[int, int, int, int], flip: bool, seed: int) -> None:
    x = images(1, seed=seed)
    cut = functional.resized_crop(torch.from_numpy(x[0]).double(), *box, size=list(IMAGE[1:]), antialias=False)
    expected = standardised(functional.horizontal_flip(cut) if flip else cut)
    for ours in both(x, one("resized", *box, flip)):
        np.testing.assert_allclose(ours, expected.reshape(1, -1).numpy(), rtol=0, atol=1e-12)


@KINDS
@pytest.mark.parametrize("image", [(3, 32, 32), (3, 7, 20)])
def test_backends_agree_on_whole_batches(kind: str, image: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    x, index = images(300, image), rng.permutation(300)[:128]
    draw = augment.draw(kind, 128, image, rng=rng)
    expected = reference.batch(x, index, draw, MEAN, STD)
    assert expected.shape == (128, np.prod(image))
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        ours = accel.batch(torch.from_numpy(x), torch.from_numpy(index), draw, MEAN, STD, dtype=dtype)
        assert ours.dtype == dtype
        assert ours.is_contiguous()
        np.testing.assert_allclose(ours.double().numpy(), expected, rtol=0, atol=tolerance)


def test_without_a_draw_images_are_gathered_and_standardised() -> None:
    x, index = images(9), [8, 0, 8]
    expected = ((x[index] / 255 - MEAN[:, None, None]) / STD[:, None, None]).reshape(3, -1)
    np.testing.assert_allclose(reference.batch(x, index, None, MEAN, STD), expected, rtol=0, atol=1e-12)
    ours = accel.batch(torch.from_numpy(x), index, None, MEAN, STD, dtype=torch.float64)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=0, atol=1e-12)
    same = augment.draw("none", 3, IMAGE, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(
        reference.batch(x, index, same, MEAN, STD), reference.batch(x, index, None, MEAN, STD)
    )


@pytest.mark.parametrize("image", [(3, 32, 32), (3, 16, 64)])
@pytest.mark.parametrize(("area", "aspect"), [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.4, 1.0), (1.0, 1.0))])
def test_resized_draws_as_torchvision_draws(image: tuple[int, int, int], area: Range, aspect: Range) -> None:
    """Not the same numbers, but the same distribution: means of what RandomResizedCrop draws."""
    n, (_, h, w) = 4000, image
    draw = augment.draw("resized", n, image, rng=np.random.default_rng(0), area=area, aspect=aspect)
    assert (draw.top >= 0).all()
    assert (draw.left >= 0).all()
    assert (draw.top + draw.height <= h).all()
    assert (draw.left + draw.width <= w).all()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transform, picture = v2.RandomResizedCrop((h, w), scale=area, ratio=aspect), torch.zeros(image)
        theirs = [transform.make_params([picture]) for _ in range(n)]
    for name in ("top", "left", "height", "width"):
        ours, their = getattr(draw, name), np.array([params[name] for params in theirs])
        error = np.hypot(ours.std(), their.std()) / np.sqrt(n)
        assert abs(ours.mean() - their.mean()) <= 5 * error, name


@pytest.mark.gpu
@KINDS
def test_the_host_does_not_wait_for_the_device(kind: str) -> None:
    x = images(300)
    draw = augment.draw(kind, 128, IMAGE, rng=np.random.default_rng(0))
    index = np.arange(128)
    on_device = torch.from_numpy(x).cuda()
    accel.batch(on_device, index, draw, MEAN, STD)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ours = accel.batch(on_device, index, draw, MEAN, STD, dtype=torch.float64)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    np.testing.assert_allclose(ours.cpu().numpy(), reference.batch(x, index, draw, MEAN, STD), rtol=0, atol=1e-12)
