"""Draws a Pathfinder image: two long dashed snakes, distractors and two discs.

Follows the published description of the generator by Kim, Linsley, Thakkar and Serre (2020), with the parameters of
Long Range Arena (Tay et al., 2021). docs/design/0013-pathfinder.md lists the differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from ....errors import PyramidError
from .settings import PathfinderSettings
from .stamps import Stamps, stamps_of

Point = tuple[float, float]  # (row, column) in pixels; integers are the middle of a pixel
PAIR_TRIES = 2000
DISTRACTOR_TRIES = 5
_FREE_AT_LEAST = 0.01  # of the window, for another distractor


@dataclass(frozen=True)
class Dash:
    """A dash, in the direction in which its snake grew."""

    tail: Point
    head: Point


@dataclass(frozen=True)
class Snake:
    """Dashes, one after the other."""

    dashes: tuple[Dash, ...]

    @property
    def tips(self) -> tuple[Point, Point]:
        """Both ends: where the first dash begins, and where the last one ends."""
        return self.dashes[0].tail, self.dashes[-1].head


@dataclass(frozen=True, eq=False)
class Drawing:
    """An image and the shapes in it.

    Attributes:
        image: (window, window), 8-bit grey.
        label: 1 if the discs are at both ends of one long snake, 0 if each is at an end of another.
        snakes: The two long ones.
        distractors: The short ones.
        discs: The middles of the two discs.
    """

    image: NDArray[np.uint8]
    label: int
    snakes: tuple[Snake, Snake]
    distractors: tuple[Snake, ...]
    discs: tuple[Point, Point]


def draw_pathfinder(settings: PathfinderSettings, seed: int, index: int) -> Drawing:
    """Image number `index` of a seed: the same in any order, in any process, however many there are.

    Example:
        >>> drawing = draw_pathfinder(PathfinderSettings(), seed=0, index=0)
        >>> drawing.image.shape, drawing.image.dtype.name, len(drawing.snakes[0].dashes)
        ((32, 32), 'uint8', 14)
        >>> sum(disc in drawing.snakes[0].tips for disc in drawing.discs) in ((1,), (0, 2))[drawing.label]
        True
    """
    stamps, random = stamps_of(settings), Random(f"pathfinder:{seed}:{index}")
    label, origin = _below(2, random), _below(2, random)
    pair = _long_snakes(stamps, random)
    distractors = _distractors(stamps, stamps.border | pair[0].taken | pair[1].taken, random)
    snakes = (pair[0].finished(), pair[1].finished())
    terminal = origin if label else 1 - origin
    discs = (snakes[origin].tips[0], snakes[terminal].tips[1])
    image = _render(stamps, pair, distractors, discs)
    return Drawing(image, label, snakes, tuple(snake.finished() for snake in distractors), discs)


# ---- snakes ----


@dataclass
class _Growing:
    """A snake that grows. Its last dash is stored apart, because the next one may come near it.

    Attributes:
        stamps: Of the settings.
        anchors: (row, column, degree) of the stamp of each dash.
        dashes: Their ends.
        degree: The direction of the last dash.
        pivot: The point in the middle of the gap before the last dash.
        body: Bits that all dashes but the last take.
        last: Bits that the last dash takes.
    """

    stamps: Stamps
    anchors: list[tuple[int, int, int]]
    dashes: list[Dash]
    degree: int
    pivot: Point
    last: int
    body: int = 0

    @classmethod
    def seed(cls, stamps: Stamps, row: int, column: int, degree: int) -> _Growing:
        """A snake of one dash that begins at this pixel."""
        down, right = stamps.directions[degree]
        length, margin = stamps.settings.dash_length, stamps.settings.dash_margin
        back = (degree + 180) % 360  # stamps run back from their anchor
        return cls(
            stamps=stamps,
            anchors=[(row, column, back)],
            dashes=[Dash((row, column), (row + length * down, column + length * right))],
            degree=degree,
            pivot=(row - margin * down, column - margin * right),
            last=stamps.masks[back] << stamps.place(row, column),
        )

    @property
    def taken(self) -> int:
        """Bits that the whole snake takes."""
        return self.body | self.last

    def finished(self) -> Snake:
        """The snake as it was drawn."""
        return Snake(tuple(self.dashes))

    def grow(self, others: int, random: Random) -> bool:
        """Adds a dash that overlaps neither `others` nor the snake's body; False if there is no room."""
        stamps, settings = self.stamps, self.stamps.settings
        window, taken = settings.window, others | self.body
        down, right = stamps.directions[self.degree]
        step = settings.dash_length + 2 * settings.dash_margin
        pivot = (self.pivot[0] + step * down, self.pivot[1] + step * right)
        pivot_row, pivot_column, turns = stamps.turns(*pivot, self.degree)
        total, ways = 0.0, []
        for turn in turns:
            row, column = pivot_row + turn.row, pivot_column + turn.column
            if 0 <= row < window and 0 <= column < window:
                mask = stamps.masks[turn.degree] << stamps.place(row, column)
                if not mask & taken:
                    total += turn.weight
                    ways.append((total, row, column, turn.degree, mask))
        if not ways:
            return False
        chosen = random.random() * total
        _, row, column, degree, mask = next(way for way in ways if way[0] > chosen or way is ways[-1])
        self._append(row, column, degree, mask, pivot)
        return True

    def _append(self, row: int, column: int, degree: int, mask: int, pivot: Point) -> None:
        down, right = self.stamps.directions[degree]
        length = self.stamps.settings.dash_length
        self.anchors.append((row, column, degree))
        self.dashes.append(Dash((row - length * down, column - length * right), (row, column)))
        self.degree, self.pivot = degree, pivot
        self.body, self.last = self.body | self.last, mask


def _long_snakes(stamps: Stamps, random: Random) -> tuple[_Growing, _Growing]:
    for _ in range(PAIR_TRIES):
        pair = _try_pair(stamps, random)
        if pair is not None:
            return pair
    settings = stamps.settings
    raise PyramidError(
        f"no room for two snakes in {PAIR_TRIES} tries: contour_length {settings.contour_length} with dash_length "
        f"{settings.dash_length:g}, dash_margin {settings.dash_margin:g}, seed_distance {settings.seed_distance:g} and "
        f"continuity {settings.continuity:g} in a window of {settings.window} with a padding of {settings.padding}; "
        "make the snakes shorter, or the window larger"
    )


def _try_pair(stamps: Stamps, random: Random) -> tuple[_Growing, _Growing] | None:
    """Two long snakes that grow in turn; None as soon as one finds no room."""
    settings, border = stamps.settings, stamps.border
    low = math.ceil(2 * settings.seed_distance)
    middle = settings.window - 2 * low
    first = _seed(stamps, border, low + _below(middle, random), low + _below(middle, random), random)
    if first is None:
        return None
    (row, column), (down, right) = first.dashes[0].tail, stamps.directions[_below(360, random)]
    row, column = row + settings.seed_distance * down, column + settings.seed_distance * right
    second = _seed(stamps, border | first.taken, round(row), round(column), random)
    if second is None:
        return None
    for _ in range(settings.contour_length - 1):
        if not first.grow(border | second.taken, random) or not second.grow(border | first.taken, random):
            return None
    return first, second


def _seed(stamps: Stamps, taken: int, row: int, column: int, random: Random) -> _Growing | None:
    """A snake of one dash in a random direction; None if its pixels are taken."""
    window = stamps.settings.window
    if not (0 <= row < window and 0 <= column < window):
        return None
    snake = _Growing.seed(stamps, row, column, _below(360, random))
    return None if snake.last & taken else snake


def _distractors(stamps: Stamps, taken: int, random: Random) -> list[_Growing]:
    """Short snakes; one that finds no room is left out."""
    settings, snakes = stamps.settings, []
    board = stamps.side**2
    for _ in range(settings.distractors):
        if board - taken.bit_count() < _FREE_AT_LEAST * settings.window**2:
            break
        for _ in range(DISTRACTOR_TRIES):
            snake = _try_distractor(stamps, taken, random)
            if snake is not None:
                taken |= snake.taken
                snakes.append(snake)
                break
    return snakes


def _try_distractor(stamps: Stamps, taken: int, random: Random) -> _Growing | None:
    degree = _below(360, random)
    free = stamps.free((degree + 180) % 360, taken)
    if not free:
        return None
    row, column = divmod(_bit(free, _below(free.bit_count(), random)), stamps.side)
    snake = _Growing.seed(stamps, row, column, degree)
    grown = all(snake.grow(taken, random) for _ in range(stamps.settings.distractor_length - 1))
    return snake if grown else None


def _bit(bits: int, number: int) -> int:
    """The position of the set bit with this number, counted from the lowest, from 0.

    Example:
        >>> [_bit(0b101001, number) for number in range(3)]
        [0, 3, 5]
    """
    low, high = 0, bits.bit_length()
    while high - low > 1:
        middle = (low + high) // 2
        below = (bits & ((1 << middle) - 1)).bit_count()
        low, high = (low, middle) if number < below else (middle, high)
    return low


def _below(limit: int, random: Random) -> int:
    """A random integer below `limit`. Only `random()` is guaranteed to be the same in all versions of Python."""
    return int(random.random() * limit)


# ---- pixels ----


def _render(
    stamps: Stamps, targets: Sequence[_Growing], distractors: Sequence[_Growing], discs: Sequence[Point]
) -> NDArray[np.uint8]:
    """The brightest shape at each pixel, stretched to 0-255."""
    settings, size = stamps.settings, 2 * stamps.guard + 1
    canvas = np.zeros((stamps.side, stamps.side), np.float32)
    drawn = [(snake, settings.target_contrast) for snake in targets]
    drawn += [(snake, settings.distractor_contrast) for snake in distractors]
    for snake, contrast in drawn:
        for row, column, degree in snake.anchors:
            spot = canvas[row : row + size, column : column + size]
            np.maximum(spot, contrast * stamps.dashes[degree], out=spot)
    for disc in discs:
        row, column = int(disc[0]), int(disc[1])
        spot = canvas[row : row + size, column : column + size]
        np.maximum(spot, stamps.disc, out=spot)
    inside = canvas[stamps.guard : -stamps.guard, stamps.guard : -stamps.guard]
    image: NDArray[np.uint8] = np.rint(inside * (255 / inside.max())).astype(np.uint8)
    return image
