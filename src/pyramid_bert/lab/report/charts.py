"""The data of the interactive charts, which the page's script draws: points, fronts and fitted lines of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from ..glue.tasks import TASKS
from ..study.methods import AXES, DENSE, METHODS, in_order
from ..study.plot import COLOURS, MARKERS, STYLED, means
from ..study.runs import Run
from ..study.table import Estimate, Result, pareto_front
from .collect import axes_of


@dataclass(frozen=True)
class Fit:
    """A straight line through the points of a series: metric in per cent against speed-up.

    Attributes:
        slope: Points for one more x of speed-up.
        height: Where it meets 0x.
        spread: Standard deviation of the points around the line.
        points: The number of points.
        speeds: The lowest and the highest speed-up.
        values: The lowest and the highest metric.
        deviations: The standard deviations of speed-ups and metrics.
    """

    slope: float
    height: float
    spread: float
    points: int
    speeds: tuple[float, float]
    values: tuple[float, float]
    deviations: tuple[float, float]

    def at(self, speed: float) -> float | None:
        """The line at a speed-up; None where no point is as slow or as fast."""
        return self.slope * speed + self.height if self.speeds[0] <= speed <= self.speeds[1] else None

    @property
    def ends(self) -> list[tuple[float, float]]:
        """Its first and last point."""
        return [(speed, self.slope * speed + self.height) for speed in self.speeds]


def fit_line(points: Sequence[tuple[float, float]]) -> Fit | None:
    """The least-squares line; None for fewer than three points or only one speed.

    Example:
        >>> fit = fit_line([(1.0, 90.0), (2.0, 88.0), (3.0, 86.0)])
        >>> round(fit.slope, 6), round(fit.at(2.0), 6), fit.at(3.5), round(fit.spread, 6)
        (-2.0, 88.0, None, 0.0)
    """
    x, y = (np.array([point[i] for point in points], dtype=float) for i in (0, 1))
    if len(points) < 3 or np.ptp(x) == 0:
        return None
    slope, height = (float(value) for value in np.polyfit(x, y, 1))
    speeds, values = ((float(row.min()), float(row.max())) for row in (x, y))
    deviations = float(np.std(x)), float(np.std(y))
    return Fit(slope, height, float(np.std(y - (slope * x + height))), len(points), speeds, values, deviations)


# ---- series ----


def varies_schedules(run: Run) -> bool:
    """Whether a method runs with several kinds of schedules: then kinds are compared, with fitted lines."""
    kinds = {(cell.method, cell.schedule.kind) for cell in run.cells if cell.schedule is not None}
    return len(kinds) > len({method for method, _ in kinds})


def series_of(run: Run, results: Sequence[Result]) -> dict[str, list[Result]]:
    """Series -> its results, in the order of tables: a method, or a method with a kind of schedule."""
    kinds = {cell.configuration: cell.schedule.kind for cell in run.cells if cell.schedule is not None}
    lines = varies_schedules(run)
    found: dict[str, list[Result]] = {}
    for method in in_order(result.method for result in results):
        mine = [result for result in results if result.method == method]
        for kind in sorted({kinds.get(result.configuration, "") for result in mine}) if lines else [""]:
            name = f"{method}, {kind}" if kind else method
            found[name] = [r for r in mine if not kind or kinds[r.configuration] == kind]
    return found


def cells_of(run: Run, axis: str) -> list[tuple[str, str, list[tuple[float, float]]]]:
    """(title of a task, series, speed-up and metric in per cent of each cell)."""
    results = run.results(axis)
    return [
        (title, name, _placed([result for result in mine if result.task == task]))
        for task, title in run.titles.items()
        for name, mine in series_of(run, results).items()
    ]


def fits(run: Run, axis: str) -> list[tuple[str, str, Fit]]:
    """(title of a task, series, line through its cells)."""
    lines = [(title, name, fit_line(points)) for title, name, points in cells_of(run, axis)]
    return [(title, name, line) for title, name, line in lines if line is not None]


def _placed(results: Sequence[Result]) -> list[tuple[float, float]]:
    return [(r.x, 100 * r.value) for r in results if r.x is not None]


# ---- charts ----


def chart(run: Run) -> dict[str, Any]:
    """A study's chart, a panel per task: Pareto fronts by method, or lines through the cells of a kind of schedule."""
    by_axis = {axis: run.results(axis) for axis in axes_of(run)}
    names = list(series_of(run, next(iter(by_axis.values()))))
    commands: dict[tuple[str, ...], str] = {}  # of the first seed
    for cell in run.cells:
        if cell.key in run.records:
            place = (cell.task, cell.method, cell.configuration)
            commands.setdefault(place, str(run.records[cell.key].get("command", "")))
    panels = []
    for task, title in run.titles.items():
        mine = {axis: [r for r in found if r.task == task] for axis, found in by_axis.items()}
        points = _points(run, mine, commands)
        if any(point["series"] for point in points):
            lines = {axis: _lines(run, found) for axis, found in mine.items()}
            panels.append({"title": title, "metric": TASKS[task].metric, "points": points, "lines": lines})
    return {
        "name": run.study.name,
        "axes": [{"key": axis, "title": AXES[axis][0], "share": axis.startswith("space")} for axis in by_axis],
        "series": [_look(name, number) for number, name in enumerate(names)],
        "panels": panels,
    }


def _look(name: str, number: int) -> dict[str, Any]:
    """A method looks the same in every picture; series that are not methods are numbered."""
    number = STYLED.index(name) if name in STYLED else number
    summary = METHODS[name].summary if name in METHODS else ""
    return {"name": name, "summary": summary, "colour": number % len(COLOURS), "marker": number % len(MARKERS)}


def _points(run: Run, by_axis: dict[str, list[Result]], commands: dict[tuple[str, ...], str]) -> list[dict[str, Any]]:
    """The mean over seeds of each method and configuration; dense has no series."""
    first = next(iter(by_axis.values()))
    named = {id(result): name for name, results in series_of(run, first).items() for result in results}
    made = []
    for method, configuration in dict.fromkeys((r.method, r.configuration) for r in first):
        rows = {
            axis: [r for r in results if (r.method, r.configuration) == (method, configuration)]
            for axis, results in by_axis.items()
        }
        mine = rows[next(iter(by_axis))]
        estimate = Estimate.of([100 * row.value for row in mine])
        places = {axis: [row.x for row in found if row.x is not None] for axis, found in rows.items()}
        made.append(
            {
                "series": named.get(id(mine[0]), ""),
                "configuration": configuration,
                "value": round(estimate.mean, 4),
                "std": None if estimate.std is None else round(estimate.std, 4),
                "seeds": estimate.seeds,
                "x": {axis: round(fmean(known), 4) if known else None for axis, known in places.items()},
                "command": commands[mine[0].task, method, configuration],
            }
        )
    return made


def _lines(run: Run, results: Sequence[Result]) -> dict[str, list[list[float]]]:
    """Series -> the points of its line: a fitted one, or the Pareto front of the means with dense."""
    fitted, placed = varies_schedules(run), [r for r in results if r.x is not None]
    lines: dict[str, list[list[float]]] = {}
    for name, mine in series_of(run, results).items():
        line = fit_line(_placed(mine)) if fitted else None
        ends = line.ends if line is not None else []
        if not fitted and (points := means(placed, name)):
            ends = pareto_front([*means(placed, DENSE), *points])
        lines[name] = [[round(x, 4), round(y, 4)] for x, y in ends]
    return lines
