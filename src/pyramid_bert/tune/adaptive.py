"""Adaptive schedules: what they keep on given texts, and the radius for a wanted ideal speed-up."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..bench.ideal import check_head, ideal_speedup, kept_lengths
from ..errors import DataError, OutOfReachError, PyramidError
from ..families.hub import apply_settings, pyramid_settings, pyramidize
from ..schedule.base import Schedule
from ..text.batches import Encoded

MIN_ITEMS = 50
_SAMPLE = 256
_TRIES, _CLOSE, _LEAST = 16, 0.002, 1e-9
_FIRST_STEP, _STEP_FROM_NEAR, _MARGIN = 3.0, 1.3, 0.1
_ANY = 1e6  # a radius that no answer differs by

Kept = list[tuple[int, ...]]
Reached = Callable[[float], tuple[float, Kept]]  # radius -> ideal speed-up, tokens kept by text and layer


@dataclass(frozen=True)
class AdaptiveSolution:
    """An adaptive schedule for a wanted ideal speed-up.

    Attributes:
        schedule: The schedule.
        wanted: What was asked for.
        ideal: What it gives on the sample: dense over pyramid multiply-accumulates, at true lengths.
        mean_lengths: Tokens that each layer keeps, on average.
        texts: How many texts it was measured on.
    """

    schedule: Schedule
    wanted: float
    ideal: float
    mean_lengths: tuple[float, ...]
    texts: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {**asdict(self), "mean_lengths": list(self.mean_lengths), "schedule": self.schedule.to_dict()}


def solve_adaptive(
    model: Any,
    speedup: float,
    items: Sequence[Encoded],
    *,
    pad_id: int = 0,
    batch_size: int = 32,
    settings: dict[str, Any] | None = None,
    sample: int = _SAMPLE,
    near: float | None = None,
    after_each: Callable[[], object] | None = None,
    **shape: Any,
) -> AdaptiveSolution:
    """The adaptive schedule whose radius just reaches an ideal speed-up on a sample of the texts.

    Args:
        model: A dense classifier or a pyramid, in evaluation mode; it is not changed.
        speedup: Dense over pyramid multiply-accumulates at true lengths, on average.
        items: At least 50 encoded texts.
        pad_id: The padding token.
        batch_size: Texts at a time.
        settings: Fields of `PyramidConfig` but for the schedule; a pyramid's own if None.
        sample: How many of the texts are run, at most.
        near: A radius to begin with, if one is known that should not be far off.
        after_each: Called after each run over the sample, for a progress bar.
        **shape: What `Schedule.adaptive` takes beside the radius: `first_layer`, `steps`, … It is
            relative, unless the metric is "cosine" or "sensitivity" and `relative` False.
    """
    _check_wanted(speedup, len(items), near)
    check_head(model)
    shape = {"min_tokens": 2, **shape}
    some = list(items)[:: max(1, len(items) // sample)][:sample]
    pyramid = copy.deepcopy(model).eval()
    apply_settings(pyramid, Schedule.adaptive(1.0, **shape), settings or {})
    most = _most(pyramid)

    def reached(radius: float) -> tuple[float, Kept]:
        found = pyramid_settings(pyramid)
        assert found is not None
        pyramidize(pyramid, config=found.replace(schedule=Schedule.adaptive(radius, **shape)))
        kept = kept_lengths(pyramid, some, pad_id, batch_size=batch_size)
        if after_each is not None:
            after_each()
        return ideal_speedup(pyramid, some, kept), kept

    found = _smallest(reached, speedup, near, most)
    if found is None:
        best, _ = reached(most)
        raise OutOfReachError(
            f"an ideal speed-up of {speedup:g}x cannot be reached on these texts: at most {best:.2f}x, by a radius of "
            f"{most:g} with {shape}; ask for less, or let earlier layers drop"
        )
    radius, best, kept = found
    means = tuple(sum(column) / len(kept) for column in zip(*kept, strict=True))
    return AdaptiveSolution(Schedule.adaptive(radius, **shape), speedup, best, means, len(some))


def _smallest(reached: Reached, speedup: float, near: float | None, most: float) -> tuple[float, float, Kept] | None:
    """The smallest radius up to `most` that reaches the speed-up, that, and the tokens kept; None when none does.

    In steps that double until there are radii on both sides of it, then between them, where a straight line would have
    it, on logarithmic scales; in the middle if the same side came nearer three times.
    """
    below: tuple[float, float] | None = None  # radius and speed-up, as logarithms
    above: tuple[float, float] | None = None
    best, sides = None, list[bool]()
    aim = math.log(speedup * (1 + _CLOSE / 2))
    radius, stride = (1.0, _FIRST_STEP) if near is None else (min(near, most), _STEP_FROM_NEAR)
    while len(sides) < _TRIES and radius > _LEAST:
        ideal, kept = reached(radius)
        sides.append(ideal >= speedup)
        if sides[-1]:
            above, best = (math.log(radius), math.log(ideal)), (radius, ideal, kept)
            if ideal <= speedup * (1 + _CLOSE):
                break
        elif radius >= most:
            return None
        else:
            below = math.log(radius), math.log(ideal)
        if below is None or above is None:
            radius = radius / stride if above else min(radius * stride, most)
            stride *= 2
            continue
        if above[0] - below[0] < _CLOSE:
            break
        share = (aim - below[1]) / (above[1] - below[1])
        stuck = len(sides) > 2 and len(set(sides[-3:])) == 1
        share = 0.5 if stuck else min(max(share, _MARGIN), 1 - _MARGIN)
        radius = math.exp(below[0] + share * (above[0] - below[0]))
    return best


def _check_wanted(speedup: float, texts: int, near: float | None) -> None:
    """Raises unless there is a speed-up to reach, texts to reach it on, and somewhere to begin."""
    if near is not None and not near > 0:
        raise PyramidError(f"near must be a radius above 0, got {near!r}; leave it out if none is known")
    if isinstance(speedup, bool) or not isinstance(speedup, int | float) or not speedup >= 1:
        raise PyramidError(f"speedup must be a number of at least 1, got {speedup!r}; 2 means half of the work")
    if texts < MIN_ITEMS:
        raise DataError(f"choosing a radius needs at least {MIN_ITEMS} texts, got {texts}")


def _most(pyramid: Any) -> float:
    """The largest radius: 1 for shares of what CLS alone leaves and for cosines; what an answer differs by has none."""
    settings = pyramid_settings(pyramid)
    assert settings is not None
    relative: bool = settings.schedule.to_dict()["relative"]
    if not relative and settings.metric == "euclidean":
        raise PyramidError(
            "relative must be True, got False: the radius that is looked for is a share of what CLS alone leaves; "
            "leave it out, take metric='cosine' or 'sensitivity', or choose a distance yourself: "
            "Schedule.adaptive(radius, relative=False)"
        )
    return _ANY if settings.metric == "sensitivity" and not relative else 1.0
