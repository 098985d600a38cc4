"""Progress on stderr: a bar on a terminal, and plain lines every few seconds in a log file."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task

from .boundary import printable

EVERY = 5.0  # seconds between two lines


class Bar(Progress):
    """rich's progress bar on stderr. Where stderr is not a terminal, a thread writes plain lines instead."""

    def __init__(
        self, *columns: ProgressColumn, shown: bool = True, stays: bool = False, console: Console | None = None
    ) -> None:
        """A bar without `shown` says nothing; one that `stays` is seen after its end, in a log as a last line."""
        console = console or Console(stderr=True, highlight=False)
        self.shown, self.stays = shown, stays
        self.plain = shown and not (console.is_terminal or console.is_jupyter)
        self._stopped = Event()
        self._speaker: Thread | None = None
        super().__init__(*columns, console=console, transient=not stays, disable=not shown or self.plain)

    def start(self) -> None:
        """Starts the bar or the lines."""
        super().start()
        if self.plain and self._speaker is None:
            self._speaker = Thread(target=self._speak, daemon=True)
            self._speaker.start()

    def stop(self) -> None:
        """Ends the bar or the lines."""
        super().stop()
        self._stopped.set()
        if self._speaker is not None:
            self._speaker.join()
            for task in self.tasks if self.stays else ():
                self._report(task)

    def say(self, text: str) -> None:
        """Prints a line above the bar."""
        if self.shown:
            self.console.print(printable(text), markup=False, soft_wrap=True)

    def _speak(self) -> None:
        while not self._stopped.wait(EVERY):
            unfinished = [task for task in self.tasks if not task.finished]
            if unfinished:
                self._report(unfinished[-1])

    def _report(self, task: Task) -> None:
        self.say(f"{time.strftime('%H:%M:%S')} {progress_line(task)}")


def progress_line(task: Task) -> str:
    """How far a task is, in one line: what, done of total, how fast, and what else the bar shows.

    Example:
        >>> bar = Bar(shown=False)
        >>> _ = bar.add_task("predicting", total=20_000, completed=8_192)
        >>> progress_line(bar.tasks[0])
        'predicting: 8,192 of 20,000'
    """
    total = "" if task.total is None else f" of {task.total:,.0f}"
    words = [f"{task.description}: {task.completed:,.0f}{total}"]
    if task.speed:
        rate, unit = (task.speed, "second") if task.speed >= 1 else (60 * task.speed, "minute")
        words.append(f"{rate:,.1f} a {unit}")
    fields: dict[str, Any] = task.fields
    return ", ".join([*words, *(str(value) for value in fields.values() if value)])
