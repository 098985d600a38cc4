"""A study on the terminal: a bar with the time left, a line for each cell that ends, and the table of what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .grid import Cell
from .measurements import Measurements
from .render import duration
from .runner import Watcher
from .store import STATES, Pace, Store


class Display(Watcher):
    """Shows a run on a console, as a context manager."""

    def __init__(self, console: Console, todo: Sequence[Cell], pace: Pace, at_once: int = 1) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self.console = console
        self.bar = Progress(*columns, console=console, transient=True)
        self.task = self.bar.add_task("", total=len(todo))
        self.pace = pace
        self.at_once = at_once
        self.left = {cell.key: cell for cell in todo}
        self.running: dict[str, Cell] = {}

    def started(self, cell: Cell) -> None:
        """Names the cell beside the bar."""
        self.running[cell.key] = cell
        self._describe()

    def finished(self, cell: Cell, record: dict[str, Any] | None) -> None:
        """Moves the bar, and prints what came out."""
        self.running.pop(cell.key, None)
        self.left.pop(cell.key, None)
        if record is not None:
            if "seconds" in record:
                self.pace.add(cell, record["seconds"]["total"])
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
    """How far a study is: cells by state, in all and by task and method, the time left, and what failed.

    Args:
        cells: All of it, or some.
        store: Its results.
        plan: Rows, batch size and rounds of its measurements; None when it asks for none.
    """
    states = {cell.key: store.state(cell.key) for cell in cells}
    groups: dict[tuple[str, str], Counter[str]] = {}
    for cell in cells:
        groups.setdefault((cell.task, cell.method), Counter())[states[cell.key]] += 1
    unfinished = [cell for cell in cells if states[cell.key] in ("left", "running")]
    pace = Pace.of([cell for cell in cells if states[cell.key] == "done"], store)
    total = Counter(states.values())
    listed: list[dict[str, Any]] = [{"id": c.id, "name": c.name, "state": states[c.key]} for c in cells]
    for cell, entry in zip(cells, listed, strict=True):
        if entry["state"] == "failed":
            entry["error"] = (store.read(cell.key) or {}).get("error")
    return {
        "total": {state: total[state] for state in STATES},
        "seconds_left": pace.seconds(unfinished) if unfinished else 0.0,
        "measured": None if plan is None else Measurements(cells, plan, store).status(),
        "groups": [
            {"task": task, "method": method, **{state: count[state] for state in STATES}}
            for (task, method), count in groups.items()
        ],
        "failed": [entry for entry in listed if entry["state"] == "failed"],
        "cells": listed,
    }


def status_table(name: str, status: dict[str, Any]) -> Table:
    """`status_of` as a table: a row a method, a column a task, in each the cells done of all."""
    total, measured = status["total"], status["measured"]
    counts = ", ".join(f"{total[state]} {state}" for state in STATES)
    title = f"{name}: {counts}; {_time_left(status['seconds_left'])} left, one cell at a time"
    if measured is not None:
        title += f"; {measured['done']} of {measured['done'] + measured['left'] + len(measured['failed'])} measured"
    table = Table(title=title)
    tasks = list(dict.fromkeys(group["task"] for group in status["groups"]))
    table.add_column("")
    for task in tasks:
        table.add_column(task, justify="right")
    cells = {(group["method"], group["task"]): group for group in status["groups"]}
    for method in dict.fromkeys(method for method, _ in cells):
        table.add_row(method, *(_progress_of(cells.get((method, task))) for task in tasks))
    return table


def _progress_of(group: dict[str, Any] | None) -> str:
    if group is None:
        return ""
    text = f"{group['done']}/{sum(group[state] for state in STATES)}"
    text += f" [red]{group['failed']} failed[/]" if group["failed"] else ""
    return text + (f" [cyan]{group['running']} running[/]" if group["running"] else "")
