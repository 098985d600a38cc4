"""The runner: finds what is left of a study, runs it, and writes each result at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import PyramidError
from .executors import Executor
from .grid import Cell
from .store import Lock, Store

POLL_SECONDS = 1.0


class Watcher:
    """Is told what happens; does nothing with it. `display.Display` shows it."""

    def started(self, cell: Cell) -> None:
        """A cell was started here."""

    def finished(self, cell: Cell, record: dict[str, Any] | None) -> None:
        """A cell is done or failed; None when another runner did it."""


@dataclass
class Summary:
    """What became of the cells that a run was asked for."""

    done: list[Cell] = field(default_factory=list)
    failed: list[Cell] = field(default_factory=list)
    blocked: list[Cell] = field(default_factory=list)
    left: list[Cell] = field(default_factory=list)


def choose(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """The cells that the patterns mean; all when there are none."""
    chosen = [cell for cell in cells if not only or any(cell.matches(pattern) for pattern in only)]
    if not chosen:
        given = ", ".join(map(repr, only))
        raise PyramidError(
            f"no cell is meant by {given}; name a cell by its id, or by a pattern like '*{cells[-1].method}*'"
        )
    return chosen


@dataclass
class Runner:
    """One run over the cells of a study.

    Attributes:
        cells: All cells of the study.
        store: Where results go.
        has_weights: Whether the dense classifier of a key is on disk.
        retry: Run failed cells again.
        again: Run the chosen cells even if they are done.
        limit_minutes: Start no cell after this many minutes.
        watcher: Is told what happens.
    """

    cells: Sequence[Cell]
    store: Store
    has_weights: Callable[[str], bool]
    retry: bool = False
    again: bool = False
    limit_minutes: float | None = None
    watcher: Watcher = field(default_factory=Watcher)

    def plan(self, chosen: Sequence[Cell]) -> list[Cell]:
        """The cells to run, in order: what is left of `chosen`, and the dense ones that these start from."""
        todo = {cell.key for cell in chosen if self._is_left(cell)}
        for cell in self.cells:
            if cell.key not in todo or cell.dense is None or self._dense_is_ready(cell.dense):
                continue
            if self.retry or self.store.status(cell.dense) != "failed":
                todo.add(cell.dense)
        return [cell for cell in self.cells if cell.key in todo]

    def go(self, chosen: Sequence[Cell], executor: Executor) -> Summary:
        """Runs what is left of `chosen`. Results are on disk when it returns, or is killed."""
        self._summary, self._locks = Summary(), dict[str, Lock]()
        self._todo = {cell.key: cell for cell in self.plan(chosen)}
        failed_before = (cell for cell in chosen if self.store.status(cell.key) == "failed")
        self._summary.failed = [cell for cell in failed_before if cell.key not in self._todo]
        self._again = set(self._todo) if self.again else set()
        self._began = time.monotonic()
        try:
            while self._todo or executor.running:
                self._drop_blocked()
                self._start(executor)
                if executor.running:
                    self._finish(*executor.wait())
                elif self._waits_for_others() and not self._is_late():
                    time.sleep(POLL_SECONDS)
                else:
                    break
        finally:
            for lock in self._locks.values():
                lock.release()
        self._summary.left = list(self._todo.values())
        return self._summary

    def _is_left(self, cell: Cell) -> bool:
        status = self.store.status(cell.key)
        return self.again or status is None or (status == "failed" and self.retry)

    def _dense_is_ready(self, key: str) -> bool:
        return self.store.status(key) == "done" and self.has_weights(key)

    def _is_late(self) -> bool:
        return self.limit_minutes is not None and time.monotonic() - self._began >= 60 * self.limit_minutes

    def _drop_blocked(self) -> None:
        """Gives up the cells whose dense model failed."""
        for key, cell in list(self._todo.items()):
            dense = cell.dense
            if dense is None or dense in self._todo or dense in self._locks:
                continue
            if self.store.status(dense) == "failed":
                self._summary.blocked.append(self._todo.pop(key))

    def _start(self, executor: Executor) -> None:
        """Fills the free slots with cells that can start and that nobody else runs."""
        for key, cell in list(self._todo.items()):
            if executor.running >= executor.slots or self._is_late():
                return
            if cell.dense is not None and (
                cell.dense in self._todo or cell.dense in self._locks or not self._dense_is_ready(cell.dense)
            ):
                continue
            lock = self.store.lock(key)
            if lock is None:
                continue
            del self._todo[key]
            if self._was_done_by_another(cell):
                lock.release()
                continue
            self._locks[key] = lock
            self.watcher.started(cell)
            executor.submit(cell)

    def _was_done_by_another(self, cell: Cell) -> bool:
        """Looks again, now that nobody can change it: another runner may have been here since the plan was made."""
        if cell.key in self._again:
            return False
        status = self.store.status(cell.key)
        if status == "done" and cell.is_dense and not self.has_weights(cell.key):
            return False
        if status is None or (status == "failed" and self.retry):
            return False
        (self._summary.done if status == "done" else self._summary.failed).append(cell)
        self.watcher.finished(cell, None)
        return True

    def _finish(self, cell: Cell, record: dict[str, Any]) -> None:
        try:
            self.store.write(cell.key, record)
        except OSError as error:
            raise PyramidError(
                f"the result of {cell.name} could not be written: {error}; all others are safe. Make room, then give "
                "the same command again"
            ) from error
        finally:
            self._locks.pop(cell.key).release()
        (self._summary.done if record["status"] == "done" else self._summary.failed).append(cell)
        self.watcher.finished(cell, record)
        if record.get("disk"):
            raise PyramidError(
                f"{cell.name}: {record['error']}; the others would fail as well. Make room, then give the same command "
                "with --retry"
            )

    def _waits_for_others(self) -> bool:
        """Whether a cell is left that can start once a dense model that another runner trains is there."""
        return any(cell.dense in self._todo for cell in self._todo.values())
