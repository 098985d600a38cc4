"""What can be had at a given speed: the Pareto front of observed points, and straight lines between its points."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

XY = tuple[float, float]


def pareto_front(points: Iterable[XY]) -> list[XY]:
    """The (speed-up, metric) points that no other beats in one without losing in the other, slowest first.

    Example:
        >>> pareto_front([(1.0, 0.90), (1.5, 0.80), (2.0, 0.85), (3.0, 0.70)])
        [(1.0, 0.9), (2.0, 0.85), (3.0, 0.7)]
    """
    front: list[XY] = []
    for speed, value in sorted(points, key=lambda point: (-point[0], -point[1])):  # fastest first
        if not front or value > front[-1][1]:
            front.append((speed, value))
    return front[::-1]


def value_at(front: list[XY], speed: float) -> float | None:
    """The metric that a front gives at a speed-up: on the line between its points around it.

    Below the slowest point of the front it is that point's metric: it was observed, and faster than asked. Beyond the
    fastest point nothing was observed, and the answer is None.

    Example:
        >>> front = [(1.0, 0.9), (2.0, 0.8)]
        >>> round(value_at(front, 1.5), 3), value_at(front, 0.5), value_at(front, 2.1)
        (0.85, 0.9, None)
    """
    if not front or speed > front[-1][0]:
        return None
    speeds, values = zip(*front, strict=True)
    return float(np.interp(speed, speeds, values))
