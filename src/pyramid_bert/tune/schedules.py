"""Schedules for a wanted speed-up: fixed ones by time on this machine, adaptive ones by multiply-accumulates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from ..bench.ideal import check_head, ideal_speedup, kept_lengths
from ..bench.workload import Workload
from ..checks import check_kind, check_number
from ..config import PyramidConfig
from ..errors import DataError, OutOfReachError, PyramidError
from ..families import has_head, positions_of, pyramid_settings, pyramidize, restore
from ..families.hub import apply_settings, default_schedule
from ..schedule.base import Schedule
from ..text.batches import Encoded
from ..training.sensitivity import evenly
from .candidates import places
from .judge import Judge, outputs_for
from .solver import MIN_TOKENS, check_speedup, each_at_speedup, extreme_schedule, smallest
from .speed import Predicted, measured_speedup, out_of_reach, rows_to_time, runs_of_calibration, settle
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
        wanted: The speed-up asked for.
        predicted: What the calibration predicts.
        measured: What was measured in the end, in one interleaved run; None when that was not asked for.
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
        return {**asdict(self), "schedule": self.schedule.to_dict()}


class Solver:
    """Finds schedules for one model on one machine and rows of given lengths. Calibrates once, for many speed-ups.

    For pairs of a first and a last layer, the keep ratio is found that is predicted to give the wanted speed-up. Among
    these equally fast schedules, the one is taken that stays nearest to the dense model on the sample; without a
    sample, the one whose layers are nearest to `default_schedule`'s. It is then measured, and its keep ratio corrected
    until the measurement gives the wanted speed-up.

    Takes what `schedule_for_speedup` takes, and `after_each`: called often, for a progress bar (`calibration_runs`).
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
        check_kind("lengths", lengths, Iterable, "give the tokens of each text, as [12, 30]")
        self.lengths = [int(n) for n in lengths]
        _check(model, self.lengths, batch_size, settings or {})
        self.batch_size = min(batch_size, len(self.lengths))
        self._after_each = after_each
        self._dense = restore(copy.deepcopy(model)).eval()
        self._pyramid, self._settings = _pyramid_with(model, extreme_schedule(), settings)
        self._speedup_of = Predicted(self._pyramid, self.lengths, self.batch_size, after_each)
        self.reachable = self._speedup_of(self._settings)
        self._judge: Judge | None = None
        if sample:
            mean = max(1.0, sum(map(len, sample)) / len(sample))
            some = evenly(sample, max(_LEAST_TEXTS, min(_MOST_TEXTS, int(_SAMPLE_TOKENS / mean))))
            head = trained_head and has_head(self._dense)
            dense = outputs_for(self._dense, some, pad_id, self.batch_size, head=head)
            self._judge = Judge(self._pyramid, dense, some, pad_id, self.batch_size, head=head)

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
            divergence=None if self._judge is None else self._judge(settings, len(self._judge.dense)).divergence,
            corrections=corrections,
        )

    def _choose(self, speedup: float) -> PyramidConfig:
        """The best of the candidates that are predicted to give the speed-up."""
        layers = self._pyramid.config.num_hidden_layers
        ends = places(layers, self._settings.rest_from)
        found = list(each_at_speedup(self._settings, ends, self._speedup_of, speedup))
        if self._judge is not None:
            return halve(self._judge, found, len(self._judge.dense), Deadline(inf))[0].settings
        usual = default_schedule(layers).to_dict()

        def unusual(settings: PyramidConfig) -> tuple[bool, int]:
            fields = settings.schedule.to_dict()
            off = sum(abs(fields[name] - usual[name]) for name in ("first_layer", "last_layer"))
            return fields["keep_ratio"] < _HARSH, off  # usual layers, but not at the price of nearly all tokens

        return min(found, key=unusual)

    def _measured(self, settings: PyramidConfig) -> float:
        """The speed-up of the pyramid over the dense model, on evenly chosen batches."""
        pyramidize(self._pyramid, config=settings)
        rows = Workload.synthetic(self.lengths, vocabulary=self._dense.config.vocab_size).items
        how: dict[str, Any] = {"rounds": _ROUNDS, "after_each": self._after_each}
        some = rows_to_time(rows, self.batch_size)
        return measured_speedup(self._dense, self._pyramid, some, self.batch_size, **how)


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
        sample: Encoded texts, as from `PyramidClassifier.encode`; up to 256 of them are run. With them, the schedule
            that stays nearest to the dense model is taken among equally fast ones.
        settings: Fields of `PyramidConfig` other than the schedule; a pyramid's own if None.
        trained_head: Whether the head is trained. If not, or if there is none, CLS vectors are compared.
        pad_id: The padding token.
        verify: Measure the result, and correct it where it is off.
    """
    how: dict[str, Any] = {"sample": sample, "settings": settings, "trained_head": trained_head, "pad_id": pad_id}
    return solve_speedup(model, speedup, lengths, batch_size=batch_size, verify=verify, **how).schedule


def calibration_runs(lengths: Sequence[int]) -> int:
    """How often `solve_speedup` is expected to call `after_each`."""
    return runs_of_calibration(max(lengths)) + 2 * 2 * 3 * (1 + _ROUNDS)  # two measurements of three batches


def _check(model: Any, lengths: Sequence[int], batch_size: int, settings: dict[str, Any]) -> None:
    positions = positions_of(model)
    if not lengths or min(lengths) < 1 or max(lengths) > positions:
        shown = f"{min(lengths)}-{max(lengths)}" if lengths else "none"
        raise PyramidError(f"lengths must hold true lengths of at least one row, each in 1-{positions}, got {shown}")
    check_number("batch_size", batch_size, 1, whole=True)
    saved = pyramid_settings(model)
    selector = settings.get("selector") or (saved.selector if saved else "coreset")
    if selector in ("pool", "input-first") or settings.get("placement") == "input":
        raise PyramidError(
            f"a schedule for a speed-up is exponential, which the selector {selector!r} or placement 'input' does not "
            "take; use coreset, cluster, attention, first or random, or name a schedule"
        )


def _pyramid_with(model: Any, schedule: Schedule, settings: dict[str, Any] | None) -> tuple[Any, PyramidConfig]:
    """A copy of a model as a pyramid with this schedule, and its settings."""
    pyramid = copy.deepcopy(model).eval()
    apply_settings(pyramid, schedule, settings or {})
    found = pyramid_settings(pyramid)
    assert found is not None
    return pyramid, found


@dataclass(frozen=True)
class AdaptiveSolution:
    """An adaptive schedule for a wanted ideal speed-up.

    Attributes:
        schedule: The schedule.
        wanted: The speed-up asked for.
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
    sample: int = 256,
    near: float | None = None,
    after_each: Callable[[], object] | None = None,
    **shape: Any,
) -> AdaptiveSolution:
    """What `adaptive_schedule_for_speedup` does, and what its schedule reached.

    Takes the same arguments; `shape` are those of `Schedule.adaptive`. At most `sample` of the texts are run, and
    `after_each` is called after each run over them. `near` is a radius to begin with, where a good guess is known.
    """
    check_number("speedup", speedup, 1, hint="2 means half of the work")
    if near is not None:
        check_number("near", near, above=True, hint="leave it out if no radius is known")
    if len(items) < MIN_ITEMS:
        raise DataError(f"choosing a radius needs at least {MIN_ITEMS} texts, got {len(items)}")
    check_head(model)
    shape = {"min_tokens": MIN_TOKENS, **shape}
    some = evenly(items, sample)
    pyramid, found = _pyramid_with(model, Schedule.adaptive(1.0, **shape), settings)
    most = _largest_radius(found, shape.get("relative", True))
    tried: dict[float, tuple[float, list[tuple[int, ...]]]] = {}  # radius -> ideal speed-up, tokens kept

    def reached(radius: float) -> float:
        pyramidize(pyramid, config=found.replace(schedule=Schedule.adaptive(radius, **shape)))
        kept = kept_lengths(pyramid, some, pad_id, batch_size=batch_size)
        tried[radius] = ideal_speedup(pyramid, some, kept), kept
        if after_each is not None:
            after_each()
        return tried[radius][0]

    start, stride = (1.0, 3.0) if near is None else (near, 1.3)
    radius = smallest(reached, speedup, low=_LEAST_RADIUS, high=most, start=start, stride=stride)
    if radius is None:
        raise OutOfReachError(
            f"an ideal speed-up of {speedup:g}x cannot be reached on these texts: at most {reached(most):.2f}x, by a "
            f"radius of {most:g} with {shape}; ask for less, or let earlier layers drop"
        )
    ideal, kept = tried[radius]
    means = tuple(sum(column) / len(kept) for column in zip(*kept, strict=True))
    return AdaptiveSolution(Schedule.adaptive(radius, **shape), speedup, ideal, means, len(some))


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

    `first_layer` and what follows are as in `Schedule.adaptive`.

    Args:
        model: A dense classifier or a pyramid, in evaluation mode; it is not changed.
        speedup: Dense over pyramid multiply-accumulates at true lengths, on average.
        items: At least 50 encoded texts, as from `PyramidClassifier.encode`.
        pad_id: The padding token.
        batch_size: Texts at a time.
        settings: Fields of `PyramidConfig` other than the schedule; a pyramid's own if None.
        first_layer: The first layer that reduces.
        last_layer: The last one.
        relative: The radius is a share of what keeping only CLS leaves. False needs the metric "cosine" or
            "sensitivity".
        growth: The factor by which the radius grows from layer to layer.
        steps: Among how many lengths a layer chooses.
        min_tokens: How many tokens stay at least.
    """
    shape: dict[str, Any] = {"first_layer": first_layer, "last_layer": last_layer, "relative": relative}
    shape |= {"growth": growth, "steps": steps, "min_tokens": min_tokens}
    how: dict[str, Any] = {"pad_id": pad_id, "batch_size": batch_size, "settings": settings}
    return solve_adaptive(model, speedup, items, **how, **shape).schedule


def _largest_radius(settings: PyramidConfig, relative: bool) -> float:
    """1 for shares of what keeping only CLS leaves, and for cosines; by sensitivity, effectively infinite."""
    if not relative and settings.metric == "euclidean":
        raise PyramidError(
            "relative must be True, got False: the radius to find is a share of what keeping only CLS leaves; "
            "leave it out, take metric='cosine' or 'sensitivity', or choose a distance yourself: "
            "Schedule.adaptive(radius, relative=False)"
        )
    return _UNLIMITED if settings.metric == "sensitivity" and not relative else 1.0
