"""The results of a study on disk: one JSON file a cell, whole or not there, and locks that die with their owner."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...errors import PyramidError
from ...files import check_writable, write_text
from .grid import Cell

STATES = ("done", "failed", "running", "left")


@dataclass
class Lock:
    """The right to run a cell. The system takes it back when the process ends, however it ends."""

    file: IO[str]

    def release(self) -> None:
        """Lets others have the cell."""
        self.file.close()


class Store:
    """A folder of records by key."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """The file of a record."""
        return self.folder / f"{key}.json"

    def read(self, key: str) -> dict[str, Any] | None:
        """A record, or None when there is none."""
        path = self.path(key)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise PyramidError(f"{path} is damaged ({error}); remove it, and its cell will be run again") from error
        if not isinstance(record, dict) or "status" not in record:
            raise PyramidError(f"{path} is not a study's result; move it elsewhere")
        return record

    def write(self, key: str, record: dict[str, Any]) -> None:
        """Writes a record, and removes what a killed process left of it."""
        for left in self.folder.glob(f".{key}.json.*"):
            left.unlink(missing_ok=True)
        write_text(self.path(key), json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n")

    def status(self, key: str) -> str | None:
        """Whether a cell is "done" or "failed"; None when there is no record."""
        record = self.read(key)
        return None if record is None else str(record["status"])

    def lock(self, key: str, *, shared: bool = False) -> Lock | None:
        """The right to run a cell, or None while another process has it; any number may share one."""
        folder = self.folder / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / key, "a")  # noqa: SIM115 - the lock lives as long as the file is open
        for attempt in range(3):  # somebody may just be looking at it
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02 * attempt)
            else:
                return Lock(file)
        file.close()
        return None

    def is_locked(self, key: str) -> bool:
        """Whether some process runs this cell now."""
        if not (self.folder / ".locks" / key).exists():
            return False
        lock = self.lock(key)
        if lock is not None:
            lock.release()
        return lock is None

    def state(self, key: str) -> str:
        """One of `STATES`."""
        status = self.status(key)
        if status != "done" and self.is_locked(key):
            return "running"
        return status or "left"


@contextmanager
def machine(work: str | Path, *, alone: bool) -> Iterator[None]:
    """Keeps cells and measurements apart: runners share a work folder, but one that measures speeds has it alone."""
    check_writable(Path(work))
    lock = Store(work).lock("machine", shared=not alone)
    if lock is None and alone:
        raise PyramidError(
            f"cells are being run, or speeds measured, with the work folder {work}; speeds are measured alone: give "
            "the same command again when that has ended"
        )
    if lock is None:
        raise PyramidError(
            f"speeds are being measured with the work folder {work}, and cells would slow them down; give the same "
            "command again when that has ended"
        )
    try:
        yield
    finally:
        lock.release()


class Pace:
    """Guesses the time that cells will take from those that are done: seconds for a unit of work, by task.

    Args:
        weight: The work that a cell is.
    """

    def __init__(self, weight: Callable[[Cell], float] = lambda cell: cell.weight) -> None:
        self._weight = weight
        self._spent: dict[str, tuple[float, float]] = {}

    def add(self, cell: Cell, seconds: float) -> None:
        """Takes note of a cell that is done."""
        total, weight = self._spent.get(cell.task, (0.0, 0.0))
        self._spent[cell.task] = (total + seconds, weight + self._weight(cell))

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

    @classmethod
    def of(cls, cells: Iterable[Cell], store: Store) -> Pace:
        """The pace of the cells that are done already."""
        pace = cls()
        for cell in cells:
            record = store.read(cell.key)
            if record is not None and record["status"] == "done":
                pace.add(cell, record["seconds"]["total"])
        return pace
