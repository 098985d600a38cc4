"""A study on the terminal: a bar with the time left, a line for each cell that ends, and a table of its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ...progress import Bar
from .grid import Cell, measurements, unfound
from .store import STATES, Store
from .table import duration


class Pace:
    """Estimates the time that cells will take from finished ones: seconds for a unit of work, by task.

    Args:
        jobs: Key of each result -> its cell; those that are done count.
        store: The results.
        weight: The amount of work of a cell.
    """

    def __init__(
        self, jobs: Mapping[str, Cell], store: Store, weight: Callable[[Cell], float] = lambda cell: cell.weight
    ) -> None:
        self._weight = weight
        self._spent: dict[str, tuple[float, float]] = {}
        for key, cell in jobs.items():
            self.add(cell, store.read(key) or {})

    def add(self, cell: Cell, record: Mapping[str, Any]) -> None:
        """Takes note of a cell that ended; the record of a failed one has no seconds."""
        if "seconds" in record:
            total, weight = self._spent.get(cell.task, (0.0, 0.0))
            self._spent[cell.task] = (total + record["seconds"]["total"], weight + self._weight(cell))

    def seconds(self, cells: Iterable[Cell], at_once: int = 1) -> float | None:
        """The seconds that `cells` will take, or None when nothing is known."""
        if not self._spent:
            return None
        total, weight = (sum(column) for column in zip(*self._spent.values(), strict=True))
        left = 0.0
        for cell in cells:
            seconds, work = self._spent.get(cell.task, (total, weight))
            left += self._weight(cell) * seconds / work
        return left / at_once


class Display:
    """Shows a run on a console, as a context manager."""

    def __init__(self, console: Console, todo: Mapping[str, Cell], pace: Pace, at_once: int = 1) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self.console = console
        self.bar = Bar(*columns, console=console)
        self.task = self.bar.add_task("", total=len(todo))
        self.pace = pace
        self.at_once = at_once
        self.left = dict(todo)
        self.running: dict[str, Cell] = {}

    def started(self, key: str) -> None:
        """Names the cell beside the bar."""
        self.running[key] = self.left[key]
        self._describe()

    def finished(self, key: str, record: dict[str, Any] | None) -> None:
        """Moves the bar, and prints the result; there is no record when another runner made it."""
        self.running.pop(key, None)
        cell = self.left.pop(key)
        if record is not None:
            self.pace.add(cell, record)
            self.console.print(outcome(cell, record))
        self.bar.advance(self.task)
        self._describe()

    def _describe(self) -> None:
        seconds = self.pace.seconds(self.left.values(), self.at_once)
        names = ", ".join(cell.name for cell in self.running.values())
        self.bar.update(self.task, description=escape(f"{_time_left(seconds)} left; running {names}"))

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()


def outcome(cell: Cell, record: dict[str, Any]) -> str:
    """One line on how a cell or a measurement ended, in rich's markup."""
    if record["status"] == "failed":
        return f"[red]failed[/] {escape(cell.name)}: {escape(record['error'])}"
    if "over_c" in record:
        return f"measured {escape(cell.name)}: {record['over_c']:.2f}x over c, {record['over_a']:.2f}x over a"
    return (
        f"done {escape(cell.name)}: {record['metric']} {100 * record['value']:.1f} at "
        f"{record['ideal']['over_c']:.2f}x ideal over c, {record['seconds']['total']:.0f} s"
    )


def _time_left(seconds: float | None) -> str:
    return "unknown time" if seconds is None else duration(seconds)


def status_of(cells: Sequence[Cell], store: Store, plan: Mapping[str, int] | None = None) -> dict[str, Any]:
    """How far a study is: cells by state, in total and by task and method, the time left, and what failed.

    `plan` has rows, batch size and rounds of the measurements; None when the study asks for none.
    """
    jobs = {cell.key: cell for cell in cells}
    states = {key: store.state(key) for key in jobs}
    groups: dict[tuple[str, str], Counter[str]] = {}
    for key, cell in jobs.items():
        groups.setdefault((cell.task, cell.method), Counter())[states[key]] += 1
    unfinished = [cell for key, cell in jobs.items() if states[key] in ("left", "running")]
    listed = [_entry(cell, states[key], store.read(key)) for key, cell in jobs.items()]
    total = Counter(states.values())
    return {
        "total": {state: total[state] for state in STATES},
        "seconds_left": Pace(jobs, store).seconds(unfinished) if unfinished else 0.0,
        "measured": None if plan is None else _measured(cells, store, plan),
        "groups": [
            {"task": task, "method": method, **{state: count[state] for state in STATES}}
            for (task, method), count in groups.items()
        ],
        "failed": [entry for entry in listed if entry["state"] == "failed"],
        "cells": listed,
    }


def _entry(cell: Cell, state: str, record: Mapping[str, Any] | None) -> dict[str, Any]:
    reason = {"error": record["error"]} if record and record["status"] == "failed" and state != "running" else {}
    return {"id": cell.id, "name": cell.name, "state": state, **reason}


def _measured(cells: Sequence[Cell], store: Store, plan: Mapping[str, int]) -> dict[str, Any]:
    wanted = measurements(cells, store.done, plan)
    states = {key: store.status(key) for key in wanted}
    count = Counter(states.values())
    failed = [_entry(wanted[key], "not measured", store.read(key)) for key in wanted if states[key] == "failed"]
    waiting = len(unfound(cells, store.done))
    return {"done": count["done"], "left": count[None], "waiting": waiting, "failed": failed}


def status_table(name: str, status: dict[str, Any]) -> Table:
    """`status_of` as a table: a row per method, a column per task, in each the cells done of all."""
    total, measured = status["total"], status["measured"]
    counts = ", ".join(f"{total[state]} {state}" for state in STATES)
    title = f"{name}: {counts}; {_time_left(status['seconds_left'])} left, one cell at a time"
    if measured is not None:
        title += f"; {measured['done']} of {measured['done'] + measured['left'] + len(measured['failed'])} measured"
        title += f", {measured['waiting']} pyramids not found yet" if measured["waiting"] else ""
    groups = {(group["method"], group["task"]): group for group in status["groups"]}
    tasks = list(dict.fromkeys(task for _, task in groups))
    table = Table(title=title)
    table.add_column("")
    for task in tasks:
        table.add_column(task, justify="right")
    for method in dict.fromkeys(method for method, _ in groups):
        table.add_row(method, *(_progress_of(groups.get((method, task))) for task in tasks))
    return table


def _progress_of(group: dict[str, Any] | None) -> str:
    if group is None:
        return ""
    text = f"{group['done']}/{sum(group[state] for state in STATES)}"
    text += f" [red]{group['failed']} failed[/]" if group["failed"] else ""
    return text + (f" [cyan]{group['running']} running[/]" if group["running"] else "")
