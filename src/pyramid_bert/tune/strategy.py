"""How a search spends its time: successive halving over many candidates, then a walk to nearer neighbours of the best.

Successive halving judges all candidates on few rows, the better half on twice as many, and so on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..config import PyramidConfig
from ..schedule.kinds import AdaptiveSchedule
from .candidates import neighbours, unsolved
from .judge import Judge, OutOfTimeError, Trial, ranked

FIRST_ROWS = 16
FINALISTS = 8
_FEW = 4

Solve = Callable[[PyramidConfig, float | None], PyramidConfig | None]  # the second is a radius to begin with


class Deadline:
    """A moment in the future, and whether time was asked for, of this or of a part of it, when none was left."""

    def __init__(self, seconds: float, whole: Deadline | None = None) -> None:
        self._end, self._whole = time.monotonic() + seconds, whole or self
        self.was_short = False

    def in_time(self) -> bool:
        """Whether time is left."""
        left = time.monotonic() < self._end
        self._whole.was_short |= not left
        return left

    def part(self, parts: float) -> Deadline:
        """The end of the first of some equal parts of what is left.

        Example:
            >>> deadline = Deadline(60)
            >>> deadline.part(3).in_time(), deadline.was_short
            (True, False)
        """
        return Deadline(self.left / parts, self._whole)

    @property
    def left(self) -> float:
        """The seconds that are left; negative when it is over."""
        return self._end - time.monotonic()


def rungs(rows: int) -> list[int]:
    """How many rows candidates are judged on, round by round.

    Example:
        >>> rungs(200)
        [16, 32, 64, 128, 200]
    """
    steps = [FIRST_ROWS]
    while steps[-1] * 2 < rows:
        steps.append(steps[-1] * 2)
    return [step for step in steps if step < rows] + [rows]


def halve(
    judge: Judge,
    candidates: Sequence[PyramidConfig],
    rows: int,
    deadline: Deadline,
    step: Callable[[], object] = lambda: None,
) -> list[Trial]:
    """The trials of the last round, nearest to the dense model first.

    The first round runs twice as many rows as any later one, so it gets two parts of the time and the others one each;
    one more is left for what comes after. Candidates that a round has no time for are dropped: in the first round the
    last ones of the list, later those that were farthest from the dense model. One is tried at least.
    """
    pool, best, rounds = list(candidates), list[Trial](), rungs(rows)
    for number, count in enumerate(rounds):
        part = deadline.part(len(rounds) - number + 1 if number else (len(rounds) + 2) / 2)
        trials: list[Trial] = []
        for settings in pool:
            if judge.trials and not part.in_time():
                break
            try:
                trials.append(judge(settings, count))
            except OutOfTimeError:
                break
            step()
        best = ranked(trials) or best
        survivors = max(FINALISTS, (len(best) + 1) // 2)
        pool = [trial.settings for trial in best[:survivors]]
    return best


def walk(
    judge: Judge,
    start: PyramidConfig,
    nearest: Trial | None,
    solve: Solve,
    *,
    layers: int,
    rows: int,
    deadline: Deadline,
    step: Callable[[], object] = lambda: None,
) -> list[Trial]:
    """The trials on all rows of a walk to ever nearer neighbours; the last that is nearest is where it ended.

    Args:
        judge: Makes the trials.
        start: Where to begin.
        nearest: Its trial; None if it has not been tried.
        solve: Finds the settings of an unsolved candidate; None where it cannot be fast enough.
        layers: Layers of the model.
        rows: How many rows to judge on. A quarter of them shows whether the others are needed.
        deadline: When to stop.
        step: Called after each candidate.
    """
    start = unsolved(start)
    trials, seen = list[Trial](), {start}
    waiting = [start] if nearest is None else list(neighbours(start, layers))
    few = rows // _FEW
    while waiting and deadline.in_time():
        candidate = waiting.pop(0)
        seen.add(candidate)
        before = None if nearest is None else nearest.settings.schedule
        try:
            settings = solve(candidate, before.radius if isinstance(before, AdaptiveSchedule) else None)
            step()
            if settings is None:
                if candidate == start:  # too slow as it is: a neighbour that begins earlier may not be
                    waiting = list(neighbours(start, layers))
                continue
            if nearest is not None and judge(settings, few).divergence > float(nearest.divergences[:few].mean()):
                continue
            trials.append(judge(settings, rows))
        except OutOfTimeError:
            break
        if nearest is None or trials[-1].divergence < nearest.divergence:
            nearest, waiting = trials[-1], [near for near in neighbours(candidate, layers) if near not in seen]
    return trials
