"""The parameters of a Pathfinder image: sizes in pixels, lengths of snakes in dashes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ....checks import check_choice, check_number
from ....errors import PyramidError

# Dashes of a long snake.
DIFFICULTIES = {"easy": 6, "intermediate": 9, "hard": 14}
# All distractors together have this number of dashes.
_DISTRACTOR_DASHES = 20
# Half of a pixel's diagonal: shapes this far apart share no pixel.
_APART = 0.71


@dataclass(frozen=True, kw_only=True)
class PathfinderSettings:
    """The parameters of an image; the defaults are those of Long Range Arena's 32x32 images, hard.

    Example:
        >>> PathfinderSettings().contour_length, PathfinderSettings.of("easy").contour_length
        (14, 6)

    Attributes:
        window: Height and width of the image.
        padding: Pixels at the edge that only discs may enter.
        dash_length: Of a dash.
        dash_thickness: Of a dash.
        dash_margin: Half of the gap between two dashes of a snake, and what others keep away from it.
        marker_radius: Of the two discs.
        contour_length: Dashes of each of the two long snakes.
        distractor_length: Dashes of a distractor.
        distractors: The most distractors; one that finds no room is left out.
        seed_distance: Between the first ends of the long snakes; the first of them begins twice as far from the edges.
        continuity: How straight snakes are: a turn of d has the weight cos(continuity * d) squared.
        target_contrast: Brightness of the long snakes' dashes; of a disc it is 1.
        distractor_contrast: Brightness of the distractors' dashes.
    """

    window: int = 32
    padding: int = 1
    dash_length: float = 2.0
    dash_thickness: float = 0.5
    dash_margin: float = 1.0
    marker_radius: float = 1.5
    contour_length: int = 14
    distractor_length: int = 4
    distractors: int = 5
    seed_distance: float = 7.0
    continuity: float = 1.0
    target_contrast: float = 1.5
    distractor_contrast: float = 2.0

    def __post_init__(self) -> None:
        # A snake of one dash has no pixel for its other end, and both ends of one of two may be the same pixel.
        whole = {"window": 5, "contour_length": 3, "distractor_length": 1, "padding": 0, "distractors": 0}
        # Thinner dashes fall between the points that pixels are sampled at; nearer snakes may begin at one pixel.
        least = {"dash_margin": 0, "continuity": 0, "dash_thickness": 0.2, "seed_distance": 1}
        above = dict.fromkeys(("dash_length", "marker_radius", "target_contrast", "distractor_contrast"), 0)
        for name, low in (whole | least | above).items():
            hint = f"Long Range Arena has {_DEFAULTS[name]}"
            check_number(name, getattr(self, name), low, hint=hint, whole=name in whole, above=name in above)
        for wrong, message in self._impossible():
            if wrong:
                raise PyramidError(message)

    def _impossible(self) -> Iterator[tuple[bool, str]]:
        """Whether two snakes could share a pixel, or something cannot fit into the window; and the error for it."""
        half, inner = self.dash_thickness / 2, self.window - 2 * self.padding
        size = f"{self.window}x{self.window}"
        yield (
            half + self.dash_margin < _APART,
            f"with a dash_thickness of {self.dash_thickness} and a dash_margin of {self.dash_margin} a disc could "
            f"lie on two snakes: half of the first and the second must add up to at least {_APART}, got "
            f"{half + self.dash_margin:g}; make dash_margin at least {math.ceil(100 * (_APART - half)) / 100:g}",
        )
        yield inner < 1, f"a padding of {self.padding} leaves nothing of a {size} window; make it smaller"
        yield (
            2 * self.marker_radius > self.window,
            f"discs of marker_radius {self.marker_radius} are larger than the {size} window; "
            f"it must be at most {self.window / 2:g}",
        )
        yield (
            math.ceil(4 * self.seed_distance) >= self.window,
            f"a seed_distance of {self.seed_distance} leaves no place for the first dash in a {size} window: it "
            f"stays twice that away from the edges; it must be below {self.window / 4:g}",
        )
        yield (
            max(self.dash_length, self.dash_thickness) + 2 * self.dash_margin > math.sqrt(2) * inner,
            f"a dash of dash_length {self.dash_length} and dash_thickness {self.dash_thickness} with a "
            f"dash_margin of {self.dash_margin} does not fit into a {size} window with a padding of {self.padding}",
        )

    @classmethod
    def of(cls, difficulty: str) -> PathfinderSettings:
        """The settings of "easy", "intermediate" or "hard" images: snakes of 6, 9 or 14 dashes."""
        check_choice("difficulty", difficulty, DIFFICULTIES)
        length = DIFFICULTIES[difficulty]
        return cls(
            contour_length=length, distractor_length=length // 3, distractors=_DISTRACTOR_DASHES // (length // 3)
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PathfinderSettings:
        """The inverse of `to_dict`; raises for unknown names."""
        for name in values:
            check_choice("Pathfinder setting", name, _DEFAULTS)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


_DEFAULTS = {name: field.default for name, field in PathfinderSettings.__dataclass_fields__.items()}
