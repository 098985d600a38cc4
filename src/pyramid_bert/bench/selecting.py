"""What choosing tokens and moving them takes of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from ..core.loop import Recorder, Step
from ..core.reducer import Decision
from ..core.tokens import Tokens


class SelectingClock(Recorder):
    """Adds up the seconds between the end of a half layer and the end of the reduction after it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ran_at = 0.0

    def ran(self, step: Step, tokens: Tokens) -> None:
        """Starts the clock."""
        self._before = tokens  # keep a reference, so that freeing it is not timed as selection
        self._ran_at = time.perf_counter()

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """Stops it."""
        self.seconds += time.perf_counter() - self._ran_at


def share_selecting(run: Callable[[SelectingClock], Any]) -> float:
    """The share of a run's time that goes into choosing tokens and moving them: the median of three runs.

    Args:
        run: Runs the pyramid with a recorder that it hands to every pass.
    """
    shares = []
    for _ in range(3):
        clock = SelectingClock()
        start = time.perf_counter()
        run(clock)
        shares.append(clock.seconds / (time.perf_counter() - start))
    return median(shares)
