"""The part of docs/results.md on the prize: how close each study comes to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...markdown import joined, table
from ...report.collect import best_axis
from ...study.runs import Point, Run, points
from ...study.table import NOTHING
from .sections import lost

WANTED_SPEED, ALLOWED_LOSS = 2.5, 1.0


def prize(run: Run) -> str:
    """Every configuration that is done on all tasks: what it loses and how fast it is, best first."""
    found = points(run)
    axis = best_axis(run)
    rows = []
    for point in sorted(found, key=lambda point: ((point.speed(axis) or 0.0) < WANTED_SPEED, point.lost)):
        speeds = [_speed(point, name) for name in ("measured-c", "ideal-c")]
        rows.append([point.method, point.configuration, lost(point.change), *speeds])
    left = len({(cell.method, cell.configuration) for cell in run.cells if not cell.is_dense}) - len(found)
    head = ["method", "configuration", "points lost", "measured over c", "ideal over c"]
    words = f"Not done on all tasks, and not shown: {left} configurations of methods." if left else ""
    return joined([table(head, rows, left=2) if rows else "", words])


def _speed(point: Point, axis: str) -> str:
    speed = point.speed(axis)
    return NOTHING if speed is None else f"{speed:.2f}x ({min(point.speeds[axis]):.2f}x)"


def closeness(runs: Mapping[str, Sequence[Point]]) -> str:
    """How close configurations come to the prize, by measured and by ideal speed-ups.

    Args:
        runs: A study and its model -> its configurations.
    """
    rows = [
        [name, axis.removesuffix("-c"), *found]
        for name, points in runs.items()
        for axis in ("measured-c", "ideal-c")
        if (found := _closest(points, axis))
    ]
    head = ["study", "speeds", f"least lost at {WANTED_SPEED:g}x or faster", "too many points lost"]
    return table([*head, f"fastest that loses at most {ALLOWED_LOSS:g}"], rows, left=2)


def _closest(points: Sequence[Point], axis: str) -> list[str]:
    placed = [(speed, point) for point in points if (speed := point.speed(axis)) is not None]
    if not placed:
        return []
    fast = min((point for speed, point in placed if speed >= WANTED_SPEED), key=lambda p: p.lost, default=None)
    good = max(
        (pair for pair in placed if pair[1].lost <= ALLOWED_LOSS),
        key=lambda pair: (pair[0], -pair[1].lost),
        default=(0.0, None),
    )[1]
    short = NOTHING if fast is None else f"{max(0.0, fast.lost - ALLOWED_LOSS):.2f}"
    return [_name(fast, axis), short, _name(good, axis)]


def _name(point: Point | None, axis: str) -> str:
    if point is None:
        return NOTHING
    seeds = f"{point.change.seeds} seed{'' if point.change.seeds == 1 else 's'}"
    return f"{point.lost:.2f} ({point.method} {point.configuration}, {point.speed(axis):.2f}x, {seeds})"
