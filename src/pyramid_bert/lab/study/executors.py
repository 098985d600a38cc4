"""Where cells run: one by one in this process, in several processes, or on a Ray cluster."""

from __future__ import annotations

import errno
import os
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

from ...errors import MissingExtraError
from .grid import Cell

Work = Callable[[Cell], dict[str, Any]]
# After this many cells a process is replaced: torch keeps memory for every shape of tensor, up to gigabytes.
CELLS_PER_PROCESS = 16
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Executor:
    """Runs cells in turn, in this process. Subclasses run up to `slots` of them at once.

    `running` maps a handle of each submitted cell to its key and the cell.
    """

    slots = 1

    def __init__(self, work: Work) -> None:
        self.work = work
        self.running: dict[Any, tuple[str, Cell]] = {}

    def submit(self, key: str, cell: Cell) -> None:
        """Starts a cell. There must be a free slot."""
        self.running[key] = (key, cell)

    def wait(self) -> tuple[str, dict[str, Any]]:
        """The key of the next cell to end, and its record: done, or failed with its error."""
        key, cell = self.running.popitem()[1]
        return key, attempt(self.work, cell)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends what is running."""


def attempt(work: Work, cell: Cell) -> dict[str, Any]:
    """The record of a cell; a failed one when `work` raises."""
    try:
        return work(cell)
    except Exception as error:
        disk = (isinstance(error, OSError) and error.errno in _DISK) or "No space left on device" in str(error)
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        return {**failed(cell, f"{type(error).__name__}: {error}"), "where": where, "disk": disk}


def failed(cell: Cell, reason: str) -> dict[str, Any]:
    """The record of a failed cell. "disk" is true if the disk was full or read-only: other cells would fail too."""
    return {
        "format": 1,
        "id": cell.id,
        "name": cell.name,
        "status": "failed",
        "error": reason,
        "where": [],
        "disk": False,
        "cell": cell.to_dict(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class Processes(Executor):
    """Several cells at once, each in its own process. A process that dies fails only its cell."""

    def __init__(self, work: Work, slots: int) -> None:
        super().__init__(work)
        self.slots = slots
        self._workers: dict[Connection, _Worker] = {}

    def submit(self, key: str, cell: Cell) -> None:
        """Starts a cell in an idle process, or in a new one."""
        pipe = next((pipe for pipe in self._workers if pipe not in self.running), None)
        if pipe is None:
            worker = _Worker(self.work)
            pipe = worker.pipe
            self._workers[pipe] = worker
        with suppress(BrokenPipeError):  # the process died while idle: `wait` will find out
            pipe.send(cell)
        self.running[pipe] = (key, cell)

    def wait(self) -> tuple[str, dict[str, Any]]:
        """The key of the next cell to end, and its record; a failed one if its process died."""
        pipe: Any = wait(list(self.running))[0]
        key, cell = self.running.pop(pipe)
        worker = self._workers[pipe]
        worker.served += 1
        try:
            record: dict[str, Any] = pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            record = failed(cell, f"its process died with exit code {worker.process.exitcode}")
        if worker.process.exitcode is not None or worker.served == CELLS_PER_PROCESS:
            self._workers.pop(pipe).stop()
        return key, record

    def __exit__(self, *error: object) -> None:
        """Ends all processes."""
        for worker in self._workers.values():
            worker.stop()


class _Worker:
    """A process that runs one cell after another, and the pipe to it."""

    def __init__(self, work: Work) -> None:
        context = get_context("spawn")  # a forked torch may hang in its thread pool
        self.pipe, other_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(work, other_end))
        self.process.start()
        other_end.close()  # now only the process has it: when it dies, reading ends instead of waiting
        self.served = 0

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def _serve(work: Work, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner stops its processes itself
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        pipe.send(attempt(work, pipe.recv()))


def _die_with_parent() -> None:
    """Ends this process when the runner is gone, for example killed: nobody would take its result."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class RayTasks(Executor):
    """Each cell is a task of a Ray cluster. Ray repeats a task whose worker dies, up to three times.

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

    def submit(self, key: str, cell: Cell) -> None:
        """Starts a task."""
        self.running[self._task.remote(self._shared_work, cell)] = (key, cell)

    def wait(self) -> tuple[str, dict[str, Any]]:
        """The key of the next cell to end, and its record."""
        (task,), _ = self._ray.wait(list(self.running), num_returns=1)
        key, cell = self.running.pop(task)
        try:
            return key, self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            return key, failed(cell, f"{type(error).__name__}: {str(error).splitlines()[0]}")

    def __exit__(self, *error: object) -> None:
        """Leaves the cluster."""
        self._ray.shutdown()
