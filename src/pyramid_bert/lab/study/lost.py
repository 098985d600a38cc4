"""Points lost against dense at wanted speed-ups: one configuration of each method, task by task and seed by seed.

Other tables read a metric between the configurations of a method, on straight lines. This one shows only what was run:
a cell that is not done is missing, and every mean says which tasks and seeds it is of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import harmonic_mean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from .. import markdown as md
from .methods import AXES, DENSE, in_order
from .runs import Run, against_dense
from .table import MEAN, NOTHING, Estimate, Result, target_name

NEAR = 1.15  # a configuration up to 15 % faster or slower than the wanted speed-up counts for it


@dataclass(frozen=True)
class Row:
    """One configuration of a method at a wanted speed-up.

    Attributes:
        at: The wanted speed-up.
        method: Its name.
        configuration: The short name of its schedule, or the speed-up that its pyramids were found for.
        changes: Task -> seed -> the metric less the dense model's. Only cells that are done.
        tasks: Those of the mean: every method with any result at this speed-up has them.
        seeds: Those of the mean; all these methods have them on all of `tasks`.
        speeds: Axis -> the harmonic mean of the speed-ups over the cells that are done; None unless all are known.
    """

    at: float
    method: str
    configuration: str
    changes: Mapping[str, Mapping[int, float]]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    speeds: Mapping[str, float | None]

    @property
    def by_seed(self) -> dict[int, float]:
        """The mean over `tasks`, by seed."""
        return {seed: sum(self.changes[task][seed] for task in self.tasks) / len(self.tasks) for seed in self.seeds}

    def to_dict(self) -> dict[str, Any]:
        """JSON: changes in [-1, 1], negative where something is lost."""
        entries = {**self.changes, MEAN: self.by_seed}
        return {
            "at": self.at,
            "method": self.method,
            "configuration": self.configuration,
            "speeds": dict(self.speeds),
            "changes": {
                name: {"mean": Estimate.of(list(of.values())).mean if of else None, "by_seed": of}
                for name, of in entries.items()
            },
            "mean_of": {"tasks": list(self.tasks), "seeds": list(self.seeds)},
        }


@dataclass(frozen=True)
class LostTable:
    """The rows at all wanted speed-ups, and how many cells of each method are done: (done, all)."""

    name: str
    axis: str
    metric: str | None
    tasks: Mapping[str, str]
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    done: Mapping[str, tuple[int, int]]

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return {
            "study": self.name,
            "axis": self.axis,
            "metric": self.metric,
            "tasks": dict(self.tasks),
            "seeds": list(self.seeds),
            "rows": [row.to_dict() for row in self.rows],
            "cells": {method: {"done": done, "all": every} for method, (done, every) in self.done.items()},
        }


# ---- from results to rows ----


def lost_table(run: Run, axis: str, targets: Sequence[float] | None = None, metric: str | None = None) -> LostTable:
    """What each method loses against dense at the wanted speed-ups.

    Args:
        run: The study.
        axis: The speed-ups that are wanted: a key of `AXES`.
        targets: The wanted ones; None for those of the study's file, or else the axis's own.
        metric: One of the recorded metrics; None for the one that each task is judged by.
    """
    at = tuple(targets or run.study.speedups or AXES[axis][1])
    axes = dict.fromkeys((axis, "ideal-c", *(["measured-c"] if run.measured else [])))
    by_axis = {name: _grouped(against_dense(run.results(name, metric))) for name in axes}
    wanted = {(cell.method, cell.configuration): cell.speedup for cell in run.cells} if axis == "ideal-c" else {}
    chosen: dict[tuple[float, str], tuple[float, str]] = {}  # (target, method) -> (distance, configuration)
    for (method, configuration), results in by_axis[axis].items():
        known = [result.x for result in results if result.x is not None]
        if not known:
            continue
        speed = wanted.get((method, configuration)) or harmonic_mean(known)
        distance, target = min((abs(log(speed / target)), target) for target in at)
        if distance <= log(NEAR):
            best = chosen.get((target, method), (distance, configuration))
            chosen[target, method] = min(best, (distance, configuration))
    for (method, configuration), speedup in wanted.items():  # what was asked for and is not done is missing
        if speedup in at:
            chosen.setdefault((speedup, method), (0.0, configuration))
    rows: list[Row] = []
    for target in at:
        configurations = {method: name for (of, method), (_, name) in chosen.items() if of == target}
        keys = [(method, configurations[method]) for method in in_order(configurations)]
        rows += _rows_at(target, {key: {name: by_axis[name].get(key, []) for name in axes} for key in keys}, run.titles)
    cells = [cell for cell in run.cells if not cell.is_dense]
    names = in_order(cell.method for cell in cells)
    mine = {name: [cell.key in run.records for cell in cells if cell.method == name] for name in names}
    done = {name: (sum(of), len(of)) for name, of in mine.items()}
    return LostTable(run.study.name, axis, metric, run.titles, run.study.seeds, tuple(rows), done)


def _grouped(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """The results of each method and configuration, without those of dense."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result.method != DENSE:
            groups.setdefault((result.method, result.configuration), []).append(result)
    return groups


def _speed(results: Sequence[Result]) -> float | None:
    known = [result.x for result in results if result.x is not None]
    return harmonic_mean(known) if len(known) == len(results) > 0 else None


def _rows_at(
    target: float, found: Mapping[tuple[str, str], Mapping[str, Sequence[Result]]], tasks: Iterable[str]
) -> list[Row]:
    """The rows of one speed-up, with the tasks and seeds that all methods with any result have there."""
    changes: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for key, by_axis in found.items():
        results = next(iter(by_axis.values()))
        changes[key] = {task: {r.seed: r.value for r in results if r.task == task} for task in tasks}
    begun = [key for key, of in changes.items() if any(of.values())]
    common = {task: set.intersection(*(set(changes[key][task]) for key in begun)) for task in tasks if begun}
    shared = tuple(task for task, seeds in common.items() if seeds)
    seeds = set.intersection(*(common[task] for task in shared)) if shared else set()
    return [
        Row(
            target,
            *key,
            changes[key],
            shared if seeds and key in begun else (),
            tuple(sorted(seeds)) if key in begun else (),
            {axis: _speed(results) for axis, results in by_axis.items()},
        )
        for key, by_axis in found.items()
    ]


# ---- for people ----


def shown(changes: Mapping[int, float], seeds: Sequence[int]) -> str:
    """Points lost: the mean over seeds, and in brackets each seed of the study.

    Example:
        >>> shown({0: -0.012, 1: -0.004}, [0, 1]), shown({1: 0.003}, [0, 1]), shown({0: -0.01}, [0]), shown({}, [0, 1])
        ('0.8 (1.2, 0.4)', '-0.3 (–, -0.3)', '1.0', '–')
    """
    if not changes:
        return NOTHING
    words = _points(sum(changes.values()) / len(changes))
    each = ", ".join(_points(changes[seed]) if seed in changes else NOTHING for seed in seeds)
    return words if len(seeds) == 1 else f"{words} ({each})"


def _points(change: float) -> str:
    return f"{round(-100 * change, 1) + 0.0:.1f}"  # no minus zero


def _cells(table: LostTable) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table, as texts."""
    axes = list(dict.fromkeys(axis for row in table.rows for axis in row.speeds))
    head = ["at", "", *(axis.replace("-", " over ") for axis in axes), *table.tasks.values()]
    head += [MEAN, "mean of"] if len(table.tasks) > 1 else []
    lines = []
    for number, row in enumerate(table.rows):
        first = number == 0 or table.rows[number - 1].at != row.at
        only = table.done[row.method][1] == len(table.tasks) * len(table.seeds)  # the method has one configuration
        name = row.method if only or row.configuration == f"{row.at:g}x" else f"{row.method} {row.configuration}"
        speeds = [f"{speed:.2f}x" if (speed := row.speeds[axis]) else NOTHING for axis in axes]
        line = [target_name(table.axis, row.at) if first else "", name, *speeds]
        line += [shown(row.changes[task], table.seeds) for task in table.tasks]
        if len(table.tasks) > 1:
            seeds = ", ".join(map(str, row.seeds))
            words = f"{len(row.tasks)} of {len(table.tasks)} tasks, seed{'s' if len(row.seeds) > 1 else ''} {seeds}"
            line += [shown(row.by_seed, table.seeds), words if row.tasks else NOTHING]
        lines.append(line)
    return head, lines


def _title(table: LostTable) -> str:
    metric = "" if table.metric is None else f"{table.metric}, "
    return f"{table.name}: points lost against dense, {metric}by {AXES[table.axis][0]}"


def _notes(table: LostTable) -> str:
    """How to read the table, and what it is not of."""
    each = f": mean and each seed ({', '.join(map(str, table.seeds))})" if len(table.seeds) > 1 else ""
    mean = "The mean is over what every method with results at this speed-up has. " if len(table.tasks) > 1 else ""
    done = ", ".join(f"{name} {done} of {every}" for name, (done, every) in table.done.items())
    return (
        f"Points lost against the dense model that each pyramid was made of{each}; below 0 where it gained, {NOTHING} "
        f"where nothing was run. {mean}Speed-ups are harmonic means over the cells that are done. Cells done: {done}."
    )


def rich_lost(table: LostTable) -> Table:
    """The table for a terminal, with a section for each speed-up."""
    head, lines = _cells(table)
    title = _title(table)
    out = Table(title=title, caption=_notes(table), box=SIMPLE_HEAD, pad_edge=False, padding=0, min_width=78)
    for place, name in enumerate(head):
        out.add_column(name, justify="left" if place < 2 else "right", no_wrap=place < 2)
    for line in lines:
        if line[0]:
            out.add_section()
        out.add_row(*line)
    return out


def markdown_lost(table: LostTable) -> str:
    """The table as Markdown."""
    head, lines = _cells(table)
    return md.joined([f"{_title(table)}.", md.table(head, lines, left=2) if lines else "", _notes(table)])
