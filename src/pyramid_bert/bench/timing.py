"""The clocks: runs are timed in turn (A, B, A, B …) in one process, and medians are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..core.loop import Recorder, Step
from ..core.reducer import Decision
from ..core.tokens import Tokens
from ..errors import PyramidError


@dataclass(frozen=True)
class Timing:
    """The seconds that each of the runs took, by name, in the order in which they were measured."""

    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        """The median seconds of one run."""
        return median(self.seconds[name])

    def speedup(self, name: str, over: str) -> float:
        """How many times faster `name` is than `over`: the median of the ratios within each round.

        A machine that slows down for a while slows both sides of a ratio.

        Example:
            >>> Timing({"a": [2.0, 4.0], "b": [1.0, 2.0]}).speedup("b", over="a")
            2.0
        """
        return median(a / b for a, b in zip(self.seconds[over], self.seconds[name], strict=True))


def time_interleaved(
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    warmup: int = 1,
    after_each: Callable[[], object] | None = None,
) -> Timing:
    """Times each of `runs` once a round, for `rounds` rounds, after `warmup` rounds that do not count.

    `after_each` is called after each run, for a progress bar.
    """
    if rounds < 1 or warmup < 0:
        raise PyramidError(f"rounds must be at least 1 and warmup at least 0, got {rounds} and {warmup}")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(-warmup, rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
            if after_each is not None:
                after_each()
    return Timing(seconds)


class SelectingClock(Recorder):
    """Adds up the seconds between the end of a half layer and the end of the reduction after it."""

    seconds = 0.0

    def ran(self, step: Step, tokens: Tokens) -> None:
        """Starts the clock."""
        self._before = tokens  # keep a reference, so that freeing it is not timed as selection
        self._ran_at = time.perf_counter()

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """Stops it."""
        self.seconds += time.perf_counter() - self._ran_at


def share_selecting(run: Callable[[SelectingClock], Any]) -> float:
    """The share of a run's time that choosing and moving tokens takes: the median of three runs.

    `run` runs the pyramid with a recorder that it hands to every pass.
    """
    shares = []
    for _ in range(3):
        clock = SelectingClock()
        start = time.perf_counter()
        run(clock)
        shares.append(clock.seconds / (time.perf_counter() - start))
    return median(shares)
