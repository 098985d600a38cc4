"""Studies and their results: records, tables, and points lost against dense."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

from ..lra.presets import LRA_NAMES
from .arena import STUDY_TASKS
from .experiment import Study
from .grid import Cell, measurements
from .methods import DENSE, in_order
from .spec import load_study
from .store import Store
from .table import Estimate, Result, StudyTable, collect, mean_over_tasks, tabulate

SHARED = "study"  # the key of the record on what all results of a study share


@dataclass(frozen=True)
class Run:
    """An experiment and its results so far.

    Attributes:
        file: The experiment file, as commands name it.
        study: The experiment.
        store: Its results.
    """

    file: str
    study: Study
    store: Store

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells of the experiment."""
        return self.study.cells(STUDY_TASKS)

    @cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        """The records of the cells that are done, by the cell's key."""
        return {cell.key: record for cell in self.cells if (record := self.store.done(cell.key))}

    @cached_property
    def failed(self) -> int:
        """The number of cells that failed."""
        return sum(self.store.status(cell.key) == "failed" for cell in self.cells)

    @cached_property
    def model(self) -> dict[str, Any] | None:
        """The pretrained model's name, layers and sizes; None if no run recorded them."""
        return (self.store.read(SHARED) or {}).get("model")

    @cached_property
    def measurements(self) -> dict[str, dict[str, Any] | None]:
        """The records of the speed measurements that the experiment asks for, None where there is none."""
        plan = self.study.measure
        wanted = measurements(self.cells, self.records.get, plan) if plan else {}
        return {key: self.store.done(key) for key in wanted}

    @property
    def measured(self) -> bool:
        """Whether any speed was measured."""
        return any(self.measurements.values())

    @property
    def titles(self) -> dict[str, str]:
        """Task -> its name in papers."""
        return {task: STUDY_TASKS[task].title for task in self.study.tasks}

    def results(self, axis: str, metric: str | None = None) -> list[Result]:
        """The finished cells with their places on an axis; `metric` is None for each task's own."""
        return collect(self.cells, self.store, axis, self.study.measure, metric)

    def table(self, axis: str, targets: Sequence[float]) -> StudyTable:
        """The metric at the targets."""
        return tabulate(self.results(axis), axis, self.titles, targets)

    def lost(self, axis: str, targets: Sequence[float]) -> StudyTable:
        """What is lost against dense at the targets, as negative numbers."""
        return tabulate(against_dense(self.results(axis)), axis, self.titles, targets)


def all_runs(experiments: Path, results: Path) -> list[Run]:
    """All experiments by name, done or not; those of Long Range Arena are on another page."""
    studies = {f"{experiments.name}/{path.name}": load_study(path) for path in experiments.glob("*.toml")}
    runs = [
        Run(file, study, Store.of(results, study.name))
        for file, study in studies.items()
        if set(study.tasks).isdisjoint(LRA_NAMES)
    ]
    return sorted(runs, key=lambda run: run.study.name)


def against_dense(results: Sequence[Result]) -> list[Result]:
    """The results less the dense model that each was made of; its own record says what that scored.

    Where it does not, the dense result of the same task and seed counts. Results without either are left out.
    """
    latest = {(r.task, r.seed): r.value for r in results if r.method == DENSE}
    dense = [latest.get((r.task, r.seed)) if r.dense is None else r.dense for r in results]
    return [
        replace(r, value=r.value - before, dense=before)
        for r, before in zip(results, dense, strict=True)
        if before is not None
    ]


@dataclass(frozen=True)
class Point:
    """One configuration of a method, over all tasks.

    Attributes:
        method: Its name.
        configuration: The short name of its schedule.
        change: The metric less dense's: mean over tasks, seed by seed, then over seeds.
        speeds: Axis -> the speed-up on each task, the harmonic mean over seeds; empty unless it is known for all.
    """

    method: str
    configuration: str
    change: Estimate
    speeds: Mapping[str, tuple[float, ...]]

    def speed(self, axis: str) -> float | None:
        """The harmonic mean of the speed-ups over tasks; None unless it is known for all of them."""
        speeds = self.speeds.get(axis)
        return round(harmonic_mean(speeds), 6) if speeds else None

    @property
    def lost(self) -> float:
        """Points lost against dense, rounded, so that exactly one point is not more than one."""
        return round(-100 * self.change.mean, 6)


def points(run: Run) -> list[Point]:
    """The configurations that are done on all tasks of a study."""
    axes = ("ideal-c", "measured-c") if run.measured else ("ideal-c",)
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for axis in axes:
        for result in against_dense(run.results(axis)):
            group = groups.setdefault((result.method, result.configuration), {axis: [] for axis in axes})
            group[axis].append(result)
    made = []
    for name in in_order(method for method, _ in groups):
        for (method, configuration), by_axis in groups.items():
            values = [{r.seed: r.value for r in by_axis["ideal-c"] if r.task == task} for task in run.study.tasks]
            if method == name and (change := mean_over_tasks(values)):
                speeds = {axis: _by_task(found, run.study.tasks) for axis, found in by_axis.items()}
                made.append(Point(method, configuration, change, speeds))
    return made


def _by_task(results: Sequence[Result], tasks: Collection[str]) -> tuple[float, ...]:
    """The speed-up on each task, over seeds: they can find different pyramids. Empty unless all are known."""
    speeds: dict[str, list[float | None]] = {task: [] for task in tasks}
    for result in results:
        speeds[result.task].append(result.x)
    known = [[x for x in found if x is not None] for found in speeds.values()]
    if any(len(some) < max(1, len(found)) for some, found in zip(known, speeds.values(), strict=True)):
        return ()
    return tuple(harmonic_mean(found) for found in known)
