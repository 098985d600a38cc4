"""The paper's tables from records: a metric at given speed-ups, by task and method, mean and std over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ...errors import PyramidError, UnknownNameError
from ...text.metrics import CLASSIFICATION, REGRESSION
from .axes import AXES
from .grid import Cell
from .methods import CORESETS, CS_OPT, DENSE, in_order
from .pareto import XY, pareto_front, value_at
from .store import Store

MEAN = "mean"
METRICS = tuple(name for name in (*CLASSIFICATION, *REGRESSION) if name != "rmse")  # more is better


@dataclass(frozen=True)
class Result:
    """One cell that is done, as a table needs it."""

    task: str
    method: str
    configuration: str
    seed: int
    value: float
    x: float | None


@dataclass(frozen=True)
class Estimate:
    """A metric at a point of an axis: mean and standard deviation over the seeds that observed it."""

    mean: float
    std: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """The estimate from one value a seed; a single one has no deviation.

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
        rows = [
            {"at": at, "method": method, "task": task, **(vars(entry) if entry else {"mean": None})}
            for (at, method, task), entry in self.entries.items()
        ]
        dense = {task: vars(entry) if entry else None for task, entry in self.dense.items()}
        return {
            "axis": self.axis,
            "axis_title": AXES[self.axis][0],
            "metric": self.metric,
            "tasks": self.tasks,
            "dense": dense,
            "entries": rows,
        }


def collect(
    cells: Sequence[Cell], store: Store, axis: str, plan: Mapping[str, int] | None, metric: str | None = None
) -> list[Result]:
    """What is done of a study, with its place on an axis (None where it was not measured).

    Args:
        cells: Of the study.
        store: Its results.
        axis: A key of `AXES`.
        plan: Rows, batch size and rounds of its measurements; None when it asks for none.
        metric: Which of the recorded metrics; None for the one that each task is judged by.
    """
    if axis not in AXES:
        raise UnknownNameError("axis", axis, AXES)
    if axis.startswith("measured") and plan is None:
        raise PyramidError(f"this experiment asks for no measurements, so {axis} is empty; set measure = true in it")
    done = [(cell, record) for cell in cells if (record := store.done(cell.key))]
    place = _measured(done, store, axis, plan) if plan and axis.startswith("measured") else _counted(axis)
    return [
        Result(cell.task, cell.method, cell.configuration, cell.seed, _value(cell, record, metric), place(cell, record))
        for cell, record in done
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


Place = Callable[[Cell, Mapping[str, Any]], float | None]


def _counted(axis: str) -> Place:
    group, key = {
        "ideal-c": ("ideal", "over_c"),
        "ideal-a": ("ideal", "over_a"),
        "space": ("space", "attention_input"),
        "space-printed": ("space", "printed"),
    }[axis]

    def place(cell: Cell, record: Mapping[str, Any]) -> float:
        # A cut at the input leaves attention only what is kept, so that both readings agree; older records took layer 1
        # to see all N tokens.
        at_input = group == "space" and cell.schedule is not None and cell.schedule.selects_at_input
        return float(record[group]["printed" if at_input else key])

    return place


def _measured(
    done: Sequence[tuple[Cell, Mapping[str, Any]]], store: Store, axis: str, plan: Mapping[str, int]
) -> Place:
    """Looks speeds up among the measurements; the dense model's is the median over those of its task."""
    over = axis.replace("measured-", "over_")
    found: dict[str, Mapping[str, Any]] = {}
    dense: dict[str, list[float]] = {}
    for cell, _ in done:
        key = cell.measurement(plan)
        record = None if cell.is_dense or key in found else store.done(key)
        if record is not None:
            found[key] = record
            dense.setdefault(cell.task, []).append(record["dense_over_a"] if over == "over_a" else 1.0)

    def place(cell: Cell, _: Mapping[str, Any]) -> float | None:
        if cell.is_dense:
            return median(dense[cell.task]) if cell.task in dense else None
        entry = found.get(cell.measurement(plan))
        return None if entry is None else float(entry[over])

    return place


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
        titles: Task -> what to call it; all tasks of the study, also those with no result.
        targets: Where to read; the axis's own if None.
        metric: What the results are; None for each task's own.
    """
    at = tuple(targets or AXES[axis][1])
    results = [*results, *best_coresets(results)]
    methods = tuple(in_order(result.method for result in results))
    values = {
        (target, method, task): _by_seed([r for r in results if r.task == task], method, target)
        for target in at
        for method in methods
        for task in titles
    }
    entries = {key: _estimate(list(by_seed.values())) for key, by_seed in values.items()}
    for target in at:
        for method in methods:
            entries[target, method, MEAN] = mean_over_tasks([values[target, method, task] for task in titles])
    by_task = [{r.seed: r.value for r in results if r.task == task and r.method == DENSE} for task in titles]
    dense = {task: _estimate(list(seeds.values())) for task, seeds in zip(titles, by_task, strict=True)}
    dense[MEAN] = mean_over_tasks(by_task)
    return StudyTable(axis, at, dict(titles), methods, entries, dense, metric)


def best_coresets(results: Sequence[Result]) -> list[Result]:
    """The row CS-opt: for each task and configuration the results of the m that is best in the mean over seeds."""
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for result in results:
        if result.method in CORESETS:
            groups.setdefault((result.task, result.configuration), {}).setdefault(result.method, []).append(result)
    if len({result.method for result in results if result.method in CORESETS}) < 2:
        return []
    best = [max(group.values(), key=lambda rows: np.mean([r.value for r in rows])) for group in groups.values()]
    return [Result(r.task, CS_OPT, r.configuration, r.seed, r.value, r.x) for rows in best for r in rows]


def fronts(results: Sequence[Result], method: str) -> dict[int, list[XY]]:
    """The Pareto front of a method on one task, by seed."""
    seeds = sorted({r.seed for r in results if r.method == method and r.x is not None})
    return {
        seed: pareto_front(
            (r.x, r.value) for r in results if r.seed == seed and r.method in (method, DENSE) and r.x is not None
        )
        for seed in seeds
    }


def _by_seed(results: Sequence[Result], method: str, target: float) -> dict[int, float]:
    values = {seed: value_at(front, target) for seed, front in fronts(results, method).items()}
    return {seed: value for seed, value in values.items() if value is not None}


def _estimate(values: Sequence[float]) -> Estimate | None:
    return Estimate.of(values) if values else None


def mean_over_tasks(by_task: Sequence[Mapping[int, float]]) -> Estimate | None:
    """The mean over tasks, seed by seed; None unless every task is observed with the same seeds."""
    seeds = set.intersection(*(set(seeds) for seeds in by_task)) if by_task else set()
    return _estimate([float(np.mean([task[seed] for task in by_task])) for seed in sorted(seeds)])
