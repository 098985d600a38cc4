"""The data of the interactive charts, which the page's script draws: points, fronts and fitted lines of a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..glue.tasks import TASKS
from ..study.axes import AXES
from ..study.grid import Cell
from ..study.methods import DENSE, METHODS, in_order
from ..study.pareto import pareto_front
from ..study.plot import COLOURS, MARKERS, STYLED, means
from ..study.runs import Run
from ..study.table import Result
from .collect import axes_of

Series = Callable[[Result], str]


@dataclass(frozen=True)
class Fit:
    """A straight line through the points of a series: metric in per cent against speed-up.

    Attributes:
        slope: Points for one more x of speed-up.
        height: Where it meets 0x.
        spread: Standard deviation of the points around the line.
        points: How many there are.
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


def by_method(result: Result) -> str:
    """Series for a comparison of methods."""
    return result.method


def by_schedule(run: Run) -> Series:
    """Series for a comparison of schedules: the method, and the kind of schedule it ran with."""
    kinds = {cell.configuration: cell.schedule.kind for cell in run.cells if cell.schedule is not None}
    return lambda result: f"{result.method}, {kinds[result.configuration]}"


def names_of(results: Sequence[Result], series: Series) -> list[str]:
    """The series that there are, in the order of tables."""
    order = in_order(result.method for result in results)
    found = dict.fromkeys((order.index(r.method), series(r)) for r in results if r.method != DENSE)
    return [name for _, name in sorted(found)]


def chart(run: Run, *, fit: bool = False) -> dict[str, Any]:
    """A study's chart: a panel a task, with fronts, or with fitted lines by kind of schedule."""
    series = by_schedule(run) if fit else by_method
    by_axis = {axis: run.results(axis) for axis in axes_of(run)}
    first = next(iter(by_axis.values()))
    names = names_of(first, series)
    commands = _commands(run)
    panels = []
    for task, title in run.titles.items():
        mine = {axis: [r for r in found if r.task == task] for axis, found in by_axis.items()}
        points = _points(mine, series, commands)
        if any(point["series"] for point in points):
            lines = {axis: _lines(found, names, series, fit) for axis, found in mine.items()}
            panels.append({"title": title, "metric": TASKS[task].metric, "points": points, "lines": lines})
    return {
        "name": run.study.name,
        "axes": [{"key": axis, "title": AXES[axis][0], "share": axis.startswith("space")} for axis in by_axis],
        "series": [_look(name, number, fit) for number, name in enumerate(names)],
        "panels": panels,
    }


def _look(name: str, number: int, fit: bool) -> dict[str, Any]:
    """A method looks the same in every picture; series that are no methods are numbered."""
    number = number if fit or name not in STYLED else STYLED.index(name)
    summary = METHODS[name].summary if name in METHODS else ""
    return {"name": name, "summary": summary, "colour": number % len(COLOURS), "marker": number % len(MARKERS)}


def _points(
    by_axis: dict[str, list[Result]], series: Series, commands: dict[tuple[str, ...], str]
) -> list[dict[str, Any]]:
    """The mean over seeds of each method and configuration; dense is the one without a series."""
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for axis, results in by_axis.items():
        for result in results:
            groups.setdefault((result.method, result.configuration), {}).setdefault(axis, []).append(result)
    made = []
    for (method, configuration), found in groups.items():
        rows = next(iter(found.values()))
        values = [100 * row.value for row in rows]
        made.append(
            {
                "series": "" if method == DENSE else series(rows[0]),
                "configuration": configuration,
                "value": round(float(np.mean(values)), 4),
                "std": round(float(np.std(values, ddof=1)), 4) if len(values) > 1 else None,
                "seeds": len(values),
                "x": {axis: _mean([row.x for row in mine]) for axis, mine in found.items()},
                "command": commands[rows[0].task, method, configuration],
            }
        )
    return made


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def _lines(results: Sequence[Result], names: Sequence[str], series: Series, fit: bool) -> dict[str, list[list[float]]]:
    """Series -> the points of its line: a fitted one, or the Pareto front of the means with dense."""
    lines: dict[str, list[list[float]]] = {}
    for name in names:
        if fit:
            line = fit_line(_placed(results, series, name))
            ends = [] if line is None else line.ends
        else:  # the series are methods
            placed = [r for r in results if r.x is not None]
            points = means(placed, name)
            ends = pareto_front([*means(placed, DENSE), *points]) if points else []
        lines[name] = [[round(x, 4), round(y, 4)] for x, y in ends]
    return lines


def _placed(results: Sequence[Result], series: Series, name: str) -> list[tuple[float, float]]:
    """All cells of a series that have a place on the axis: speed-up, and metric in per cent."""
    mine = [r for r in results if r.method != DENSE and series(r) == name]
    return [(r.x, 100 * r.value) for r in mine if r.x is not None]


def cells_of(run: Run, axis: str) -> list[tuple[str, str, list[tuple[float, float]]]]:
    """(task's title, series, speed-up and metric of each cell) for a comparison of schedules."""
    series, results = by_schedule(run), run.results(axis)
    return [
        (title, name, _placed([r for r in results if r.task == task], series, name))
        for task, title in run.titles.items()
        for name in names_of(results, series)
    ]


def fits(run: Run, axis: str) -> list[tuple[str, str, Fit]]:
    """(task's title, series, line) for a comparison of schedules."""
    lines = [(title, name, fit_line(points)) for title, name, points in cells_of(run, axis)]
    return [(title, name, line) for title, name, line in lines if line is not None]


def _commands(run: Run) -> dict[tuple[str, ...], str]:
    """The command of a cell of each task, method and configuration, the first seed's."""
    found: dict[tuple[str, ...], str] = {}
    for cell in run.cells:
        if cell.key in run.records:
            found.setdefault(_place(cell), str(run.records[cell.key].get("command", "")))
    return found


def _place(cell: Cell) -> tuple[str, ...]:
    return cell.task, cell.method, cell.configuration
