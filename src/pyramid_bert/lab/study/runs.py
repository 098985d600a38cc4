"""What is done of experiments, study by study: their records, their tables, and points lost against dense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

from ..glue.tasks import TASKS
from ..lra.presets import LRA_NAMES
from .grid import Cell
from .methods import DENSE, in_order
from .spec import Study, load_study
from .store import Store
from .table import Estimate, Result, StudyTable, collect, mean_over_tasks, tabulate

SHARED = "study"  # the key of the record on what all results of a study share


@dataclass(frozen=True)
class Run:
    """An experiment and what is done of it.

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
        return self.study.cells(TASKS)

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
        """The pretrained model's name, layers and sizes; None where no run wrote them down."""
        found: dict[str, Any] | None = (self.store.read(SHARED) or {}).get("model")
        return found

    @cached_property
    def measurements(self) -> dict[str, dict[str, Any] | None]:
        """The records of the speed measurements that the experiment asks for, None where there is none."""
        plan = self.study.measure
        keys = dict.fromkeys(cell.measurement(plan) for cell in self.cells if not cell.is_dense) if plan else {}
        return {key: self.store.done(key) for key in keys}

    @property
    def measured(self) -> bool:
        """Whether any speed was measured."""
        return any(self.measurements.values())

    @property
    def titles(self) -> dict[str, str]:
        """Task -> its name in papers."""
        return {task: TASKS[task].title for task in self.study.tasks}

    def results(self, axis: str) -> list[Result]:
        """What is done, with its place on an axis."""
        return collect(self.cells, self.store, axis, self.study.measure)

    def table(self, axis: str, targets: Sequence[float]) -> StudyTable:
        """The metric at the targets."""
        return tabulate(self.results(axis), axis, self.titles, targets)

    def lost(self, axis: str, targets: Sequence[float]) -> StudyTable:
        """What is lost against dense at the targets, as negative numbers."""
        return tabulate(against_dense(self.results(axis)), axis, self.titles, targets)


def load_runs(experiments: Path, results: Path) -> list[Run]:
    """The experiments with at least one finished cell, by name."""
    return [run for run in all_runs(experiments, results) if run.records]


def all_runs(experiments: Path, results: Path) -> list[Run]:
    """All experiments by name, done or not; those of Long Range Arena are on another page."""
    runs = []
    for path in sorted(experiments.glob("*.toml")):
        study = load_study(path)
        if not set(study.tasks).isdisjoint(LRA_NAMES):
            continue
        runs.append(Run(f"{experiments.name}/{path.name}", study, Store.of(results, study.name)))
    return sorted(runs, key=lambda run: run.study.name)


def against_dense(results: Sequence[Result]) -> list[Result]:
    """The results less the dense one of the same task and seed; those without one are left out."""
    dense = {(r.task, r.seed): r.value for r in results if r.method == DENSE}
    return [replace(r, value=r.value - dense[r.task, r.seed]) for r in results if (r.task, r.seed) in dense]


# ---- configurations ----


@dataclass(frozen=True)
class Point:
    """One configuration of a method, over all tasks.

    Attributes:
        method: Its name.
        configuration: In a word.
        change: The metric less dense's: mean over tasks, seed by seed, then over seeds.
        speeds: Axis -> the speed-up on each task.
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
        """Points lost against dense. Rounded, so that one point lost is not a hair more than one."""
        return round(-100 * self.change.mean, 6)


def points(run: Run) -> list[Point]:
    """The configurations that are done on all tasks of a study."""
    axes = ("ideal-c", "measured-c") if run.measured else ("ideal-c",)
    by_axis = {axis: [r for r in against_dense(run.results(axis)) if r.method != DENSE] for axis in axes}
    pairs = dict.fromkeys((r.method, r.configuration) for r in by_axis["ideal-c"])
    made = []
    for method in in_order(name for name, _ in pairs):
        for configuration in (word for name, word in pairs if name == method):
            rows = {
                axis: [r for r in results if (r.method, r.configuration) == (method, configuration)]
                for axis, results in by_axis.items()
            }
            by_task = [{r.seed: r.value for r in rows["ideal-c"] if r.task == task} for task in run.study.tasks]
            change = mean_over_tasks(by_task)
            if change is not None:
                speeds = {axis: _by_task(found, run.titles) for axis, found in rows.items()}
                made.append(Point(method, configuration, change, speeds))
    return made


def _by_task(results: Sequence[Result], tasks: Mapping[str, str]) -> tuple[float, ...]:
    """The speed-up on each task, the same for all seeds; empty unless it is known for all of them."""
    speeds = {r.task: r.x for r in results if r.x is not None}
    return tuple(speeds[task] for task in tasks) if len(speeds) == len(tasks) else ()
