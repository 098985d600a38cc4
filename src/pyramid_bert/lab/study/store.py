"""The results of a study: one JSON Lines file that is only appended to, and locks that end with their process.

A line with "key" is a record; the last line of a key counts. What many records share (machine, commit and weights) is
written once, on a line without a key, and records refer to it by the number in "at". Lines are appended under a lock,
in one write. A line that a killed process wrote in part has no newline: it is ignored, and the next write removes it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ...errors import PyramidError
from ...files import check_writable, take_lock

SUFFIX = ".jsonl"
STATES = ("done", "failed", "running", "left")
SHARED = ("machine", "commit", "weights")


@contextmanager
def machine(work: str | Path, *, alone: bool) -> Iterator[None]:
    """Keeps cells and measurements apart: runners share a work folder, but measuring speeds needs it exclusively."""
    check_writable(Path(work))
    lock = take_lock(Path(work) / ".locks" / "machine", shared=not alone)
    if lock is None:
        reason = (
            "cells are being run, or speeds measured, with the work folder {}; speeds are measured alone"
            if alone
            else "speeds are being measured with the work folder {}, and cells would slow them down"
        )
        raise PyramidError(f"{reason.format(work)}: give the same command again when that has ended")
    with lock:
        yield


class Store:
    """Records by key, in one file. Several processes can write to it at once.

    Args:
        path: The file; it need not exist. Results of version 0.1, in a folder of the same name without the suffix, are
            read as well.

    Example:
        >>> from tempfile import mkdtemp
        >>> store = Store(Path(mkdtemp()) / "mine.jsonl")
        >>> store.write("a", {"status": "done", "machine": {"cores": 2}})
        >>> store.read("a")
        {'status': 'done', 'machine': {'cores': 2}}
    """

    _inode: int
    _end: int  # everything before it has been read
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
        try:
            with open(self.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                self._read_new_lines(file)
        except FileNotFoundError:
            if self._end:
                self._forget()
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
            self._read_new_lines(file)
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

    def _read_new_lines(self, file: Any) -> None:
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

    def status(self, key: str) -> str | None:
        """Whether a cell is "done" or "failed"; None when there is no record."""
        return (self.read(key) or {}).get("status")

    def done(self, key: str) -> dict[str, Any] | None:
        """The record of a cell that is done, or None."""
        return self.read(key) if self.status(key) == "done" else None

    def state(self, key: str) -> str:
        """One of `STATES`."""
        status = self.status(key)
        if status != "done" and self._lock_file(key).exists():
            lock = self.lock(key)
            if lock is None:
                return "running"
            lock.close()
        return status or "left"

    def lock(self, key: str) -> IO[str] | None:
        """The right to run a cell, or None while another process has it; closing the file gives it back."""
        return take_lock(self._lock_file(key))

    def _lock_file(self, key: str) -> Path:
        return self.path.parent / ".locks" / self.path.stem / key
