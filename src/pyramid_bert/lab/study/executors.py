"""Who runs the cells: this process in turn, some processes at once, or a Ray cluster. The runner sees no difference."""

from __future__ import annotations

import errno
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from ...errors import MissingExtraError
from .grid import Cell

Work = Callable[[Cell], dict[str, Any]]
# After this many cells a process is replaced: torch keeps memory for every shape of tensor, up to gigabytes.
CELLS_A_PROCESS = 16
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Executor(Protocol):
    """Runs cells; `slots` of them at once."""

    slots: int

    @property
    def running(self) -> int:
        """How many were submitted and have not come back."""

    def submit(self, cell: Cell) -> None:
        """Starts a cell. There must be a free slot."""

    def wait(self) -> tuple[Cell, dict[str, Any]]:
        """The next cell to end, and its record: done, or failed with its error."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *error: object) -> None: ...


def attempt(work: Work, cell: Cell) -> dict[str, Any]:
    """The record of a cell; a failed one when `work` raises."""
    try:
        return work(cell)
    except Exception as error:
        return failed(cell, f"{type(error).__name__}: {error}", error.__traceback__, disk=_is_disk(error))


def failed(cell: Cell, reason: str, trace: TracebackType | None = None, *, disk: bool = False) -> dict[str, Any]:
    """The record of a cell that went wrong; `disk` when it is no fault of the cell and no other would do better."""
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


class InTurn:
    """One cell after another, in this process."""

    slots = 1

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting: deque[Cell] = deque()

    @property
    def running(self) -> int:
        """How many were submitted and have not come back."""
        return len(self._waiting)

    def submit(self, cell: Cell) -> None:
        """Queues a cell; `wait` runs it."""
        self._waiting.append(cell)

    def wait(self) -> tuple[Cell, dict[str, Any]]:
        """Runs the cell, and returns it with its record."""
        cell = self._waiting[0]
        record = attempt(self._work, cell)
        self._waiting.popleft()
        return cell, record

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()


class Processes:
    """Some cells at once, each in its own process. A process that dies fails only its cell."""

    def __init__(self, work: Work, slots: int) -> None:
        self.slots = slots
        self._work = work
        self._idle: list[_Worker] = []
        self._busy: dict[Future[dict[str, Any]], tuple[Cell, _Worker]] = {}

    @property
    def running(self) -> int:
        """How many were submitted and have not come back."""
        return len(self._busy)

    def submit(self, cell: Cell) -> None:
        """Gives a cell to an idle process, or to a new one."""
        worker = self._idle.pop() if self._idle else _Worker()
        self._busy[worker.pool.submit(attempt, self._work, cell)] = (cell, worker)

    def wait(self) -> tuple[Cell, dict[str, Any]]:
        """The next cell to end, and its record."""
        future = next(iter(wait(self._busy, return_when=FIRST_COMPLETED).done))
        cell, worker = self._busy.pop(future)
        try:
            record = future.result()
        except BrokenProcessPool:
            worker.pool.shutdown()
            record = failed(cell, f"its process died with exit code {worker.process.exitcode}")
            worker.served = CELLS_A_PROCESS
        worker.served += 1
        if worker.served < CELLS_A_PROCESS:
            self._idle.append(worker)
        else:
            worker.stop()
        return cell, record

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in [*self._idle, *(worker for _, worker in self._busy.values())]:
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


class RayTasks:
    """One cell is one task of a Ray cluster. A task whose worker dies is run again by Ray, up to three times.

    All machines of the cluster need this library, the data, the model and the work folder at the same paths.
    """

    def __init__(self, work: Work, address: str, *, threads: int, slots: int | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "ray", "running a study on a cluster") from error
        self._ray: Any = ray  # only partly typed
        if address == "local":
            ray.init(include_dashboard=False, log_to_driver=False)
        else:
            ray.init(address=address, log_to_driver=False)
        self.slots = slots or max(1, int(self._ray.cluster_resources().get("CPU", 1)) // threads)
        self._task = ray.remote(num_cpus=threads, max_retries=3)(attempt)
        self._work = ray.put(work)
        self._cells: dict[Any, Cell] = {}

    @property
    def running(self) -> int:
        """How many were submitted and have not come back."""
        return len(self._cells)

    def submit(self, cell: Cell) -> None:
        """Makes a cell a task of the cluster."""
        self._cells[self._task.remote(self._work, cell)] = cell

    def wait(self) -> tuple[Cell, dict[str, Any]]:
        """The next cell to end, and its record."""
        (ready,), _ = self._ray.wait(list(self._cells), num_returns=1)
        cell = self._cells.pop(ready)
        try:
            record: dict[str, Any] = self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            record = failed(cell, f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return cell, record

    def __enter__(self) -> RayTasks:
        return self

    def __exit__(self, *error: object) -> None:
        self._ray.shutdown()
