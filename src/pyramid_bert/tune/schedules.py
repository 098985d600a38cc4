"""Schedules for a wanted speed-up: fixed ones by time on this machine, adaptive ones by multiply-accumulates."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..bench.ideal import check_head, ideal_speedup, kept_lengths
from ..bench.workload import Workload
from ..config import PyramidConfig
from ..errors import DataError, OutOfReachError, PyramidError
from ..families import has_head, positions_of, pyramid_settings, pyramidize, restore
from ..families.hub import apply_settings, default_schedule
from ..schedule.base import Schedule
from ..text.batches import Encoded
from .calibration import runs_of_calibration
from .candidates import places
from .judge import Judge, cls_distances, cls_of, divergences, logits_of
from .solver import MIN_TOKENS, at_speedup, check_speedup, extreme_schedule, smallest
from .speed import Predicted, measured_speedup, out_of_reach, rows_to_time, settle
from .strategy import Deadline, halve

MIN_ITEMS = 50
_LEAST_TEXTS, _MOST_TEXTS, _SAMPLE_TOKENS = 16, 256, 6144  # of the sample on which candidates are compared
_ROUNDS, _TRIES = 2, 4  # to verify
_TOO_SLOW, _HARSH = 0.9, 0.1
_LEAST_RADIUS, _UNLIMITED = 1e-9, 1e6


@dataclass(frozen=True)
class Solution:
    """A schedule for a wanted speed-up over the dense model on length-sorted batches.

    Attributes:
        schedule: The schedule.
        wanted: What was asked for.
        predicted: What the calibration predicts for it.
        measured: What it measured in the end, in one interleaved run; None when that was not asked for.
        reachable: The largest speed-up that any schedule would reach, as predicted.
        divergence: How far the pyramid is from the dense model on the sample, before any training: KL divergence of
            the outputs, or 1 minus the cosine of CLS vectors where no head is trained; None without a sample.
        corrections: How often the prediction was corrected by a measurement.
    """

    schedule: Schedule
    wanted: float
    predicted: float
    measured: float | None
    reachable: float
    divergence: float | None
    corrections: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {**dataclasses.asdict(self), "schedule": self.schedule.to_dict()}


class Solver:
    """Finds schedules for one model on one machine and rows of given lengths. Calibrates once, for many speed-ups.

    For pairs of a first and a last layer, the keep ratio is found that is predicted to give the wanted speed-up. Among
    these equally fast schedules, the one is taken that stays nearest to the dense model on the sample; without a
    sample, the one whose layers are nearest to `default_schedule`'s. It is then measured, and its keep ratio corrected
    until the measurement gives the wanted speed-up.

    Args:
        model: A dense model or a pyramid, in evaluation mode; it is not changed.
        lengths: The true lengths of the rows to be fast on.
        batch_size: Rows a batch.
        sample: Encoded texts on which schedules are compared; up to 256 of them are run.
        settings: Fields of `PyramidConfig` other than the schedule; a pyramid's own if None.
        trained_head: Whether the head is trained. If not, or if there is none, CLS vectors are compared.
        pad_id: The padding token.
        after_each: Called often, for a progress bar; see `calibration_runs`.
    """

    def __init__(
        self,
        model: Any,
        lengths: Sequence[int],
        *,
        batch_size: int = 32,
        sample: Sequence[Encoded] | None = None,
        settings: dict[str, Any] | None = None,
        trained_head: bool = True,
        pad_id: int = 0,
        after_each: Callable[[], object] | None = None,
    ) -> None:
        self.lengths = [int(n) for n in lengths]
        _check(model, self.lengths, batch_size, settings or {})
        self.batch_size = min(batch_size, len(self.lengths))
        self._after_each = after_each
        self._dense = restore(copy.deepcopy(model)).eval()
        self._pyramid = copy.deepcopy(model).eval()
        apply_settings(self._pyramid, extreme_schedule(), settings or {})
        found = pyramid_settings(self._pyramid)
        assert found is not None
        self._settings = found
        self._speedup_of = Predicted(self._pyramid, self.lengths, self.batch_size, after_each)
        self.reachable = self._speedup_of(found)
        self._sample = _some(sample or ())
        self._judge = self._make_judge(trained_head, pad_id) if sample else None

    def solve(self, speedup: float, *, verify: bool = True) -> Solution:
        """The schedule for a speed-up over the dense model on length-sorted batches.

        Args:
            speedup: The wanted speed-up.
            verify: Measure the result, and correct it where it is off.
        """
        check_speedup(speedup)
        if self.reachable < speedup:
            raise out_of_reach(speedup, self.lengths, self.batch_size, self.reachable)
        settings, measured, corrections = self._choose(speedup), None, 0
        if verify:
            tries = settle(settings, speedup, self._speedup_of, self._measured, _TRIES)
            measured, settings = tries[0]
            corrections = len(tries) - 1
            if measured < _TOO_SLOW * speedup:
                raise out_of_reach(speedup, self.lengths, self.batch_size, max(one for one, _ in tries))
        return Solution(
            schedule=settings.schedule,
            wanted=speedup,
            predicted=self._speedup_of(settings),
            measured=measured,
            reachable=self.reachable,
            divergence=None if self._judge is None else self._judge(settings, len(self._sample)).divergence,
            corrections=corrections,
        )

    def _choose(self, speedup: float) -> PyramidConfig:
        """The best of the candidates that are predicted to give the speed-up."""
        layers = self._pyramid.config.num_hidden_layers
        solved = [
            at_speedup(self._settings, first, last, self._speedup_of, speedup)
            for first, last in places(layers, self._settings.rest_from)
        ]
        found = [settings for settings in solved if settings is not None]
        if self._judge is not None:
            return halve(self._judge, found, len(self._sample), Deadline(math.inf))[0].settings
        usual = default_schedule(layers).to_dict()

        def unusual(settings: PyramidConfig) -> tuple[bool, int]:
            fields = settings.schedule.to_dict()
            off = sum(abs(fields[name] - usual[name]) for name in ("first_layer", "last_layer"))
            return fields["keep_ratio"] < _HARSH, off  # usual layers, but not at the price of nearly all tokens

        return min(found, key=unusual)

    def _make_judge(self, trained_head: bool, pad_id: int) -> Judge:
        by_head = trained_head and has_head(self._dense)
        outputs = (logits_of if by_head else cls_of)(pad_id, self.batch_size)
        dense = outputs(self._dense, self._sample)
        distances = partial(divergences, among=dense) if by_head else cls_distances
        return Judge(self._pyramid, self._sample, dense, outputs, distances=distances)

    def _measured(self, settings: PyramidConfig) -> float:
        """The speed-up of the pyramid over the dense model, on evenly chosen batches."""
        pyramidize(self._pyramid, config=settings)
        rows = Workload.synthetic(self.lengths, vocabulary=self._dense.config.vocab_size).items
        workload = rows_to_time(rows, self.batch_size)
        return measured_speedup(
            self._dense, self._pyramid, workload, self.batch_size, rounds=_ROUNDS, after_each=self._after_each
        )


def solve_speedup(
    model: Any, speedup: float, lengths: Sequence[int], *, verify: bool = True, **options: Any
) -> Solution:
    """The schedule for a wanted speed-up, and what was predicted and measured for it; takes what `Solver` takes."""
    check_speedup(speedup)
    return Solver(model, lengths, **options).solve(speedup, verify=verify)


def schedule_for_speedup(
    model: Any,
    speedup: float,
    *,
    lengths: Sequence[int],
    batch_size: int = 32,
    sample: Sequence[Encoded] | None = None,
    settings: dict[str, Any] | None = None,
    trained_head: bool = True,
    pad_id: int = 0,
    verify: bool = True,
) -> Schedule:
    """The schedule for a wanted speed-up on this machine, over length-sorted dense batches.

    Args:
        model: A dense model or a pyramid, in evaluation mode; it is not changed.
        speedup: The wanted speed-up.
        lengths: The true lengths of the rows to be fast on.
        batch_size: Rows a batch.
        sample: Encoded texts, as from `PyramidClassifier.encode`. With them, the schedule that stays nearest to the
            dense model is taken among equally fast ones.
        settings: Fields of `PyramidConfig` other than the schedule; a pyramid's own if None.
        trained_head: Whether the head is trained. If not, or if there is none, CLS vectors are compared.
        pad_id: The padding token.
        verify: Measure the result, and correct it where it is off.
    """
    how: dict[str, Any] = {"sample": sample, "settings": settings, "trained_head": trained_head, "pad_id": pad_id}
    return solve_speedup(model, speedup, lengths, batch_size=batch_size, verify=verify, **how).schedule


def calibration_runs(lengths: Sequence[int]) -> int:
    """How often `solve_speedup` is expected to call `after_each`."""
    return runs_of_calibration(max(lengths)) + 2 * 2 * (1 + _ROUNDS)


def _some(sample: Sequence[Encoded]) -> list[Encoded]:
    """At most 256 of the texts, fewer of long ones, evenly chosen."""
    mean = sum(map(len, sample)) / max(len(sample), 1)
    texts = max(_LEAST_TEXTS, min(_MOST_TEXTS, int(_SAMPLE_TOKENS / max(mean, 1))))
    return list(sample)[:: max(1, len(sample) // texts)][:texts]


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
        return {
            **dataclasses.asdict(self),
            "mean_lengths": list(self.mean_lengths),
            "schedule": self.schedule.to_dict(),
        }


def solve_adaptive(
    model: Any,
    speedup: float,
    items: Sequence[Encoded],
    *,
    pad_id: int = 0,
    batch_size: int = 32,
    settings: dict[str, Any] | None = None,
    sample: int = 256,
    near: float | None = None,
    after_each: Callable[[], object] | None = None,
    **shape: Any,
) -> AdaptiveSolution:
    """The adaptive schedule of `adaptive_schedule_for_speedup`, and what it reached on a sample of the texts.

    Args:
        model: A dense classifier or a pyramid, in evaluation mode; it is not changed.
        speedup: Dense over pyramid multiply-accumulates at true lengths, on average.
        items: At least 50 encoded texts.
        pad_id: The padding token.
        batch_size: Texts at a time.
        settings: Fields of `PyramidConfig` other than the schedule; a pyramid's own if None.
        sample: How many of the texts are run, at most.
        near: A radius to begin with, where a good guess is known.
        after_each: Called after each run over the sample, for a progress bar.
        **shape: What `Schedule.adaptive` takes beside the radius. `relative=False` needs the metric "cosine" or
            "sensitivity".
    """
    _check_wanted(speedup, len(items), near)
    check_head(model)
    shape = {"min_tokens": MIN_TOKENS, **shape}
    some = list(items)[:: max(1, len(items) // sample)][:sample]
    pyramid = copy.deepcopy(model).eval()
    apply_settings(pyramid, Schedule.adaptive(1.0, **shape), settings or {})
    found = pyramid_settings(pyramid)
    assert found is not None
    tried: dict[float, tuple[float, list[tuple[int, ...]]]] = {}  # radius -> ideal speed-up, tokens kept

    def reached(radius: float) -> float:
        pyramidize(pyramid, config=found.replace(schedule=Schedule.adaptive(radius, **shape)))
        kept = kept_lengths(pyramid, some, pad_id, batch_size=batch_size)
        tried[radius] = ideal_speedup(pyramid, some, kept), kept
        if after_each is not None:
            after_each()
        return tried[radius][0]

    radius = _smallest_radius(reached, speedup, near, _largest_radius(found, shape.get("relative", True)), shape)
    ideal, kept = tried[radius]
    means = tuple(sum(column) / len(kept) for column in zip(*kept, strict=True))
    return AdaptiveSolution(Schedule.adaptive(radius, **shape), speedup, ideal, means, len(some))


def _smallest_radius(
    reached: Callable[[float], float], speedup: float, near: float | None, most: float, shape: dict[str, Any]
) -> float:
    start, stride = (1.0, 3.0) if near is None else (near, 1.3)
    radius = smallest(reached, speedup, low=_LEAST_RADIUS, high=most, start=start, stride=stride)
    if radius is None:
        raise OutOfReachError(
            f"an ideal speed-up of {speedup:g}x cannot be reached on these texts: at most {reached(most):.2f}x, by a "
            f"radius of {most:g} with {shape}; ask for less, or let earlier layers drop"
        )
    return radius


def adaptive_schedule_for_speedup(
    model: Any,
    speedup: float,
    items: Sequence[Encoded],
    *,
    pad_id: int = 0,
    batch_size: int = 32,
    settings: dict[str, Any] | None = None,
    first_layer: int = 1,
    last_layer: int | None = None,
    relative: bool = True,
    growth: float = 1.0,
    steps: int = 8,
    min_tokens: int = MIN_TOKENS,
) -> Schedule:
    """The adaptive schedule for a wanted ideal speed-up over the dense model, at true lengths.

    Args:
        model: A dense classifier or a pyramid, in evaluation mode; it is not changed.
        speedup: Dense over pyramid multiply-accumulates at true lengths, on average.
        items: At least 50 encoded texts, as from `PyramidClassifier.encode`.
        pad_id: The padding token.
        batch_size: Texts at a time.
        settings: Fields of `PyramidConfig` other than the schedule; a pyramid's own if None.
        first_layer: As in `Schedule.adaptive`, like all that follow.
        last_layer: See there.
        relative: See there. False needs the metric "cosine" or "sensitivity".
        growth: See there.
        steps: See there.
        min_tokens: See there.
    """
    shape: dict[str, Any] = {"first_layer": first_layer, "last_layer": last_layer, "relative": relative}
    shape |= {"growth": growth, "steps": steps, "min_tokens": min_tokens}
    how: dict[str, Any] = {"pad_id": pad_id, "batch_size": batch_size, "settings": settings}
    return solve_adaptive(model, speedup, items, **how, **shape).schedule


def _check_wanted(speedup: float, texts: int, near: float | None) -> None:
    """Raises unless there is a speed-up to reach, texts to reach it on, and somewhere to begin."""
    if near is not None and not near > 0:
        raise PyramidError(f"near must be a radius above 0, got {near!r}; leave it out if none is known")
    if isinstance(speedup, bool) or not isinstance(speedup, int | float) or not speedup >= 1:
        raise PyramidError(f"speedup must be a number of at least 1, got {speedup!r}; 2 means half of the work")
    if texts < MIN_ITEMS:
        raise DataError(f"choosing a radius needs at least {MIN_ITEMS} texts, got {texts}")


def _largest_radius(settings: PyramidConfig, relative: bool) -> float:
    """1 for shares of what keeping only CLS leaves, and for cosines; by sensitivity, effectively infinite."""
    if not relative and settings.metric == "euclidean":
        raise PyramidError(
            "relative must be True, got False: the radius to find is a share of what keeping only CLS leaves; "
            "leave it out, take metric='cosine' or 'sensitivity', or choose a distance yourself: "
            "Schedule.adaptive(radius, relative=False)"
        )
    return _UNLIMITED if settings.metric == "sensitivity" and not relative else 1.0
