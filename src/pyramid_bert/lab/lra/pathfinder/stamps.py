"""The shapes of Pathfinder images, computed once for all images with the same settings.

A dash starts at a pixel, its anchor, and runs back from there in one of 360 directions. Each direction has a picture
and a mask. Masks and the taken pixels of an image are integers with one bit per pixel. Testing whether a dash fits is a
shift and an AND; finding all places where it fits takes about ten shifts.

Boards are wider than the window by `guard` pixels on all sides. These count as taken, so nothing wraps around.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from ....errors import PyramidError
from .settings import PathfinderSettings

_SAMPLES = 8  # a pixel's coverage is counted on a grid of 8 x 8 points
_TAKEN = 0.5  # a mask takes a pixel if it covers at least this share of it


class Stamps:
    """Pictures and masks of dashes and discs, by direction, and the ways on from a dash.

    Attributes:
        guard: Pixels around the window, and from the middle to the edge of a stamp.
        side: Width of a board.
        dashes: Coverage of the pixels around the anchor, by degree.
        disc: Coverage of the pixels around the middle of a disc.
        border: Bits of the pixels that nothing may take.
        directions: (row, column) of a step of one pixel, by degree.
        ways: `_ways`, cached.
    """

    def __init__(self, settings: PathfinderSettings) -> None:
        self.settings = settings
        radius = settings.dash_thickness / 2
        reach = settings.dash_length + radius + settings.dash_margin
        self.guard = math.ceil(max(reach, settings.marker_radius)) + 1
        self.side = settings.window + 2 * self.guard
        angles = [math.radians(degree) for degree in range(360)]
        self.directions = [(math.sin(angle), math.cos(angle)) for angle in angles]
        self.dashes = [self._coverage(direction, radius) for direction in self.directions]
        self.disc = self._coverage((0.0, 0.0), settings.marker_radius)
        shapes = [self._coverage(direction, radius + settings.dash_margin) >= _TAKEN for direction in self.directions]
        self._offsets = [(np.argwhere(shape) @ (self.side, 1)).tolist() for shape in shapes]
        self._masks = [sum(1 << offset for offset in offsets) for offsets in self._offsets]
        self._window = self._square(0, settings.window)
        inside = self._square(self.guard + settings.padding, settings.window - 2 * settings.padding)
        self.border = (1 << self.side**2) - 1 & ~inside
        self.ways = cache(self._ways)
        # Only neighbouring dashes of a snake share pixels.
        needed = 2 * -(-settings.contour_length // 2) * min(mask.bit_count() for mask in self._masks)
        if needed > inside.bit_count():
            raise PyramidError(
                f"two snakes of contour_length {settings.contour_length} need at least {needed} pixels and a window "
                f"of {settings.window} with a padding of {settings.padding} has {inside.bit_count()}; "
                "make the snakes shorter or the window larger"
            )

    def _coverage(self, direction: tuple[float, float], radius: float) -> NDArray[np.float32]:
        """The share of each pixel that lies within `radius` of the line that runs back from the middle pixel."""
        width = 2 * self.guard + 1
        at = (np.arange(width * _SAMPLES) + 0.5) / _SAMPLES - width / 2
        rows, columns = at[:, None], at[None, :]
        length = self.settings.dash_length
        along = np.clip(-(rows * direction[0] + columns * direction[1]), 0, length)
        squared = (rows + along * direction[0]) ** 2 + (columns + along * direction[1]) ** 2
        inside = (squared <= radius**2).reshape(width, _SAMPLES, width, _SAMPLES)
        share: NDArray[np.float32] = inside.mean(axis=(1, 3), dtype=np.float64).astype(np.float32)
        return share

    def _square(self, start: int, size: int) -> int:
        line = ((1 << size) - 1) << start
        return sum(line << (row * self.side) for row in range(start, start + size))

    def mask(self, row: int, column: int, degree: int) -> int:
        """Bits of the pixels that a dash takes whose anchor is this pixel of the window."""
        return self._masks[degree] << (row * self.side + column)

    def room(self, degree: int, taken: int) -> list[tuple[int, int]]:
        """The pixels of the window at which a dash in this direction fits, row by row."""
        blocked = 0
        for offset in self._offsets[degree]:
            blocked |= taken >> offset
        free = (self._window & ~blocked).to_bytes(self.side**2 // 8 + 1, "little")
        bits = np.unpackbits(np.frombuffer(free, np.uint8), bitorder="little")
        return [divmod(place, self.side) for place in np.flatnonzero(bits).tolist()]

    def _ways(self, down_part: float, right_part: float, degree: int) -> list[tuple[float, int, int, int]]:
        """The ways on for a snake that came in the direction `degree`: (weight, row, column, degree).

        Row and column are those of a pixel on the circle where the next dash may end, relative to the pixel of the
        snake's pivot. The pivot lies by `down_part` and `right_part` beyond that pixel.
        """
        radius = self.settings.dash_length + self.settings.dash_margin
        box = range(-math.ceil(radius) - 1, math.ceil(radius) + 3)
        ways = []
        for row in box:
            for column in box:
                down, right = row - down_part, column - right_part
                if not max(radius - 0.5, 0) ** 2 <= down**2 + right**2 <= (radius + 0.5) ** 2:
                    continue
                angle = math.degrees(math.atan2(down, right))
                turn = math.radians(abs((angle - degree + 180) % 360 - 180))
                weight = math.cos(min(self.settings.continuity * turn, math.pi / 2)) ** 2
                if weight > 1e-9:
                    ways.append((weight, row, column, round(angle) % 360))
        return ways


@lru_cache(maxsize=8)
def stamps_of(settings: PathfinderSettings) -> Stamps:
    """The stamps of these settings, made once in a process; raises if snakes are too long for the window."""
    return Stamps(settings)
