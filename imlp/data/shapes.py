"""`shapes`, the embedded data set: small glyphs at any place, of any colour, on textured backgrounds.

A picture shows five copies of one kind of glyph, and its class is which. That does not depend on where they are, and
is seen in a few pixels around each: a network that knows of locality and translation has little to learn, one that
does not must learn every place by itself, while four other copies disturb it.
Every glyph is its own mirror image, so a horizontal flip changes no label.

The same seed gives the same bytes on every platform and with every version of NumPy: raw 64-bit words of PCG64 (whose
stream is fixed, unlike that of the distributions) and integer arithmetic, no float anywhere.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from imlp.data import store
from imlp.data.dataset import Dataset, ProgressCallback, silent
from imlp.errors import DataError, ImlpError

VERSION = 1  # of the pictures; part of the cache's name
TRAIN_SIZE, TEST_SIZE = 10_000, 2_000
LARGEST = 1_000_000  # images of a part: 3 GB, far beyond what the set is for
SIZE = 32  # pixels per side
BLOCK = 250  # images drawn at a time, each block from its own stream
UNIT = 16  # positions and sizes are in sixteenths of a pixel
RADIUS = 256  # a glyph's own coordinates (u, v) in which it is about so large, u to the right, v down
COPIES = 5  # of the glyph in each picture, each with its own size, colour, place and turn
GLYPH_RADIUS = (3 * UNIT, 9 * UNIT // 2)
STROKE_RADIUS = (UNIT, 2 * UNIT)
DISTRACTORS = 4
CELL = 8  # pixels between the points of the background's coarse noise
NOISE = 14  # levels of noise in every pixel, up and down

# Cosine and sine of -20 to 20 degrees in steps of 5, times 1024
TURNS = np.array(
    [(962, -350), (989, -265), (1008, -178), (1020, -89), (1024, 0), (1020, 89), (1008, 178), (989, 265), (962, 350)],
    dtype=np.int32,
)
DIRECTIONS = np.array([(1024, 0), (724, 724), (0, 1024), (724, -724)], dtype=np.int32)

Mask = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _band(distance: np.ndarray, least: int, most: int) -> np.ndarray:
    return (distance > least) & (distance < most)


# All cover about half of their circle: seen from afar they are one and the same blob.
GLYPHS: dict[str, Mask] = {
    "ring": lambda u, v: _band(u * u + v * v, 130**2, 245**2),
    "frame": lambda u, v: _band(np.maximum(abs(u), abs(v)), 100, 200),
    "diamond": lambda u, v: _band(abs(u) + abs(v), 140, 280),
    "plus": lambda u, v: (np.minimum(abs(u), abs(v)) < 70) & (np.maximum(abs(u), abs(v)) < 240),
    "cross": lambda u, v: GLYPHS["plus"]((u + v) * 5 // 7, (u - v) * 5 // 7),
    "bars": lambda u, v: (abs(u) < 210) & ((abs(v) < 42) | _band(abs(v), 120, 204)),
    "rails": lambda u, v: GLYPHS["bars"](v, u),
    "hourglass": lambda u, v: (10 * abs(u) < 11 * abs(v)) & (abs(v) < 195),
    "bow tie": lambda u, v: GLYPHS["hourglass"](v, u),
    # The five black squares of three by three
    "checker": lambda u, v: (np.maximum(abs(u), abs(v)) < 210) & ((abs(u) < 70) == (abs(v) < 70)),
}


def dataset(
    root: Path, train_size: int | None, test_size: int | None, *, seed: int, progress: ProgressCallback = silent
) -> Dataset:
    """From the cache under `root`, otherwise drawn and cached there. A folder that is read-only does no harm."""
    sizes = TRAIN_SIZE if train_size is None else train_size, TEST_SIZE if test_size is None else test_size
    for name, size in zip(("--train-size", "--test-size"), sizes, strict=True):
        if not 1 <= size <= LARGEST:
            raise DataError(f"{name} is {size}", f"give 1 to {LARGEST:,}")
    if seed < 0:
        raise DataError(f"the seed is {seed}", "give 0 or more")
    cached = cache_file(root, *sizes, seed=seed)
    if cached.is_file():
        try:
            return _dataset(store.read(cached))
        except (ImlpError, KeyError):
            pass  # damaged: it is drawn again, and written over
    (x, y), (x_test, y_test) = (draw(n, seed=seed, stream=k, progress=progress) for k, n in enumerate(sizes))
    arrays = {"x": x, "y": y, "x_test": x_test, "y_test": y_test}
    with suppress(ImlpError):  # read-only home folders and full disks are common; drawing takes seconds
        store.save(cached, arrays)
    return _dataset(arrays)


def cache_file(root: Path, train_size: int, test_size: int, *, seed: int) -> Path:
    return root / f"shapes-v{VERSION}-{train_size}-{test_size}-seed{seed}.npz"


def _dataset(arrays: dict[str, np.ndarray]) -> Dataset:
    return Dataset("shapes", arrays["x"], arrays["y"], arrays["x_test"], arrays["y_test"], tuple(GLYPHS))


def draw(n: int, *, seed: int, stream: int, progress: ProgressCallback = silent) -> tuple[np.ndarray, np.ndarray]:
    """The first `n` images `(n, 3, 32, 32)` and labels `(n,)` of a stream (0: training, 1: test).

    >>> x, y = draw(2, seed=0, stream=0)
    >>> x.shape, y.shape
    ((2, 3, 32, 32), (2,))
    """
    x, y = np.empty((n, 3, SIZE, SIZE), dtype=np.uint8), np.empty(n, dtype=np.int64)
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        kept = rows.stop - rows.start
        dice = _Dice([seed, stream, start // BLOCK])
        labels = np.argsort(dice.below(2**31, BLOCK), kind="stable") % len(GLYPHS)  # each class as often as any other
        canvas = _background(dice)
        for _ in range(DISTRACTORS):
            _stroke(canvas, dice)
        for _ in range(COPIES):
            _glyph(canvas, labels, dice)
        canvas += dice.between(-NOISE, NOISE, *canvas.shape)
        x[rows], y[rows] = np.clip(canvas, 0, 255).astype(np.uint8)[:kept], labels[:kept]
        progress("drawing shapes", rows.stop, n)
    return x, y


class _Dice:
    """Whole numbers from the raw words of PCG64."""

    def __init__(self, seed: list[int]):
        self._words = np.random.PCG64(np.random.SeedSequence(seed)).random_raw

    def below(self, n: int | np.ndarray, *shape: int) -> np.ndarray:
        """Numbers from 0 to n - 1: the high half of a word, scaled."""
        high = self._words(int(np.prod(shape))).reshape(shape) >> np.uint64(32)
        return ((high * np.asarray(n).astype(np.uint64)) >> np.uint64(32)).astype(np.int32)

    def between(self, low: int, high: int, *shape: int) -> np.ndarray:
        """Numbers from low to high, both included."""
        return low + self.below(high - low + 1, *shape)


def _background(dice: _Dice) -> np.ndarray:
    """A dark colour and coarse noise drawn out bilinearly: `(B, 3, SIZE, SIZE)`."""
    points = SIZE // CELL + 1
    coarse = dice.between(-36, 36, BLOCK, 3, points, points)
    weights = np.zeros((SIZE, points), dtype=np.int32)
    at = np.arange(SIZE)
    weights[at, at // CELL] = CELL - at % CELL
    weights[at, at // CELL + 1] = at % CELL
    return weights @ coarse @ weights.T // CELL**2 + dice.between(30, 100, BLOCK, 3, 1, 1)


def _glyph(canvas: np.ndarray, labels: np.ndarray, dice: _Dice) -> None:
    """The one that the label names, slightly turned."""
    turn = TURNS[dice.below(len(TURNS), BLOCK)]
    place, u, v = _own_coordinates(dice, GLYPH_RADIUS, turn)
    inside = np.empty(u.shape, dtype=bool)
    for label, mask in enumerate(GLYPHS.values()):
        of_class = labels == label
        inside[of_class] = mask(u[of_class], v[of_class])
    _paint(canvas, place, inside, dice)


def _stroke(canvas: np.ndarray, dice: _Dice) -> None:
    """A distractor: a short stroke in any of four directions, smaller than any glyph."""
    place, u, v = _own_coordinates(dice, STROKE_RADIUS, DIRECTIONS[dice.below(len(DIRECTIONS), BLOCK)])
    _paint(canvas, place, (abs(u) < RADIUS) & (abs(v) < 100), dice)


Place = tuple[np.ndarray, np.ndarray]  # the rows (B, K, 1) and the columns (B, 1, K) of a window of each picture


def _own_coordinates(dice: _Dice, radii: tuple[int, int], turn: np.ndarray) -> tuple[Place, np.ndarray, np.ndarray]:
    """Random places and sizes; there a window that holds the glyph, and `(u, v)` at two by two points in each pixel."""
    radius = dice.between(*radii, BLOCK)
    margin = radius + UNIT
    centres = margin + dice.below(SIZE * UNIT - 2 * margin, 2, BLOCK)  # (2, B): y, x
    window = 2 * (radii[1] // UNIT + 2)
    starts = np.clip(centres // UNIT - window // 2, 0, SIZE - window)
    points = (np.arange(2 * window, dtype=np.int32) * 2 + 1) * UNIT // 4
    dy, dx = (starts * UNIT - centres)[:, :, None] + points  # (B, 2 K) each
    cos, sin = turn[:, 0, None, None], turn[:, 1, None, None]
    scale = (4 * radius)[:, None, None]  # RADIUS / (1024 radius), with 256 / 1024 cancelled
    dy, dx = dy[:, :, None], dx[:, None, :]
    rows, columns = starts[:, :, None] + np.arange(window)
    return (rows[:, :, None], columns[:, None, :]), (dx * cos + dy * sin) // scale, (dy * cos - dx * sin) // scale


def _paint(canvas: np.ndarray, place: Place, inside: np.ndarray, dice: _Dice) -> None:
    """Give each pixel the colour by the share of its four points that are inside."""
    b, k = len(inside), inside.shape[1] // 2
    share = inside.reshape(b, k, 2, k, 2).sum(axis=(2, 4), dtype=np.int32)[..., None]
    at = np.arange(b)[:, None, None], slice(None), *place
    colour = dice.between(110, 255, b, 3)  # any hue that is brighter than a background
    strongest = np.arange(b), dice.below(3, b)
    colour[strongest] = np.maximum(colour[strongest], 220)
    canvas[at] += (colour[:, None, None, :] - canvas[at]) * share // 4
