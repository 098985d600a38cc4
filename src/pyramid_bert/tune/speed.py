"""How fast a pyramid is: counted in multiply-accumulates, predicted for this machine, or measured on it."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..bench.timing import time_interleaved
from ..bench.workload import Workload, forward_all
from ..config import PyramidConfig
from ..errors import OutOfReachError
from ..families import pyramidize, sizes_of
from ..schedule.kinds import ExponentialSchedule
from ..text.batches import Encoded, sorted_batches
from .calibration import Calibration, batch_shapes, calibrate
from .solver import MIN_TOKENS, SpeedupOf, at_speedup, extreme_schedule

CLOSE_ENOUGH = 0.03  # relative, between the wanted and the measured speed-up
_TOKENS_TO_TIME = 16_384


class Counted:
    """Speed-ups by multiply-accumulates, each row at its true length: exact, and the same on every machine."""

    def __init__(self, model: Any, lengths: Sequence[int]) -> None:
        self._sizes = sizes_of(model)
        self._lengths = Counter(lengths)
        self._known: dict[Any, float] = {}

    def __call__(self, settings: PyramidConfig) -> float:
        """The ideal speed-up over the dense model."""
        key = settings.schedule, settings.placement, settings.cls_only, settings.rest_from, settings.metric
        if key not in self._known:
            self._known[key] = self._count(settings)
        return self._known[key]

    def _count(self, settings: PyramidConfig) -> float:
        dense = macs = 0
        for n, rows in self._lengths.items():
            cost = settings.cost(settings.schedule.lengths(n, self._sizes.layers), n, self._sizes)
            dense, macs = dense + rows * cost.dense_macs, macs + rows * cost.macs
        return dense / macs


class Predicted:
    """Speed-ups over dense, length-sorted batches that a calibration of this machine predicts."""

    def __init__(
        self,
        model: Any,
        lengths: Sequence[int],
        batch_size: int,
        after_each: Callable[[], object] | None = None,
    ) -> None:
        self._model = copy.deepcopy(model)
        self._longest, self._batch_size = max(lengths), batch_size
        self._shapes = batch_shapes(lengths, batch_size)
        self._known: dict[PyramidConfig, Calibration] = {}
        self._after_each = after_each

    def __call__(self, settings: PyramidConfig) -> float:
        """The predicted speed-up over the dense model."""
        calibration, shapes = self._calibration(settings), self._shapes.items()
        dense = sum(count * calibration.dense(n, masked=masked) for (n, masked), count in shapes)
        return dense / sum(
            count * calibration.pyramid(settings.schedule, n, masked=masked) for (n, masked), count in shapes
        )

    def _calibration(self, settings: PyramidConfig) -> Calibration:
        """The times of the parts; those of a method that is new are measured first."""
        method = timed_as(settings)
        if method not in self._known:
            self._known[method] = calibrate(
                pyramidize(self._model, config=method),
                self._longest,
                batch_size=self._batch_size,
                known=next(iter(self._known.values()), None),
                after_each=self._after_each,
            )
        known = self._known[method]
        return replace(known, cls_layers=settings.cls_layers(known.layers))


def timed_as(settings: PyramidConfig) -> PyramidConfig:
    """The settings whose times serve for these too: the schedule, how far clusters reach and who rests change none.

    Example:
        >>> from ..schedule.base import Schedule
        >>> near = PyramidConfig(schedule=Schedule.constant(0.5), selector="cluster", within=8)
        >>> timed_as(near) == timed_as(near.replace(within=None, rest_from=4))
        True
    """
    return settings.replace(schedule=extreme_schedule(), within=None, rest_from=None)


def measured_speedup(
    dense: Any,
    pyramid: Any,
    workload: Workload,
    batch_size: int,
    *,
    rounds: int = 3,
    after_each: Callable[[], object] | None = None,
) -> float:
    """How many times faster the pyramid runs the rows than the dense model, both sorted by length and in turn."""
    batches = workload.tensors(workload.by_length(batch_size), device=dense.device)
    runs = {"dense": partial(forward_all, dense, batches), "pyramid": partial(forward_all, pyramid, batches)}
    return time_interleaved(runs, rounds=rounds, after_each=after_each).speedup("pyramid", over="dense")


def rows_to_time(items: Sequence[Encoded], batch_size: int, pad_id: int = 0) -> Workload:
    """About 16,000 tokens of the rows, at least three batches: whole batches of the sorted rows, evenly chosen."""
    batches = sorted_batches([len(item) for item in items], batch_size)
    wanted = max(3, int(len(batches) * _TOKENS_TO_TIME / sum(map(len, items))))
    step = max(1, len(batches) // wanted)
    some = [items[i] for batch in batches[(step - 1) // 2 :: step] for i in batch]
    return Workload(some, max(map(len, some)), "evenly chosen rows", pad_id)


def settle(
    settings: PyramidConfig, wanted: float, speedup_of: SpeedupOf, measure: SpeedupOf, tries: int
) -> list[tuple[float, PyramidConfig]]:
    """Corrects the keep ratio until the measured speed-up is the wanted one: (measured, settings), the nearest first.

    Args:
        settings: Where to begin, with an exponential schedule.
        wanted: The speed-up.
        speedup_of: Predicts the speed-up of settings.
        measure: Measures it.
        tries: How often to measure, at most.
    """
    found, aim = list[tuple[float, PyramidConfig]](), speedup_of(settings)
    for _ in range(tries):
        measured = measure(settings)
        found.append((measured, settings))
        aim *= wanted / measured
        corrected = _with_other_speedup(settings, speedup_of, aim)
        if abs(measured / wanted - 1) <= CLOSE_ENOUGH or corrected is None:
            break
        settings = corrected
    return sorted(found, key=lambda one: abs(one[0] / wanted - 1))


def _with_other_speedup(settings: PyramidConfig, speedup_of: SpeedupOf, aim: float) -> PyramidConfig | None:
    """The same method with another speed-up, at the same layers or at the nearest ones below that reach it."""
    schedule = settings.schedule
    assert isinstance(schedule, ExponentialSchedule)
    for lower in range(schedule.first_layer):
        found = at_speedup(settings, schedule.first_layer - lower, schedule.last_layer - lower, speedup_of, aim)
        if found is not None:
            return found
    return None


def out_of_reach(speedup: float, lengths: Sequence[int], batch_size: int, reachable: float) -> OutOfReachError:
    """The error that names the largest speed-up that can be reached."""
    mean = sum(lengths) / len(lengths)
    return OutOfReachError(
        f"a speed-up of {speedup:g}x cannot be reached on these lengths (mean {mean:.0f} tokens, batches of "
        f"{batch_size}): at most {reachable:.2f}x, with {MIN_TOKENS} tokens left from layer 1 on; ask for less"
    )
