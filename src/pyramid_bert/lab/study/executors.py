"""Who runs the cells: this process in turn, some processes at once, or a Ray cluster. The runner sees no difference."""

from __future__ import annotations

import errno
import os
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ...errors import MissingExtraError
from .grid import Cell

Work = Callable[[Cell], dict[str, Any]]
# After this many cells a process is replaced: torch keeps memory for every shape of tensor, up to gigabytes.
CELLS_A_PROCESS = 16
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Executor:
    """Runs cells, at most `slots` at once. A subclass says how a cell is started, waited for and read."""

    slots = 1

    def __init__(self, work: Work) -> None:
        self._work = work
        self._cells: dict[Any, Cell] = {}  # what a subclass knows a started cell by -> the cell

    @property
    def running(self) -> int:
        """How many were submitted and have not come back."""
        return len(self._cells)

    def submit(self, cell: Cell) -> None:
        """Starts a cell. There must be a free slot."""
        self._cells[self._start(cell)] = cell

    def wait(self) -> tuple[Cell, dict[str, Any]]:
        """The next cell to end, and its record: done, or failed with its error."""
        handle = self._next()
        cell = self._cells.pop(handle)
        return cell, self._record(handle, cell)

    def _start(self, cell: Cell) -> Any:
        raise NotImplementedError

    def _next(self) -> Any:
        raise NotImplementedError

    def _record(self, handle: Any, cell: Cell) -> dict[str, Any]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends what is running."""


def attempt(work: Work, cell: Cell) -> dict[str, Any]:
    """The record of a cell; a failed one when `work` raises."""
    try:
        return work(cell)
    except Exception as error:
        return failed(cell, f"{type(error).__name__}: {error}", error.__traceback__, disk=_is_disk(error))


def failed(cell: Cell, reason: str, trace: TracebackType | None = None, *, disk: bool = False) -> dict[str, Any]:
    """The record of a cell that failed; `disk` if the disk was full or read-only: others would fail too."""
    frames = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in traceback.extract_tb(trace)]
    return {
        "format": 1,
        "id": cell.id,
        "name": cell.name,
        "status": "failed",
        "error": reason,
        "where": frames,
        "disk": disk,
        "cell": cell.to_dict(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _is_disk(error: Exception) -> bool:
    return (isinstance(error, OSError) and error.errno in _DISK) or "No space left on device" in str(error)


class InTurn(Executor):
    """One cell after another, in this process."""

    def _start(self, cell: Cell) -> str:
        return cell.key

    def _next(self) -> Any:
        return next(iter(self._cells))

    def _record(self, handle: Any, cell: Cell) -> dict[str, Any]:
        return attempt(self._work, cell)


class Processes(Executor):
    """Some cells at once, each in its own process. A process that dies fails only its cell."""

    def __init__(self, work: Work, slots: int) -> None:
        super().__init__(work)
        self.slots = slots
        self._idle: list[_Worker] = []
        self._busy: dict[Future[dict[str, Any]], _Worker] = {}

    def _start(self, cell: Cell) -> Future[dict[str, Any]]:
        worker = self._idle.pop() if self._idle else _Worker()
        future = worker.pool.submit(attempt, self._work, cell)
        self._busy[future] = worker
        return future

    def _next(self) -> Any:
        return next(iter(wait(self._cells, return_when=FIRST_COMPLETED).done))

    def _record(self, handle: Any, cell: Cell) -> dict[str, Any]:
        worker = self._busy.pop(handle)
        worker.served += 1
        try:
            record: dict[str, Any] = handle.result()
        except BrokenProcessPool:
            worker.pool.shutdown()
            return failed(cell, f"its process died with exit code {worker.process.exitcode}")
        if worker.served < CELLS_A_PROCESS:
            self._idle.append(worker)
        else:
            worker.stop()
        return record

    def __exit__(self, *error: object) -> None:
        """Ends all processes."""
        for worker in [*self._idle, *self._busy.values()]:
            worker.stop()


class _Worker:
    """A pool of one process: a process that dies breaks its pool, and would fail its neighbours' cells as well."""

    served = 0

    def __init__(self) -> None:
        context = get_context("spawn")  # a forked torch may hang in its thread pool
        self.pool = ProcessPoolExecutor(1, mp_context=context, initializer=_prepare)
        before = active_children()
        self.pool.submit(int)  # starts the process
        (self.process,) = (child for child in active_children() if child not in before)

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self.process.terminate()
        self.pool.shutdown()


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner stops its processes itself
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Ends this process when the runner is gone, for example killed: nobody would take its result."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class RayTasks(Executor):
    """One cell is one task of a Ray cluster. A task whose worker dies is run again by Ray, up to three times.

    All machines of the cluster need this library, the data, the model and the work folder at the same paths.
    """

    def __init__(self, work: Work, address: str, *, threads: int, slots: int | None = None) -> None:
        super().__init__(work)
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "ray", "running a study on a cluster") from error
        self._ray: Any = ray  # only partly typed
        where = {"include_dashboard": False} if address == "local" else {"address": address}
        self._ray.init(log_to_driver=False, **where)
        self.slots = slots or max(1, int(self._ray.cluster_resources().get("CPU", 1)) // threads)
        self._task = self._ray.remote(num_cpus=threads, max_retries=3)(attempt)
        self._shared_work = self._ray.put(work)

    def _start(self, cell: Cell) -> Any:
        return self._task.remote(self._shared_work, cell)

    def _next(self) -> Any:
        (ready,), _ = self._ray.wait(list(self._cells), num_returns=1)
        return ready

    def _record(self, handle: Any, cell: Cell) -> dict[str, Any]:
        try:
            record: dict[str, Any] = self._ray.get(handle)
        except self._ray.exceptions.RayError as error:
            return failed(cell, f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return record

    def __exit__(self, *error: object) -> None:
        """Leaves the cluster."""
        self._ray.shutdown()
