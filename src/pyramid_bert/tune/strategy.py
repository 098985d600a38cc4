"""How a search spends its time: successive halving over many candidates, then a walk to nearer neighbours of the best.

Successive halving judges all candidates on few rows, the better half on twice as many, and so on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..config import PyramidConfig
from ..schedule.kinds import AdaptiveSchedule
from .candidates import Candidate
from .judge import Judge, Trial, ranked

FIRST_ROWS = 16
FINALISTS = 8
_FEW = 4  # one row in four decides whether a neighbour is judged on all rows

Solve = Callable[[Candidate, float | None], PyramidConfig | None]  # the second is a radius to begin with


class Deadline:
    """A moment in the future.

    Attributes:
        was_short: Whether time was asked for, of this or of a part of it, when none was left.
    """

    def __init__(self, seconds: float, whole: Deadline | None = None) -> None:
        self._end = time.monotonic() + seconds
        self._whole = whole
        self.was_short = False

    def in_time(self) -> bool:
        """Whether time is left."""
        if time.monotonic() < self._end:
            return True
        late: Deadline | None = self
        while late is not None:
            late.was_short, late = True, late._whole
        return False

    def part(self, parts: float) -> Deadline:
        """The end of the first of some equal parts of what is left.

        Example:
            >>> deadline = Deadline(60)
            >>> deadline.part(3).in_time(), deadline.was_short
            (True, False)
        """
        return Deadline((self._end - time.monotonic()) / parts, self)


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
            trials.append(judge(settings, count))
            step()
        best = ranked(trials) or best
        pool = [trial.settings for trial in best[: _survivors(len(best))]]
    return best


def _survivors(pool: int) -> int:
    return max(min(pool, FINALISTS), (pool + 1) // 2)


def walk(
    judge: Judge,
    start: Candidate,
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
        solve: Finds the settings of a candidate; None where it cannot be fast enough.
        layers: Layers of the model.
        rows: On how many rows to judge.
        deadline: When to stop.
        step: Called after each candidate.
    """
    trials, seen = list[Trial](), {start}
    waiting = [start] if nearest is None else list(start.neighbours(layers))
    while waiting and deadline.in_time():
        candidate = waiting.pop(0)
        seen.add(candidate)
        trial = _tried(judge, rows, nearest, solve(candidate, _radius(nearest)))
        step()
        if trial is None:
            if candidate is start:  # too slow as it is: a neighbour that begins earlier may not be
                waiting = list(start.neighbours(layers))
            continue
        trials.append(trial)
        if nearest is None or trial.divergence < nearest.divergence:
            nearest, waiting = trial, [near for near in candidate.neighbours(layers) if near not in seen]
    return trials


def _tried(judge: Judge, rows: int, nearest: Trial | None, settings: PyramidConfig | None) -> Trial | None:
    """The trial of settings on all rows; None where there are none, or a few rows show that they are farther."""
    if settings is None:
        return None
    if nearest is not None:
        few = rows // _FEW
        if judge(settings, few).divergence > float(nearest.divergences[:few].mean()):
            return None
    return judge(settings, rows)


def _radius(trial: Trial | None) -> float | None:
    schedule = None if trial is None else trial.settings.schedule
    return schedule.radius if isinstance(schedule, AdaptiveSchedule) else None
