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

    def whole_rounds(self) -> Timing:
        """The rounds in which everything was timed.

        Example:
            >>> Timing({"a": [2.0, 4.0], "b": [1.0]}).whole_rounds()
            Timing(seconds={'a': [2.0], 'b': [1.0]})
        """
        rounds = min(map(len, self.seconds.values()))
        return Timing({name: times[:rounds] for name, times in self.seconds.items()})


def time_interleaved(
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    warmup: int = 1,
    after_each: Callable[[], object] | None = None,
    in_time: Callable[[], bool] | None = None,
    at_least: int | None = None,
) -> Timing:
    """Times each of `runs` once a round, for `rounds` rounds, after `warmup` rounds that do not count.

    Args:
        runs: What to time, by name.
        rounds: How often.
        warmup: Rounds before that do not count.
        after_each: Called after each run, for a progress bar.
        in_time: Whether there is time for another run. If not, the warm-up counts for runs that were made only there,
            and a run that was never made has no times.
        at_least: How many runs are made however late it is; each of them once if None.
    """
    if rounds < 1 or warmup < 0:
        raise PyramidError(f"rounds must be at least 1 and warmup at least 0, got {rounds} and {warmup}")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    least = len(runs) if at_least is None else at_least
    for number, (name, run) in enumerate([*runs.items()] * (warmup + rounds)):
        if in_time is not None and number >= least and not in_time():
            break
        start = time.perf_counter()
        run()
        seconds[name].append(time.perf_counter() - start)
        if after_each is not None:
            after_each()
    return Timing({name: times[warmup:] or times[-1:] for name, times in seconds.items()})


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
