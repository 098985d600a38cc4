"""The speed measurements of a study: what is wanted, what is left, and the loop that makes them one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .executors import attempt
from .grid import Cell
from .runner import Summary, Watcher
from .store import Pace, Store


@dataclass(frozen=True)
class Measurements:
    """What `study run --measure` measures; cells that differ by seed or training share one.

    Attributes:
        cells: The chosen cells.
        plan: Rows, batch size and rounds.
        store: The results of the study.
    """

    cells: Sequence[Cell]
    plan: Mapping[str, int]
    store: Store

    @cached_property
    def wanted(self) -> dict[str, Cell]:
        """Key of a measurement -> the first cell that it belongs to."""
        first: dict[str, Cell] = {}
        for cell in self.cells:
            if not cell.is_dense:
                first.setdefault(cell.measurement(self.plan), cell)
        return first

    def left(self, *, retry: bool = False, again: bool = False) -> dict[str, Cell]:
        """Those of `wanted` that are to be made: not made yet, or failed if `retry`, or all if `again`."""
        redo = (None, "failed") if retry else (None,)
        return {key: cell for key, cell in self.wanted.items() if again or self.store.status(key) in redo}

    def pace(self) -> Pace:
        """The time that they take, from those that are made: the dense model padded to N takes most of it."""
        pace = Pace(lambda cell: cell.max_length)
        for key, cell in self.wanted.items():
            record = self.store.read(key)
            if record is not None and "seconds" in record:
                pace.add(cell, record["seconds"]["total"])
        return pace

    def status(self) -> dict[str, Any]:
        """How many are made and how many are left, and what failed."""
        records = [self.store.read(key) for key in self.wanted]
        failed = [
            {"id": cell.id, "name": cell.name, "state": "not measured", "error": record["error"]}
            for cell, record in zip(self.wanted.values(), records, strict=True)
            if record is not None and record["status"] == "failed"
        ]
        left = records.count(None)
        return {"done": len(records) - len(failed) - left, "left": left, "failed": failed}

    def run(
        self, todo: Mapping[str, Cell], work: Callable[[Cell], dict[str, Any]], watcher: Watcher | None = None
    ) -> Summary:
        """Measures, and writes each record at once. What failed before and is not in `todo` counts as failed.

        Args:
            todo: From `left`.
            work: Makes the record of a cell's measurement.
            watcher: Is told what happens.
        """
        watcher = watcher or Watcher()
        before = [cell for key, cell in self.wanted.items() if key not in todo and self.store.status(key) == "failed"]
        summary = Summary(failed=before)
        for key, cell in todo.items():
            watcher.started(cell)
            record = attempt(work, cell)
            self.store.write(key, record)
            (summary.done if record["status"] == "done" else summary.failed).append(cell)
            watcher.finished(cell, record)
        return summary
