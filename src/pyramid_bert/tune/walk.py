"""Lengths that follow the text: a walk from the best fixed schedule to radii that stay nearer to the dense model.

How far clusters reach, where they begin, how fast their radius grows and from where on tokens rest depend on each
other, so they are walked together: one of them is changed, the radius is solved for the same speed-up, and whoever is
nearer to the dense model is where the walk goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..config import PyramidConfig
from ..schedule.kinds import AdaptiveSchedule, ExponentialSchedule
from .candidates import WITHIN, Method
from .deadline import Budget
from .halving import Judge, Trial
from .solver import MIN_TOKENS

_GROWTHS, _STEPS = (1.0, 1.1, 1.2, 1.3, 1.4), 16
_FIRST_GROWTH = 1.1
_A_FEW = 4  # a candidate that is farther away on one row in so many is not tried on the others


@dataclass(frozen=True)
class Following:
    """A way to let lengths follow the text, but for its radius.

    Attributes:
        method: Which tokens stay and what becomes of the others.
        first_layer: The first layer that reduces. The last is the last one with tokens awake.
        growth: By what the radius is multiplied from layer to layer.
    """

    method: Method
    first_layer: int
    growth: float = _FIRST_GROWTH

    @classmethod
    def like(cls, settings: PyramidConfig) -> Following | None:
        """The same method from the same layer on; None if it does not go by how tokens lie."""
        if not may_follow(method := Method.of(settings)):
            return None
        assert isinstance(settings.schedule, ExponentialSchedule)
        return cls(method, settings.schedule.first_layer)

    def shape(self, layers: int) -> dict[str, Any]:
        """What `Schedule.adaptive` takes beside a radius, in a model of so many layers.

        Example:
            >>> Following(Method("cluster", rest_from=10), first_layer=2, growth=1.1).shape(12)["last_layer"]
            9
        """
        return {
            "first_layer": self.first_layer,
            "last_layer": (self.method.rest_from or layers) - 1,
            "relative": self.method.metric == "euclidean",  # the others have scales of their own, and serve better so
            "growth": self.growth,
            "steps": _STEPS,
            "min_tokens": MIN_TOKENS,
        }

    def neighbours(self, layers: int) -> Iterator[Following]:
        """The ways that differ in one thing, by one step.

        Example:
            >>> near = Following(Method("coreset"), first_layer=1, growth=1.2).neighbours(12)
            >>> [(way.growth, way.first_layer, way.method.rest_from) for way in near]
            [(1.1, 1, None), (1.3, 1, None), (1.2, 1, 11), (1.2, 2, None)]
        """
        for growth in beside(self.growth, _GROWTHS):
            yield replace(self, growth=growth)
        if self.method.selector == "cluster":
            for within in beside(self.method.within, WITHIN):
                yield replace(self, method=replace(self.method, within=within))
        beyond = self.method.rest_from or layers
        for layer in (beyond - 1, beyond + 1):
            if self.first_layer < layer <= layers:
                resting = layer if layer < layers else None
                yield replace(self, method=replace(self.method, rest_from=resting))
        for first in (self.first_layer - 1, self.first_layer + 1):
            if 1 <= first < beyond:
                yield replace(self, first_layer=first)


def may_follow(method: Method) -> bool:
    """Whether a method goes by how tokens lie, so that a radius can say how many of them to keep."""
    return method.selector in ("coreset", "cluster")


def beside(value: float | None, values: Sequence[Any]) -> list[Any]:
    """The next smaller and the next larger of ascending values, None being the largest.

    Example:
        >>> beside(8, (3, 5, 8, 12, None)), beside(12, (3, 5, 8, 12, None)), beside(None, (3, 5, 8, 12, None))
        ([5, 12], [8, None], [12])
    """

    def size(value: float | None) -> float:
        return math.inf if value is None else value

    smaller = [other for other in values if size(other) < size(value)]
    larger = [other for other in values if size(other) > size(value)]
    return smaller[-1:] + larger[:1]


# The settings of a way whose radius gives the wanted speed-up, looked for from a radius on if one is given; None when
# none gives it.
Solve = Callable[[Following, float | None], PyramidConfig | None]


def follow_texts(
    judge: Judge, best: Trial, layers: int, solve: Solve, budget: Budget, step: Callable[[], None]
) -> list[Trial]:
    """The trials of a walk from the best fixed schedule, on as many rows; empty if lengths cannot follow texts there.

    Args:
        judge: Makes the trials.
        best: The best with lengths that are the same for all texts of a length.
        layers: Layers of the model.
        solve: Finds radii.
        budget: The time that there is.
        step: Called after each candidate.
    """
    here, trials, seen = Following.like(best.settings), list[Trial](), set[Following]()
    if here is None:
        return trials
    nearest: Trial | None = None
    waiting = [here]
    while waiting and budget.in_time():
        way = waiting.pop(0)
        seen.add(way)
        trial = _tried(judge, best.rows, nearest, solve(way, _radius(nearest)))
        step()
        if trial is None:
            if way is here:  # too slow as it is: perhaps not if it begins earlier
                waiting = list(way.neighbours(layers))
            continue
        trials.append(trial)
        if nearest is None or trial.divergence < nearest.divergence:
            nearest, waiting = trial, [near for near in way.neighbours(layers) if near not in seen]
    return trials


def _tried(judge: Judge, rows: int, nearest: Trial | None, settings: PyramidConfig | None) -> Trial | None:
    """The trial of a candidate on so many rows; None where there is none, or a few rows show that it is farther."""
    if settings is None:
        return None
    if nearest is not None:
        few = rows // _A_FEW
        if judge(settings, few).divergence > float(nearest.divergences[:few].mean()):
            return None
    return judge(settings, rows)


def _radius(trial: Trial | None) -> float | None:
    if trial is None:
        return None
    assert isinstance(trial.settings.schedule, AdaptiveSchedule)
    return trial.settings.schedule.radius
