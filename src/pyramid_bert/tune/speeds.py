"""How fast a candidate is: counted in multiply-accumulates over true lengths, or predicted for this machine."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..config import PyramidConfig
from ..families import pyramidize, sizes_of
from .calibration import Calibration, batch_shapes, calibrate
from .candidates import Method
from .solver import extreme_schedule, predicted_speedup


class Counted:
    """Speed-ups by multiply-accumulates, each row at its true length: exact, and the same everywhere."""

    def __init__(self, config: Any, lengths: Sequence[int]) -> None:
        self._sizes = sizes_of(config)
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


def timed_as(method: Method) -> Method:
    """The method whose times serve for this one too: how far clusters reach, and who rests, change no part's.

    Example:
        >>> timed_as(Method("cluster", within=8)) == Method("cluster")
        True
    """
    return replace(method, within=None, rest_from=None)


class Predicted:
    """Speed-ups over dense, length-sorted batches that a calibration of this machine predicts."""

    def __init__(
        self,
        dense: Any,
        lengths: Sequence[int],
        batch_size: int,
        after_each: Callable[[], object] | None = None,
    ) -> None:
        self._model = copy.deepcopy(dense)
        self._longest, self._batch_size = max(lengths), batch_size
        self._shapes = batch_shapes(lengths, batch_size)
        self._known: dict[Method, Calibration] = {}
        self._after_each = after_each

    def __call__(self, settings: PyramidConfig) -> float:
        """The predicted speed-up; a method that is new is timed first."""
        method = timed_as(Method.of(settings))
        if method not in self._known:
            pyramidize(self._model, config=settings.replace(schedule=extreme_schedule(), rest_from=None))
            self._known[method] = calibrate(
                self._model,
                self._longest,
                batch_size=self._batch_size,
                known=next(iter(self._known.values()), None),
                after_each=self._after_each,
            )
        known = self._known[method]
        calibration = replace(known, cls_layers=settings.cls_layers(known.layers))
        return predicted_speedup(calibration, self._shapes, settings.schedule)
