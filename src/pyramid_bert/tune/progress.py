"""One bar on stderr for stages that follow each other."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import Progress


class Stages:
    """A bar that says which stage runs and how far it is; none is drawn unless `shown`.

    Example:
        >>> with Stages(shown=False) as stages:
        ...     step = stages.begin("counting", total=2)
        ...     step()
    """

    def __init__(self, shown: bool) -> None:
        self._bar = Progress(console=Console(stderr=True), transient=True, disable=not shown)

    def __enter__(self) -> Stages:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, title: str, total: int) -> Callable[[], None]:
        """Starts the next stage; returns what moves the bar by one of `total` steps."""
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        task = self._bar.add_task(title, total=total)
        return lambda: self._bar.advance(task)
