"""The runner: finds what is left of a study, runs it, and writes each result at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from ...errors import PyramidError
from .executors import Executor
from .grid import Cell
from .store import Store

if TYPE_CHECKING:
    from .display import Display

POLL_SECONDS = 1.0


@dataclass
class Summary:
    """What happened to the cells that a run was asked for. Cells are blocked when the dense one they need failed."""

    done: list[Cell] = field(default_factory=list)
    failed: list[Cell] = field(default_factory=list)
    blocked: list[Cell] = field(default_factory=list)
    left: list[Cell] = field(default_factory=list)


def choose(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """The cells that match a pattern; all cells when there are no patterns."""
    chosen = [cell for cell in cells if not only or any(cell.matches(pattern) for pattern in only)]
    if not chosen:
        given = ", ".join(map(repr, only))
        raise PyramidError(
            f"no cell is meant by {given}; name a cell by its id, or by a pattern like '*{cells[-1].method}*'"
        )
    return chosen


@dataclass
class Runner:
    """One run over the cells of a study, or over its speed measurements.

    Attributes:
        jobs: Key of each result -> its cell, in the order in which they should run. A cell whose dense cell is a job
            too waits for it.
        store: Where results go.
        chosen: Keys of the wanted results; None for all.
        has_weights: Whether the dense classifier that a cell makes or needs is on disk.
        retry: Run failed cells again.
        again: Run the chosen cells even if they are done.
        limit_minutes: Start no cell after this many minutes.
        display: Shows what happens.
    """

    jobs: Mapping[str, Cell]
    store: Store
    chosen: Collection[str] | None = None
    has_weights: Callable[[Cell], bool] = lambda cell: True
    retry: bool = False
    again: bool = False
    limit_minutes: float | None = None
    display: Display | None = None

    def __post_init__(self) -> None:
        self._wanted = self.jobs if self.chosen is None else self.chosen

    def plan(self) -> dict[str, Cell]:
        """What to run, in order: the chosen cells that are left, and the dense ones that they need."""
        todo = {key for key in self._wanted if self.again or self._is_open(key)}
        for key in list(todo):
            dense = self._dense_of(key)
            if dense and not self._is_ready(dense) and (self.retry or self.store.status(dense) != "failed"):
                todo.add(dense)
        return {key: cell for key, cell in self.jobs.items() if key in todo}

    def go(self, executor: Executor) -> Summary:
        """Runs what `plan` says. Results are on disk when it returns, or is killed."""
        self._todo, self._locks = self.plan(), dict[str, IO[str]]()
        self._again = set(self._todo) if self.again else set()
        failed_before = [key for key in self._wanted if key not in self._todo and self.store.status(key) == "failed"]
        self._summary = Summary(failed=[self.jobs[key] for key in failed_before])
        end = float("inf") if self.limit_minutes is None else time.monotonic() + 60 * self.limit_minutes
        try:
            while self._todo or executor.running:
                self._start(executor, end)
                if executor.running:
                    self._finish(*executor.wait())
                elif time.monotonic() < end and any(self._dense_of(key) in self._todo for key in self._todo):
                    time.sleep(POLL_SECONDS)  # another runner trains a dense classifier that cells here need
                else:
                    break
        finally:
            for lock in self._locks.values():
                lock.close()
        self._summary.left = list(self._todo.values())
        return self._summary

    def _dense_of(self, key: str) -> str | None:
        """The job that has to be done before."""
        dense = self.jobs[key].dense
        return dense if dense in self.jobs else None

    def _is_open(self, key: str) -> bool:
        """Whether there is no result yet, or one that failed and is to be tried again."""
        status = self.store.status(key)
        return status is None or (status == "failed" and self.retry)

    def _is_ready(self, dense: str) -> bool:
        return self.store.status(dense) == "done" and self.has_weights(self.jobs[dense])

    def _start(self, executor: Executor, end: float) -> None:
        """Fills the free slots with cells that can start and that nobody else runs."""
        for key, cell in list(self._todo.items()):
            dense = self._dense_of(key)
            if dense in self._todo or dense in self._locks:
                continue
            if dense and not self._is_ready(dense):
                if self.store.status(dense) == "failed":
                    self._summary.blocked.append(self._todo.pop(key))
                continue
            if len(executor.running) >= executor.slots or time.monotonic() >= end:
                continue
            lock = self.store.lock(key)
            if lock is None:
                continue
            del self._todo[key]
            if not self._is_needed(key):  # another runner was here since the plan was made
                lock.close()
                self._end(key, self.store.status(key), None)
                continue
            self._locks[key] = lock
            if self.display:
                self.display.started(key)
            executor.submit(key, cell)

    def _is_needed(self, key: str) -> bool:
        """Whether a planned cell still has to run, now that it is locked and nobody else can change it."""
        gone = self.store.status(key) == "done" and self.jobs[key].is_dense and not self.has_weights(self.jobs[key])
        return gone or key in self._again or self._is_open(key)

    def _finish(self, key: str, record: dict[str, Any]) -> None:
        name = self.jobs[key].name
        try:
            self.store.write(key, record)
        except OSError as error:
            raise PyramidError(
                f"the result of {name} could not be written: {error}; all others are safe. Make room, then give the "
                "same command again"
            ) from error
        finally:
            self._locks.pop(key).close()
        self._end(key, record["status"], record)
        if record.get("disk"):
            raise PyramidError(
                f"{name}: {record['error']}; the others would fail as well. Make room, then give the same command "
                "with --retry"
            )

    def _end(self, key: str, status: str | None, record: dict[str, Any] | None) -> None:
        (self._summary.done if status == "done" else self._summary.failed).append(self.jobs[key])
        if self.display:
            self.display.finished(key, record)
