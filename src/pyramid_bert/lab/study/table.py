"""The paper's tables from records: a metric at given speed-ups, by task and method, mean and std over seeds.

Estimates are in [0, 1]; for people they are shown in per cent, as papers print them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...errors import PyramidError, UnknownNameError
from ...text.metrics import CLASSIFICATION, REGRESSION
from .. import markdown as md
from .grid import Cell, settled
from .methods import AXES, CORESETS, CS_OPT, DENSE, in_order
from .store import Store

MEAN = "mean"
NOTHING = "–"
METRICS = tuple(name for name in (*CLASSIFICATION, *REGRESSION) if name != "rmse")  # more is better
XY = tuple[float, float]
# Where a record has the place of its cell on an axis. Measured speed-ups are in the record of the measurement.
_PLACES = {
    "ideal-c": ("ideal", "over_c"),
    "ideal-a": ("ideal", "over_a"),
    "space": ("space", "attention_input"),
    "space-printed": ("space", "printed"),
}


@dataclass(frozen=True)
class Result:
    """One finished cell: its metric, and its place `x` on an axis; None if that was not measured.

    `dense` is the metric of the dense model that it was made of. None if its record does not say: then the dense
    record of the same task and seed is meant.
    """

    task: str
    method: str
    configuration: str
    seed: int
    value: float
    x: float | None
    dense: float | None = None


@dataclass(frozen=True)
class Estimate:
    """A metric at a point of an axis: mean and standard deviation over the seeds that observed it."""

    mean: float
    std: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """The estimate from one value per seed; a single value has no deviation.

        Example:
            >>> Estimate.of([0.5])
            Estimate(mean=0.5, std=None, seeds=1)
        """
        std = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), std, len(values))


@dataclass(frozen=True)
class StudyTable:
    """Estimates by target, method and task; None where nothing is observed. `metric` is None for each task's own."""

    axis: str
    targets: tuple[float, ...]
    tasks: dict[str, str]
    methods: tuple[str, ...]
    entries: dict[tuple[float, str, str], Estimate | None]
    dense: dict[str, Estimate | None]
    metric: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON: a list of entries, metrics in [0, 1]."""
        return {
            "axis": self.axis,
            "axis_title": AXES[self.axis][0],
            "metric": self.metric,
            "tasks": self.tasks,
            "dense": {task: vars(entry) if entry else None for task, entry in self.dense.items()},
            "entries": [
                {"at": at, "method": method, "task": task, **(vars(entry) if entry else {"mean": None})}
                for (at, method, task), entry in self.entries.items()
            ],
        }


# ---- from records to results ----


def collect(
    cells: Sequence[Cell], store: Store, axis: str, plan: Mapping[str, int] | None, metric: str | None = None
) -> list[Result]:
    """The finished cells of a study, with their places on an axis.

    Args:
        cells: All cells of the study, or some.
        store: Its results.
        axis: A key of `AXES`.
        plan: Rows, batch size and rounds of its measurements; None when it asks for none.
        metric: One of the recorded metrics; None for the one that each task is judged by.
    """
    if axis not in AXES:
        raise UnknownNameError("axis", axis, AXES)
    done = [(cell, record) for cell in cells if (record := store.done(cell.key))]
    if axis in _PLACES:
        places = [_counted(cell, record, *_PLACES[axis]) for cell, record in done]
    elif plan is None:
        raise PyramidError(f"this experiment asks for no measurements, so {axis} is empty; set measure = true in it")
    else:
        places = _measured(
            [settled(cell, record) for cell, record in done], store, axis.replace("measured-", "over_"), plan
        )
    return [
        Result(
            cell.task,
            cell.method,
            cell.configuration,
            cell.seed,
            _value(cell, record, metric),
            place,
            dense=_started_from(record, metric),
        )
        for (cell, record), place in zip(done, places, strict=True)
    ]


def _value(cell: Cell, record: Mapping[str, Any], metric: str | None) -> float:
    if metric is None:
        return float(record["value"])
    known = [name for name in METRICS if name in record["metrics"]]
    if metric not in known:
        raise PyramidError(
            f"{cell.task} has no {metric}; it has {', '.join(known)}. Leave out --metric to have each task's own"
        )
    return float(record["metrics"][metric] or 0.0)  # an undefined correlation counts 0, as in the task's own


def _started_from(record: Mapping[str, Any], metric: str | None) -> float | None:
    """The metric of the dense model that a pyramid was made of; None if the record does not say.

    The record of a dense model that is trained again replaces the earlier one; pyramids made of that one stay.
    """
    return float(record["dense"][metric or record["metric"]] or 0.0) if "dense" in record else None


def _counted(cell: Cell, record: Mapping[str, Any], group: str, key: str) -> float | None:
    # After a cut at the input, attention sees only what is kept, so both readings of space agree. Older records
    # assumed that layer 1 sees all N tokens.
    at_input = group == "space" and cell.schedule is not None and cell.schedule.selects_at_input
    return float(record[group]["printed" if at_input else key])


def _measured(cells: Sequence[Cell], store: Store, over: str, plan: Mapping[str, int]) -> list[float | None]:
    """The measured speed-ups of cells; the dense model's is the median over the measurements of its task."""
    found = {key: (cell, store.done(key)) for cell in cells if not cell.is_dense and (key := cell.measurement(plan))}
    dense: dict[str, list[float]] = {}
    for cell, record in found.values():
        if record is not None:
            dense.setdefault(cell.task, []).append(record["dense_over_a"] if over == "over_a" else 1.0)

    def place(cell: Cell) -> float | None:
        if cell.is_dense:
            return median(dense[cell.task]) if cell.task in dense else None
        _, record = found[cell.measurement(plan)]
        return None if record is None else float(record[over])

    return [place(cell) for cell in cells]


# ---- from results to a table ----


def tabulate(
    results: Sequence[Result],
    axis: str,
    titles: Mapping[str, str],
    targets: Sequence[float] | None = None,
    metric: str | None = None,
) -> StudyTable:
    """The table: for each task, method and seed the Pareto front, read at the targets; then mean and std over seeds.

    The dense model is a point of every method's front: the method with nothing dropped.

    Args:
        results: From `collect`.
        axis: A key of `AXES`, for the titles.
        titles: Task -> what to call it; all tasks of the study, also those without results.
        targets: Where to read; the axis's own if None.
        metric: What the results are; None for each task's own.
    """
    at = tuple(targets or AXES[axis][1])
    results = [*results, *best_coresets(results)]
    methods = tuple(in_order(result.method for result in results))
    entries: dict[tuple[float, str, str], Estimate | None] = {}
    means: dict[tuple[float, str, str], Estimate | None] = {}
    for target in at:
        for method in methods:
            by_task = [_by_seed([r for r in results if r.task == task], method, target) for task in titles]
            entries |= {(target, method, task): _estimate(seeds) for task, seeds in zip(titles, by_task, strict=True)}
            means[target, method, MEAN] = mean_over_tasks(by_task)
    by_task = [{r.seed: r.value for r in results if r.task == task and r.method == DENSE} for task in titles]
    dense = {task: _estimate(seeds) for task, seeds in zip(titles, by_task, strict=True)}
    return StudyTable(
        axis, at, dict(titles), methods, entries | means, {**dense, MEAN: mean_over_tasks(by_task)}, metric
    )


def best_coresets(results: Sequence[Result]) -> list[Result]:
    """The row CS-opt: for each task and configuration the results of the m with the best mean over seeds."""
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for result in results:
        if result.method in CORESETS:
            groups.setdefault((result.task, result.configuration), {}).setdefault(result.method, []).append(result)
    if len({method for group in groups.values() for method in group}) < 2:
        return []
    best = [max(group.values(), key=lambda rows: np.mean([r.value for r in rows])) for group in groups.values()]
    return [replace(r, method=CS_OPT) for rows in best for r in rows]


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
    """The metric that a front gives at a speed-up, on straight lines between its points.

    Below the slowest point it is that point's metric: it was observed, and faster than asked. Beyond the fastest point
    nothing was observed, and the answer is None.

    Example:
        >>> front = [(1.0, 0.9), (2.0, 0.8)]
        >>> round(value_at(front, 1.5), 3), value_at(front, 0.5), value_at(front, 2.1)
        (0.85, 0.9, None)
    """
    if not front or speed > front[-1][0]:
        return None
    speeds, values = zip(*front, strict=True)
    return float(np.interp(speed, speeds, values))


def _by_seed(results: Sequence[Result], method: str, target: float) -> dict[int, float]:
    """The metric at a target on the front of a method on one task, by seed."""
    values = {}
    for seed in sorted({r.seed for r in results if r.method == method and r.x is not None}):
        mine = [r for r in results if r.seed == seed and r.method in (method, DENSE)]
        value = value_at(pareto_front((r.x, r.value) for r in mine if r.x is not None), target)
        if value is not None:
            values[seed] = value
    return values


def _estimate(by_seed: Mapping[int, float]) -> Estimate | None:
    return Estimate.of(list(by_seed.values())) if by_seed else None


def mean_over_tasks(by_task: Sequence[Mapping[int, float]]) -> Estimate | None:
    """The mean over tasks, seed by seed; None unless every task is observed with the same seeds."""
    seeds = set.intersection(*(set(seeds) for seeds in by_task)) if by_task else set()
    return _estimate({seed: float(np.mean([task[seed] for task in by_task])) for seed in sorted(seeds)})


# ---- for people ----


def shown(entry: Estimate | None) -> str:
    """An estimate in per cent.

    Example:
        >>> shown(Estimate(0.8125, 0.0031, 2)), shown(Estimate(0.8, None, 1)), shown(None)
        ('81.2 ± 0.3', '80.0', '–')
    """
    if entry is None:
        return NOTHING
    return f"{100 * entry.mean:.1f}" + ("" if entry.std is None else f" ± {100 * entry.std:.1f}")


def duration(seconds: float) -> str:
    """Seconds for people.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def target_name(axis: str, target: float) -> str:
    """A point of an axis, such as "1.5x" or "30 %"."""
    return f"{100 * target:g} %" if axis.startswith("space") else f"{target:g}x"


def columns_of(table: StudyTable) -> list[str]:
    """The tasks, and the mean if there are several."""
    return [*table.tasks, MEAN] if len(table.tasks) > 1 else list(table.tasks)


def _title(name: str, table: StudyTable) -> str:
    metric = "" if table.metric is None else f"{table.metric} by "
    return f"{name}: {metric}{AXES[table.axis][0]}"


def _rows(table: StudyTable) -> list[list[str]]:
    """Dense, then the methods at each target: the target (only in its first row), the method, and the estimates."""
    columns = columns_of(table)
    rows = [["", DENSE, *(shown(table.dense[task]) for task in columns)]]
    for target in table.targets:
        for method in table.methods:
            at = target_name(table.axis, target) if method == table.methods[0] else ""
            rows.append([at, method, *(shown(table.entries[target, method, task]) for task in columns)])
    return rows


def rich_table(name: str, table: StudyTable) -> Table:
    """The table for a terminal, with a section for each target."""
    title, rows = _title(name, table), _rows(table)
    out = Table(
        title=title,
        min_width=min(len(title), 78),  # a table of one task is narrower than its title
        caption=f"mean ± std over seeds; {NOTHING} where nothing is observed; the dense model is 1x over c",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=0,  # five tasks fit into 80 columns
    )
    for place, head in enumerate(("at", "")):  # in a narrow window only the metrics are cut
        out.add_column(head, no_wrap=True, min_width=max(len(row[place]) for row in rows))
    for task in columns_of(table):
        out.add_column(table.tasks.get(task, task), justify="right", no_wrap=True)
    for row in rows:
        if row[0]:
            out.add_section()
        out.add_row(*row)
    return out


def markdown(name: str, table: StudyTable) -> str:
    """The table as Markdown."""
    titles = [table.tasks.get(task, task) for task in columns_of(table)]
    return md.joined(
        [f"{_title(name, table)}; mean ± std over seeds.", md.table(["at", "", *titles], _rows(table), left=2)]
    )
