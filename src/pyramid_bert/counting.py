"""Progress of a number of steps, for code that also runs where rich is not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def steps_shown(title: str, total: int, *, shown: bool = True) -> Iterator[Callable[..., None]]:
    """Progress on stderr, and what moves it: by one, or by the number given. Only what is shown needs rich.

    Example:
        >>> with steps_shown("predicting", 3, shown=False) as advance:
        ...     advance()
    """
    if not shown:
        yield lambda count=1: None
        return
    from .progress import Bar

    with Bar() as bar:
        task = bar.add_task(title, total=total)
        yield lambda count=1: bar.advance(task, count)
