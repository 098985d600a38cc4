"""The part of docs/results.md on the prize: how close each study comes to it."""

from __future__ import annotations

from collections.abc import Sequence

from ...markdown import joined, table
from ...report.collect import best_axis
from ...study.render import NOTHING
from ...study.runs import Point, Run, points
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


def closeness(whose: str, found: Sequence[Point], axis: str) -> str:
    """How close a study's configurations come to the prize; empty when none has a place on the axis.

    Args:
        whose: The study and its model.
        found: Its configurations.
        axis: "ideal-c" or "measured-c".
    """
    placed = [(speed, point) for point in found if (speed := point.speed(axis)) is not None]
    if not placed:
        return ""
    fast = [point for speed, point in placed if speed >= WANTED_SPEED]
    good = [(speed, point) for speed, point in placed if point.lost <= ALLOWED_LOSS]
    words = f"{whose}, {axis.partition('-')[0]}: "
    if fast:
        best = min(fast, key=lambda point: point.lost)
        short = best.lost - ALLOWED_LOSS
        words += f"at {WANTED_SPEED:g}x or faster the least lost is {best.lost:.2f} points ({_name(best, axis)}): "
        words += "won. " if short <= 0 else f"missed by {short:.2f}. "
    else:
        words += f"nothing is as fast as {WANTED_SPEED:g}x. "
    if good:
        _, best = max(good, key=lambda pair: (pair[0], -pair[1].lost))
        words += f"The fastest that loses at most {ALLOWED_LOSS:g} is {_name(best, axis)}: {best.lost:.2f} lost."
    else:
        words += f"Everything loses more than {ALLOWED_LOSS:g}."
    return f"- {words}\n"


def _name(point: Point, axis: str) -> str:
    seeds = point.change.seeds
    return f"{point.method} {point.configuration}, {point.speed(axis):.2f}x, {seeds} seed{'' if seeds == 1 else 's'}"
