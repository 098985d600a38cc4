"""Draws a Pathfinder image: two long dashed snakes, distractors and two discs.

Follows the published description of the generator by Kim, Linsley, Thakkar and Serre (2020), with the parameters of
Long Range Arena (Tay et al., 2021). docs/design/0013-pathfinder.md lists the differences.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

import numpy as np
from numpy.typing import NDArray

from ....errors import PyramidError
from .settings import PathfinderSettings
from .stamps import Stamps, stamps_of

Point = tuple[float, float]  # (row, column) in pixels; integers are the middle of a pixel
PAIR_TRIES = 2000
DISTRACTOR_TRIES = 5
_FREE_AT_LEAST = 0.01  # share of the window that must be free for another distractor
_PARTS = 4  # pivots are rounded to quarters of a pixel


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
        label: 1 if the discs are at both ends of one long snake, 0 if they are at ends of different snakes.
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
    """Image number `index` of a seed. It depends on nothing else: not on order, processes or the number of images.

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
    short = _distractors(stamps, stamps.border | pair[0].taken | pair[1].taken, random)
    snakes = (pair[0].finished(), pair[1].finished())
    discs = (snakes[origin].tips[0], snakes[origin if label else 1 - origin].tips[1])
    image = _render(stamps, pair, short, discs)
    return Drawing(image, label, snakes, tuple(snake.finished() for snake in short), discs)


# ---- snakes ----


class _Growing:
    """A snake that grows, at first one dash that begins at a pixel.

    Attributes:
        anchors: (row, column, degree) of the stamp of each dash.
        body: Bits that all dashes but the last take.
        last: Bits that the last dash takes; apart, because the next dash may come near it.
    """

    def __init__(self, stamps: Stamps, row: int, column: int, degree: int) -> None:
        self.stamps = stamps
        back = (degree + 180) % 360  # stamps run back from their anchor
        self.anchors = [(row, column, back)]
        self.body, self.last = 0, stamps.mask(row, column, back)
        self._degree = degree  # the direction of the last dash
        down, right = stamps.directions[degree]
        margin = stamps.settings.dash_margin
        self._pivot = (row - margin * down, column - margin * right)  # the middle of the gap before the last dash

    @property
    def taken(self) -> int:
        """Bits that the whole snake takes."""
        return self.body | self.last

    def finished(self) -> Snake:
        """The snake as it was drawn."""
        ends = []
        for row, column, degree in self.anchors:
            down, right = self.stamps.directions[degree]
            length = self.stamps.settings.dash_length
            ends.append(Dash((row - length * down, column - length * right), (row, column)))
        return Snake((Dash(ends[0].head, ends[0].tail), *ends[1:]))  # the first grew away from its anchor

    def grow(self, others: int, random: Random) -> bool:
        """Adds a dash that overlaps neither `others` nor the snake's body; False if there is no room."""
        stamps, settings = self.stamps, self.stamps.settings
        window, taken = settings.window, others | self.body
        step = settings.dash_length + 2 * settings.dash_margin
        down, right = stamps.directions[self._degree]
        pivot = (self._pivot[0] + step * down, self._pivot[1] + step * right)
        (pivot_row, down_part), (pivot_column, right_part) = (divmod(round(at * _PARTS), _PARTS) for at in pivot)
        weights, ways = [], []
        for weight, way_row, way_column, degree in stamps.ways(down_part / _PARTS, right_part / _PARTS, self._degree):
            row, column = pivot_row + way_row, pivot_column + way_column
            if 0 <= row < window and 0 <= column < window:
                mask = stamps.mask(row, column, degree)
                if not mask & taken:
                    weights.append(weight)
                    ways.append((row, column, degree, mask))
        if not ways:
            return False
        totals = list(accumulate(weights))
        chosen = bisect(totals, random.random() * totals[-1], hi=len(ways) - 1)
        row, column, self._degree, mask = ways[chosen]
        self.anchors.append((row, column, self._degree))
        self._pivot, self.body, self.last = pivot, self.taken, mask
        return True


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
    row, column = (low + _below(settings.window - 2 * low, random) for _ in range(2))
    first = _seed(stamps, border, row, column, random)
    if first is None:
        return None
    down, right = (settings.seed_distance * step for step in stamps.directions[_below(360, random)])
    second = _seed(stamps, border | first.taken, round(row + down), round(column + right), random)
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
    snake = _Growing(stamps, row, column, _below(360, random))
    return None if snake.last & taken else snake


def _distractors(stamps: Stamps, taken: int, random: Random) -> list[_Growing]:
    """Short snakes; one that finds no room is left out."""
    settings, snakes = stamps.settings, []
    for _ in range(settings.distractors):
        if stamps.side**2 - taken.bit_count() < _FREE_AT_LEAST * settings.window**2:
            break
        for _ in range(DISTRACTOR_TRIES):
            degree = _below(360, random)
            places = stamps.room((degree + 180) % 360, taken)
            if not places:
                continue
            snake = _Growing(stamps, *places[_below(len(places), random)], degree)
            if all(snake.grow(taken, random) for _ in range(settings.distractor_length - 1)):
                taken |= snake.taken
                snakes.append(snake)
                break
    return snakes


def _below(limit: int, random: Random) -> int:
    """A random integer below `limit`. Only `random()` is guaranteed to be the same in all versions of Python."""
    return int(random.random() * limit)


# ---- pixels ----


def _render(
    stamps: Stamps, targets: Sequence[_Growing], distractors: Sequence[_Growing], discs: Sequence[Point]
) -> NDArray[np.uint8]:
    """The brightest shape at each pixel, stretched to 0-255."""
    settings, size = stamps.settings, 2 * stamps.guard + 1
    drawn = [(int(row), int(column), stamps.disc) for row, column in discs]
    for snakes, contrast in ((targets, settings.target_contrast), (distractors, settings.distractor_contrast)):
        anchors = [anchor for snake in snakes for anchor in snake.anchors]
        drawn += [(row, column, contrast * stamps.dashes[degree]) for row, column, degree in anchors]
    canvas = np.zeros((stamps.side, stamps.side), np.float32)
    for row, column, stamp in drawn:
        spot = canvas[row : row + size, column : column + size]
        np.maximum(spot, stamp, out=spot)
    inside = canvas[stamps.guard : -stamps.guard, stamps.guard : -stamps.guard]
    image: NDArray[np.uint8] = np.rint(inside * (255 / inside.max())).astype(np.uint8)
    return image
