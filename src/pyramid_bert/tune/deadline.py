"""The time that a search may take, and parts of it."""

from __future__ import annotations

import time


class Budget:
    """So many seconds from now on.

    Attributes:
        was_short: Whether time was asked for, of this or of a part of it, when there was none left.
    """

    def __init__(self, seconds: float, whole: Budget | None = None) -> None:
        self._end = time.monotonic() + seconds
        self._whole = whole
        self.was_short = False

    def in_time(self) -> bool:
        """Whether there is time left."""
        if time.monotonic() < self._end:
            return True
        short: Budget | None = self
        while short is not None:
            short.was_short = True
            short = short._whole
        return False

    def part(self, parts: float) -> Budget:
        """The first of so many equal parts of what is left.

        Example:
            >>> budget = Budget(60)
            >>> budget.part(3).in_time(), budget.was_short
            (True, False)
        """
        return Budget((self._end - time.monotonic()) / parts, self)
