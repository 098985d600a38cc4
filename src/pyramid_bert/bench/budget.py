"""The budget solver: from a wanted speed-up to a schedule, on the user's own machine and lengths."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..classifier import default_schedule
from ..data import Encoded
from ..errors import PyramidError
from ..hub import pyramid_settings, pyramidize, restore
from ..schedule import Schedule
from ..timing import time_interleaved
from .calibration import Calibration, batch_shapes, calibrate, runs_of_calibration
from .radius import RadiusCurves
from .workload import Workload

MIN_TOKENS = 2  # CLS and one more
_SMALLEST_RATIO = 1e-3
_ROWS_TO_VERIFY = 512
_CLOSE_ENOUGH = 0.03


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


def solve_speedup(
    model: Any,
    speedup: float,
    lengths: Sequence[int],
    *,
    batch_size: int = 32,
    sample: Sequence[Encoded] | None = None,
    verify: bool = True,
    settings: dict[str, Any] | None = None,
    after_each: Callable[[], object] | None = None,
) -> Solution:
    """The schedule that makes `model` so many times faster on rows of these lengths.

    A short calibration times the parts of the model; for every (first layer, last layer) the keep ratio is found that
    is predicted to give the speed-up. Among these equally fast schedules the one is taken that loses least by the
    paper's Theorem 1, if there is a sample, and else the one whose layers are nearest to `default_schedule`'s. Then it
    is measured, and the prediction corrected until both agree.

    Args:
        model: A dense model or a pyramid, in evaluation mode; it is not changed.
        speedup: The wanted speed-up over the dense model on length-sorted batches.
        lengths: The true lengths of the rows to be fast on.
        batch_size: Rows a batch.
        sample: Some encoded texts on which covering radii are measured.
        verify: Measure the result, and correct it if need be.
        settings: Fields of `PyramidConfig` but for the schedule; a pyramid's own if None.
        after_each: Called often, for a progress bar.
    """
    _check(speedup, lengths, batch_size)
    dense = restore(copy.deepcopy(model)).eval()
    pyramid = _as_pyramid(model, settings)
    longest = max(lengths)
    calibration = calibrate(pyramid, longest, batch_size=batch_size, after_each=after_each)
    curves = None if sample is None else RadiusCurves.of(dense, pyramid, sample)
    reachable = _predicted(calibration, lengths, _extreme())
    if reachable < speedup:
        raise PyramidError(
            f"a speed-up of {speedup:g}x cannot be reached on these lengths (mean {_mean(lengths):.0f} tokens, batches "
            f"of {batch_size}): at most {reachable:.2f}x, with {MIN_TOKENS} tokens left from layer 1 on; ask for less"
        )
    aim, corrections, measured = speedup, 0, None
    while True:
        schedule, predicted, bound = _best(calibration, lengths, min(aim, reachable), curves)
        if not verify:
            break
        measured = _measured(dense, pyramid, schedule, lengths, batch_size, after_each)
        if abs(measured / speedup - 1) <= _CLOSE_ENOUGH or corrections == 3:
            break
        aim, corrections = aim * speedup / measured, corrections + 1
    return Solution(schedule, speedup, predicted, measured, reachable, bound, corrections)


def calibration_runs(lengths: Sequence[int]) -> int:
    """How often `solve_speedup` is expected to call `after_each`."""
    return runs_of_calibration(max(lengths)) + 2 * 2 * 4


def _best(
    calibration: Calibration, lengths: Sequence[int], aim: float, curves: RadiusCurves | None
) -> tuple[Schedule, float, float | None]:
    """The best schedule that is predicted to reach `aim`, the prediction for it, and its bound."""
    layers = calibration.layers
    wanted = default_schedule(layers)
    found: list[tuple[float, int, Schedule, float | None]] = []
    for first in range(1, layers + 1):
        for last in range(first, layers + 1):
            make = partial(Schedule.exponential, last_layer=last, first_layer=first, min_tokens=MIN_TOKENS)
            schedule = _with_speedup(calibration, lengths, aim, make)
            if schedule is None:
                continue
            bound = None if curves is None else curves.bound(schedule)
            off = abs(first - wanted.first_layer) + abs(last - wanted.last_layer)  # type: ignore[attr-defined]
            found.append((off if bound is None else bound, len(found), schedule, bound))
    _, _, schedule, bound = min(found)
    return schedule, _predicted(calibration, lengths, schedule), bound


def _with_speedup(
    calibration: Calibration, lengths: Sequence[int], aim: float, make: Callable[[float], Schedule]
) -> Schedule | None:
    """The schedule with the largest keep ratio that is predicted to reach `aim`; None when none does."""
    low, high = _SMALLEST_RATIO, 1.0  # `low` reaches it, `high` does not
    if _predicted(calibration, lengths, make(low)) < aim:
        return None
    for _ in range(12):
        middle = (low + high) / 2
        if _predicted(calibration, lengths, make(middle)) >= aim:
            low = middle
        else:
            high = middle
    return make(round(low, 4))


def _predicted(calibration: Calibration, lengths: Sequence[int], schedule: Schedule) -> float:
    shapes = batch_shapes(lengths, calibration.batch_size).items()
    dense = sum(count * calibration.dense(n, masked=masked) for (n, masked), count in shapes)
    return dense / sum(count * calibration.pyramid(schedule, n, masked=masked) for (n, masked), count in shapes)


def _measured(
    dense: Any,
    pyramid: Any,
    schedule: Schedule,
    lengths: Sequence[int],
    batch_size: int,
    after_each: Callable[[], object] | None,
) -> float:
    """The speed-up of the pyramid over the dense model, on a fair choice of the batches, interleaved."""
    settings = pyramid_settings(pyramid)
    assert settings is not None
    pyramidize(pyramid, config=settings.replace(schedule=schedule))
    workload = Workload.synthetic(list(_spread(lengths, batch_size)), vocabulary=dense.config.vocab_size)
    batches = workload.tensors(workload.by_length(batch_size))

    def run(model: Any) -> None:
        with torch.inference_mode():
            for batch in batches:
                model(**batch)

    runs = {"dense": lambda: run(dense), "pyramid": lambda: run(pyramid)}
    return time_interleaved(runs, rounds=3, after_each=after_each).speedup("pyramid", over="dense")


def _spread(lengths: Sequence[int], batch_size: int) -> Iterator[int]:
    """At most about 512 of the lengths: whole batches of the sorted rows, evenly chosen."""
    longest_first = sorted(lengths, reverse=True)
    batches = [longest_first[i : i + batch_size] for i in range(0, len(longest_first), batch_size)]
    step = max(1, round(len(lengths) / _ROWS_TO_VERIFY))
    for batch in batches[step // 2 :: step] or batches:
        yield from batch


def _extreme() -> Schedule:
    """As fast as a schedule gets."""
    return Schedule.exponential(_SMALLEST_RATIO, 1, min_tokens=MIN_TOKENS)


def _as_pyramid(model: Any, settings: dict[str, Any] | None) -> Any:
    """A copy of the model as a pyramid with these settings and any schedule."""
    saved = pyramid_settings(model)
    copied = restore(copy.deepcopy(model)).eval()
    if saved is not None and not settings:
        return pyramidize(copied, config=saved.replace(schedule=_extreme()))
    return pyramidize(copied, _extreme(), **(settings or {}))


def _check(speedup: float, lengths: Sequence[int], batch_size: int) -> None:
    if isinstance(speedup, bool) or not isinstance(speedup, int | float) or not 1 <= speedup < 1000:
        raise PyramidError(f"speedup must be a number of at least 1, got {speedup!r}; 2 means twice as fast")
    if not lengths or min(lengths) < 1:
        raise PyramidError("lengths must hold the true length of at least one row, each at least 1")
    if batch_size < 1:
        raise PyramidError(f"batch_size must be at least 1, got {batch_size}")


def _mean(lengths: Sequence[int]) -> float:
    return sum(lengths) / len(lengths)
