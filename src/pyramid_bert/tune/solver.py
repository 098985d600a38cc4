"""The one solver: the mildest keep ratio or radius that gives a wanted speed-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from ..config import PyramidConfig
from ..errors import PyramidError
from ..schedule.base import Schedule

MIN_TOKENS = 2  # CLS and one more
_SMALLEST_RATIO = 1e-3
_FASTEST = 1000
_TRIES, _CLOSE, _MARGIN = 16, 0.002, 0.1

SpeedupOf = Callable[[PyramidConfig], float]


def smallest(
    speedup_of: Callable[[float], float], wanted: float, *, low: float, high: float, start: float, stride: float = 3.0
) -> float | None:
    """The smallest x in [low, high] at which a speed-up that grows with x reaches `wanted`; None if none does.

    Steps away from `start`, each step twice as long as the last, until x is bracketed. Then interpolates on logarithmic
    scales, and halves the bracket after three tries in a row on one side.

    Example:
        >>> round(smallest(lambda x: x, 2.0, low=1.0, high=10.0, start=1.0), 2)
        2.0
    """
    below: tuple[float, float] | None = None  # x and speed-up, as logarithms
    above: tuple[float, float] | None = None
    best, sides, x = None, list[bool](), min(max(start, low), high)
    aim = math.log(wanted * (1 + _CLOSE / 2))
    while len(sides) < _TRIES:
        speedup = speedup_of(x)
        sides.append(speedup >= wanted)
        if sides[-1]:
            above, best = (math.log(x), math.log(speedup)), x
            if speedup <= wanted * (1 + _CLOSE) or x <= low:
                break
        elif x >= high or speedup <= 0:  # 0: what cannot run at all
            return None
        else:
            below = math.log(x), math.log(speedup)
        if below is None or above is None:
            x = max(x / stride, low) if above else min(x * stride, high)
            stride *= 2
            continue
        if above[0] - below[0] < _CLOSE:
            break
        stuck = len(sides) > 2 and len(set(sides[-3:])) == 1
        share = 0.5 if stuck else (aim - below[1]) / (above[1] - below[1])
        x = math.exp(below[0] + min(max(share, _MARGIN), 1 - _MARGIN) * (above[0] - below[0]))
    return best


def at_speedup(
    settings: PyramidConfig, first: int, last: int, speedup_of: SpeedupOf, wanted: float
) -> PyramidConfig | None:
    """The settings with the largest keep ratio between two layers that reaches a speed-up; None if none does."""

    def at(x: float) -> PyramidConfig:
        return settings.replace(schedule=Schedule.exponential(1 / x, last, first_layer=first, min_tokens=MIN_TOKENS))

    x = smallest(lambda x: speedup_of(at(x)), wanted, low=1.0, high=1 / _SMALLEST_RATIO, start=1.0, stride=1.3)
    return None if x is None else at(x)


def each_at_speedup(
    settings: PyramidConfig, places: Iterable[tuple[int, int]], speedup_of: SpeedupOf, wanted: float
) -> Iterator[PyramidConfig]:
    """What `at_speedup` finds for each of these first and last layers."""
    solved = (at_speedup(settings, first, last, speedup_of, wanted) for first, last in places)
    return (found for found in solved if found is not None)


def extreme_schedule() -> Schedule:
    """The fastest schedule: `MIN_TOKENS` tokens from layer 1 on."""
    return Schedule.exponential(_SMALLEST_RATIO, 1, min_tokens=MIN_TOKENS)


def check_speedup(speedup: float, name: str = "speedup") -> None:
    """Raises unless this is a speed-up that one can ask for; `name` is what the error calls it."""
    if isinstance(speedup, bool) or not isinstance(speedup, int | float) or not 1 <= speedup < _FASTEST:
        raise PyramidError(f"{name} must be a number in 1-{_FASTEST}, got {speedup!r}; 2 means twice as fast")
