"""The results of a study: one JSON Lines file that is only appended to, and locks that end with their process.

A line with "key" is a record, and the last line of a key counts. What many records share (machine, commit and weights)
is written once, on a line without a key; records refer to it by the number in "at". Lines are appended under a lock, in
one write. A line that a killed process wrote in part has no newline: it is ignored, and removed by the next write.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...errors import PyramidError
from ...files import check_writable
from .grid import Cell

SUFFIX = ".jsonl"
STATES = ("done", "failed", "running", "left")
SHARED = ("machine", "commit", "weights")


@dataclass
class Lock:
    """The right to do something alone. The system releases it when the process ends, however it ends."""

    file: IO[str]

    def release(self) -> None:
        """Lets others have it."""
        self.file.close()


def take_lock(path: Path, *, shared: bool = False) -> Lock | None:
    """The lock of a file, or None while another process has it; any number of processes can hold a shared one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "a")  # noqa: SIM115 - the lock lives as long as the file is open
    for attempt in range(3):  # `Store.is_locked` holds it for a moment
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02 * attempt)
        else:
            return Lock(file)
    file.close()
    return None


class Store:
    """Records by key, in one file. Several processes can write to it at once.

    Args:
        path: The file. It need not exist. Results of version 0.1, in a folder of the same name without the suffix, are
            read as well.

    Example:
        >>> from tempfile import mkdtemp
        >>> store = Store(Path(mkdtemp()) / "mine.jsonl")
        >>> store.write("a", {"status": "done", "machine": {"cores": 2}})
        >>> store.read("a")
        {'status': 'done', 'machine': {'cores': 2}}
    """

    _inode: int
    _end: int  # what is before it has been read
    _shared: dict[int, dict[str, Any]]
    _records: dict[str, dict[str, Any]]

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._forget()

    @classmethod
    def of(cls, folder: str | Path, name: str) -> Store:
        """The results with this name in a folder of results."""
        return cls(Path(folder) / f"{name}{SUFFIX}")

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """All records by key, in the order in which they were first written."""
        self._refresh()
        return self._records

    def read(self, key: str) -> dict[str, Any] | None:
        """A record, or None when there is none."""
        return self.records.get(key)

    def write(self, key: str, record: dict[str, Any]) -> None:
        """Appends a record. It is on disk when this returns."""
        shared = {name: record[name] for name in SHARED if name in record}
        entry = {"key": key, **{name: value for name, value in record.items() if name not in shared}}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._take(file)
            file.truncate(self._end)
            lines = [entry]
            if shared:
                at = next((at for at, known in self._shared.items() if known == shared), None)
                entry["at"] = at or len(self._shared) + 1
                lines = [entry] if at else [{"at": entry["at"], **shared}, entry]
            data = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines).encode()
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
            os.fsync(file.fileno())

    def _refresh(self) -> None:
        """Reads what was appended since the last time."""
        try:
            with open(self.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                self._take(file)
        except FileNotFoundError:
            if self._end:
                self._forget()

    def _take(self, file: Any) -> None:
        found = os.fstat(file.fileno())
        if found.st_ino != self._inode or found.st_size < self._end:
            self._forget()
            self._inode = found.st_ino
        file.seek(self._end)
        whole, newline, _ = file.read().rpartition(b"\n")
        for line in whole.split(b"\n") if newline else ():
            self._add(line)
            self._end += len(line) + 1

    def _add(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            key, at = entry.pop("key", None), entry.pop("at", None)
            if key is None:
                self._shared[int(at)] = entry
            else:
                self._records[key] = {**entry, **({} if at is None else self._shared[at])}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PyramidError(
                f"{self.path} is damaged at byte {self._end} ({error!r}); restore the file, or remove that line: what "
                "it held will be run again"
            ) from error

    def _forget(self) -> None:
        self._inode, self._end = 0, 0
        self._shared, self._records = {}, {}
        old = self.path.parent / self.path.stem  # version 0.1 had a folder with a file for each record
        for file in [*sorted(old.glob("*.json")), *sorted(old.glob("measured/*.json"))]:
            try:
                self._records[file.stem] = json.loads(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise PyramidError(
                    f"{file} is damaged ({error}); remove it, and what it held will be run again"
                ) from error

    def done(self, key: str) -> dict[str, Any] | None:
        """The record of a cell that is done, or None."""
        record = self.read(key)
        return record if record is not None and record["status"] == "done" else None

    def status(self, key: str) -> str | None:
        """Whether a cell is "done" or "failed"; None when there is no record."""
        record = self.read(key)
        return None if record is None else str(record["status"])

    def _lock_file(self, key: str) -> Path:
        return self.path.parent / ".locks" / self.path.stem / key

    def lock(self, key: str) -> Lock | None:
        """The right to run a cell, or None while another process has it."""
        return take_lock(self._lock_file(key))

    def is_locked(self, key: str) -> bool:
        """Whether some process runs this cell now."""
        if not self._lock_file(key).exists():
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
    lock = take_lock(Path(work) / ".locks" / "machine", shared=not alone)
    if lock is None:
        reason = (
            "cells are being run, or speeds measured, with the work folder {}; speeds are measured alone"
            if alone
            else "speeds are being measured with the work folder {}, and cells would slow them down"
        )
        raise PyramidError(f"{reason.format(work)}: give the same command again when that has ended")
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
            if record := store.done(cell.key):
                pace.add(cell, record["seconds"]["total"])
        return pace
