"""The budget solver: from a wanted speed-up to a schedule, on the user's own machine and lengths."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..bench.timing import time_interleaved
from ..bench.workload import Workload, forward_all
from ..errors import OutOfReachError, PyramidError
from ..families import positions_of
from ..families.hub import apply_settings, default_schedule, pyramid_settings, pyramidize, restore
from ..schedule.base import Schedule
from ..text.batches import Encoded
from .calibration import Calibration, batch_shapes, calibrate, runs_of_calibration
from .radius import RadiusCurves

MIN_TOKENS = 2  # CLS and one more
_SMALLEST_RATIO = 1e-3
_SECONDS_TO_VERIFY, _ROUNDS_TO_VERIFY = 4.0, 2
_CLOSE_ENOUGH, _TOO_FAR = 0.03, 0.1
_TRIES = 4
_HARSH = 0.1
_FASTEST = 1000
Shapes = dict[tuple[int, bool], float]


@dataclass(frozen=True)
class Solution:
    """A schedule for a wanted speed-up over the dense model on length-sorted batches.

    Attributes:
        schedule: The schedule.
        wanted: What was asked for.
        predicted: What the calibration predicts for it.
        measured: What it measured in the end, in one interleaved run; None when that was not asked for.
        reachable: The largest speed-up that any schedule would reach, as predicted.
        bound: Theorem 1's measure of what is lost, on the sample; None without one. See `RadiusCurves.bound`.
        corrections: How often the prediction was corrected by a measurement.
    """

    schedule: Schedule
    wanted: float
    predicted: float
    measured: float | None
    reachable: float
    bound: float | None
    corrections: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {**dataclasses.asdict(self), "schedule": self.schedule.to_dict()}


class Solver:
    """Finds schedules for one model on one machine and rows of certain lengths; calibrates once, for many wishes.

    For every (first layer, last layer) the keep ratio is found that is predicted to give the wanted speed-up. Among
    these equally fast schedules the one is taken that loses least by the paper's Theorem 1, if there is a sample, and
    else the one whose layers are nearest to `default_schedule`'s. Then it is measured, and the prediction corrected
    until both agree.

    Args:
        model: A dense model or a pyramid, in evaluation mode; it is not changed.
        lengths: The true lengths of the rows to be fast on.
        batch_size: Rows a batch.
        sample: Some encoded texts on which covering radii are measured.
        settings: Fields of `PyramidConfig` but for the schedule; a pyramid's own if None.
        after_each: Called often, for a progress bar.
    """

    def __init__(
        self,
        model: Any,
        lengths: Sequence[int],
        *,
        batch_size: int = 32,
        sample: Sequence[Encoded] | None = None,
        settings: dict[str, Any] | None = None,
        after_each: Callable[[], object] | None = None,
    ) -> None:
        self.lengths = [int(n) for n in lengths]
        _check(model, self.lengths, batch_size, settings or {})
        self.batch_size = min(batch_size, len(self.lengths))
        self._after_each = after_each
        self._dense = restore(copy.deepcopy(model)).eval()
        self._pyramid = copy.deepcopy(model).eval()
        apply_settings(self._pyramid, extreme_schedule(), settings or {})
        self.calibration = calibrate(
            self._pyramid, max(self.lengths), batch_size=self.batch_size, after_each=after_each
        )
        self.curves = RadiusCurves.of(self._dense, self._pyramid, sample) if sample else None
        self.shapes = batch_shapes(self.lengths, self.batch_size)
        self.reachable = predicted_speedup(self.calibration, self.shapes, extreme_schedule())

    def solve(self, speedup: float, *, verify: bool = True) -> Solution:
        """The schedule for a speed-up over the dense model on length-sorted batches.

        Args:
            speedup: The wanted speed-up.
            verify: Measure the result, and correct it if need be.
        """
        check_speedup(speedup)
        if self.reachable < speedup:
            raise out_of_reach(speedup, self.lengths, self.batch_size, self.reachable)
        settings = pyramid_settings(self._pyramid)
        assert settings is not None
        latest = (settings.rest_from or self.calibration.layers + 1) - 1  # tokens that rest are not reduced
        tries: list[Solution] = []
        aim = speedup
        while True:
            schedule, bound = _best(self.calibration, self.shapes, min(aim, self.reachable), self.curves, latest)
            predicted = predicted_speedup(self.calibration, self.shapes, schedule)
            measured = self._measured(schedule) if verify else None
            tries.append(Solution(schedule, speedup, predicted, measured, self.reachable, bound, len(tries)))
            if measured is None or abs(measured / speedup - 1) <= _CLOSE_ENOUGH or len(tries) == _TRIES:
                break
            aim *= speedup / measured
        best = min(tries, key=lambda found: abs((found.measured or speedup) / speedup - 1))
        if best.measured is not None and best.measured < (1 - _TOO_FAR) * speedup:
            largest = max(found.measured or 0.0 for found in tries)
            raise out_of_reach(speedup, self.lengths, self.batch_size, largest)
        return best

    def _measured(self, schedule: Schedule) -> float:
        """The speed-up of the pyramid over the dense model, on a fair choice of the batches, interleaved."""
        settings = pyramid_settings(self._pyramid)
        assert settings is not None
        pyramidize(self._pyramid, config=settings.replace(schedule=schedule))
        some = _fair_choice(self.lengths, self.calibration)
        workload = Workload.synthetic(some, vocabulary=self._dense.config.vocab_size)
        return interleaved_speedup(
            self._dense,
            self._pyramid,
            workload,
            self.batch_size,
            rounds=_ROUNDS_TO_VERIFY,
            after_each=self._after_each,
        )


def solve_speedup(model: Any, speedup: float, lengths: Sequence[int], *, verify: bool = True, **how: Any) -> Solution:
    """The schedule that makes `model` so many times faster on rows of these lengths.

    Args:
        model: A dense model or a pyramid, in evaluation mode; it is not changed.
        speedup: The wanted speed-up over the dense model on length-sorted batches.
        lengths: The true lengths of the rows to be fast on.
        verify: Measure the result, and correct it if need be.
        how: As for `Solver`.
    """
    check_speedup(speedup)
    return Solver(model, lengths, **how).solve(speedup, verify=verify)


def out_of_reach(speedup: float, lengths: Sequence[int], batch_size: int, reachable: float) -> OutOfReachError:
    """The error that names the largest speed-up that can be reached."""
    mean = sum(lengths) / len(lengths)
    return OutOfReachError(
        f"a speed-up of {speedup:g}x cannot be reached on these lengths (mean {mean:.0f} tokens, batches of "
        f"{batch_size}): at most {reachable:.2f}x, with {MIN_TOKENS} tokens left from layer 1 on; ask for less"
    )


def calibration_runs(lengths: Sequence[int]) -> int:
    """How often `solve_speedup` is expected to call `after_each`."""
    return runs_of_calibration(max(lengths)) + 2 * 2 * (1 + _ROUNDS_TO_VERIFY)


def _best(
    calibration: Calibration, shapes: Shapes, aim: float, curves: RadiusCurves | None, latest: int
) -> tuple[Schedule, float | None]:
    """The best schedule that is predicted to reach `aim` and is done by layer `latest`, and its bound."""
    layers = calibration.layers
    usual: Any = default_schedule(layers)
    found: list[tuple[tuple[float, ...], int, Schedule, float | None]] = []
    for first in range(1, latest + 1):
        for last in range(first, latest + 1):
            make = partial(Schedule.exponential, last_layer=last, first_layer=first, min_tokens=MIN_TOKENS)
            schedule = with_speedup(partial(predicted_speedup, calibration, shapes), aim, make)
            if schedule is None:
                continue
            bound = None if curves is None else curves.bound(schedule)
            # Without a sample: layers like the usual ones, but not at the price of nearly all tokens.
            off = abs(first - usual.first_layer) + abs(last - usual.last_layer)
            harsh = schedule.keep_ratio < _HARSH  # type: ignore[attr-defined]
            found.append(((harsh, off) if bound is None else (bound,), len(found), schedule, bound))
    _, _, schedule, bound = min(found)
    return schedule, bound


def with_speedup(
    speedup_of: Callable[[Schedule], float], aim: float, make: Callable[[float], Schedule]
) -> Schedule | None:
    """The schedule with the largest keep ratio whose speed-up reaches `aim`; None when none does.

    Args:
        speedup_of: The speed-up that a schedule gives, as predicted or counted.
        aim: The speed-up that is wanted.
        make: Makes a schedule of a keep ratio.
    """
    low, high = _SMALLEST_RATIO, 1.0  # `low` reaches it, `high` does not
    if speedup_of(make(high)) >= aim:
        return make(high)
    if speedup_of(make(low)) < aim:
        return None
    for _ in range(12):
        middle = (low + high) / 2
        if speedup_of(make(middle)) >= aim:
            low = middle
        else:
            high = middle
    return make(low)


def predicted_speedup(calibration: Calibration, shapes: Shapes, schedule: Schedule) -> float:
    """The speed-up over the dense model that a calibration predicts for batches of these shapes."""
    dense = sum(count * calibration.dense(n, masked=masked) for (n, masked), count in shapes.items())
    return dense / sum(count * calibration.pyramid(schedule, n, masked=masked) for (n, masked), count in shapes.items())


def interleaved_speedup(
    dense: Any,
    pyramid: Any,
    workload: Workload,
    batch_size: int,
    *,
    rounds: int = 3,
    after_each: Callable[[], object] | None = None,
) -> float:
    """How many times faster the pyramid runs these rows than the dense model, both sorted by length and in turn."""
    batches = workload.tensors(workload.by_length(batch_size))
    runs = {"dense": partial(forward_all, dense, batches), "pyramid": partial(forward_all, pyramid, batches)}
    return time_interleaved(runs, rounds=rounds, after_each=after_each).speedup("pyramid", over="dense")


def _fair_choice(lengths: Sequence[int], calibration: Calibration) -> list[int]:
    """Whole batches of the sorted rows, evenly chosen, that the dense model runs in some seconds; at least three."""
    size = calibration.batch_size
    longest_first = sorted(lengths, reverse=True)
    batches = [longest_first[i : i + size] for i in range(0, len(longest_first), size)]
    seconds = sum(calibration.dense(batch[0], masked=True) for batch in batches)
    wanted = max(3, int(len(batches) * _SECONDS_TO_VERIFY / max(seconds, 1e-9)))
    step = max(1, len(batches) // wanted)
    return [n for batch in batches[(step - 1) // 2 :: step] for n in batch]


def extreme_schedule() -> Schedule:
    """As fast as a schedule gets."""
    return Schedule.exponential(_SMALLEST_RATIO, 1, min_tokens=MIN_TOKENS)


def check_speedup(speedup: float) -> None:
    """Raises unless this is a speed-up that one can ask for."""
    if isinstance(speedup, bool) or not isinstance(speedup, int | float) or not 1 <= speedup < _FASTEST:
        raise PyramidError(f"speedup must be a number in 1-{_FASTEST}, got {speedup!r}; 2 means twice as fast")


def _check(model: Any, lengths: Sequence[int], batch_size: int, settings: dict[str, Any]) -> None:
    positions = positions_of(model)
    if not lengths or min(lengths) < 1 or max(lengths) > positions:
        shown = f"{min(lengths)}-{max(lengths)}" if lengths else "none"
        raise PyramidError(f"lengths must hold true lengths of at least one row, each in 1-{positions}, got {shown}")
    if batch_size < 1:
        raise PyramidError(f"batch_size must be at least 1, got {batch_size}")
    saved = pyramid_settings(model)
    selector = settings.get("selector") or (saved.selector if saved else "coreset")
    if selector in ("pool", "input-first") or settings.get("placement") == "input":
        raise PyramidError(
            f"a schedule for a speed-up is exponential, which the selector {selector!r} or placement 'input' does not "
            "take; use coreset, cluster, attention, first or random, or name a schedule"
        )
