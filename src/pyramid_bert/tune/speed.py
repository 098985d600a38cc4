"""How fast a pyramid is: counted in multiply-accumulates, predicted for this machine, or measured on it.

A prediction is the sum of the parts of a pass (attention, choosing, feed-forward). A calibration times them at a few
lengths; between these, times are interpolated.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..bench.timing import time_interleaved
from ..bench.workload import Workload, forward_all
from ..config import PyramidConfig
from ..core.loop import Exactly, Half, Step
from ..core.tokens import Tokens
from ..cost import tokens_seen
from ..errors import OutOfReachError, PyramidError
from ..families import pyramid_encoder, pyramid_settings, pyramidize, run_ends, settings_for, sizes_of
from ..runtimes.devices import wait_for
from ..schedule.base import Schedule
from ..schedule.kinds import ExponentialSchedule
from ..text.batches import Encoded, sorted_batches
from ..text.sampling import shuffled
from .solver import MIN_TOKENS, SpeedupOf, each_at_speedup, extreme_schedule

PARTS = ("attention", "attention_masked", "attention_ranked", "feed_forward", "choosing", "cls_attention", "rest")
_OF_THE_SELECTOR = ("choosing", "attention", "attention_ranked")  # ranking costs what it adds to attention
_POINTS, _ROUNDS = 6, 3
_LARGE, _FEW_LAYERS = 2048, 3  # from 2,048 tokens a batch on, reading weights costs little: three layers are timed
_CLOSE_ENOUGH = 0.03  # relative, between the wanted and the measured speed-up
_TOKENS_TO_TIME = 16_384


class Counted:
    """Speed-ups by multiply-accumulates, each row at its true length: exact, and the same on every machine."""

    def __init__(self, model: Any, lengths: Sequence[int]) -> None:
        self._sizes, self._config = sizes_of(model), model.config
        self._lengths = Counter(lengths)
        self._known: dict[Any, float] = {}

    def __call__(self, settings: PyramidConfig) -> float:
        """The ideal speed-up over the dense model; 0 for settings that its family cannot run."""
        if (found := settings_for(self._config, settings)) is None:
            return 0.0
        settings = found
        computed = settings.cls_only, settings.rest_from, settings.skip
        key = settings.schedule, settings.placement, settings.metric, computed
        if key not in self._known:
            dense = macs = 0
            for n, rows in self._lengths.items():
                cost = settings.cost(settings.schedule.lengths(n, self._sizes.layers), n, self._sizes)
                dense, macs = dense + rows * cost.dense_macs, macs + rows * cost.macs
            self._known[key] = dense / macs
        return self._known[key]


@dataclass(frozen=True)
class Calibration:
    """Seconds of each part for a batch, by length.

    Attributes:
        lengths: The lengths that were timed, ascending.
        seconds: Part -> seconds at each of them, of one layer where the part belongs to a layer.
        batch_size: Rows of the batch.
        layers: Layers of the model.
        weighted: Whether the pyramid's attention takes a bias, as it does where tokens are merged.
        placement: Where the pyramid reduces.
        cls_layers: How many of its last layers compute only CLS.
        skip: The layers that it leaves out.
    """

    lengths: tuple[int, ...]
    seconds: dict[str, tuple[float, ...]]
    batch_size: int
    layers: int
    weighted: bool
    placement: Any
    cls_layers: int
    skip: tuple[int, ...] = ()

    def part(self, name: str, n: int) -> float:
        """The seconds of a part at `n` tokens."""
        return self._tables[name][n]

    @cached_property
    def _tables(self) -> dict[str, list[float]]:
        """Part -> seconds at 0, 1, 2, … tokens."""
        every = np.arange(self.lengths[-1] + 1)
        return {name: np.interp(every, self.lengths, seconds).tolist() for name, seconds in self.seconds.items()}

    def dense(self, n: int, *, masked: bool) -> float:
        """The predicted seconds of the dense model on a batch of width `n`; `masked` if some rows are shorter."""
        attention = self.part("attention_masked" if masked else "attention", n)
        return self.layers * (attention + self.part("feed_forward", n)) + self.part("rest", n)

    def pyramid(self, schedule: Schedule, n: int, *, masked: bool) -> float:
        """The predicted seconds of the pyramid on such a batch."""
        every = enumerate(schedule.lengths(n, self.layers), start=1)
        kept = [length for layer, length in every if layer not in self.skip]
        attends, feeds = tokens_seen(kept, n, self.placement)
        total, before, whole = self.part("rest", n), n, len(kept) - self.cls_layers
        for seen, fed, after in zip(attends[:whole], feeds[:whole], kept[:whole], strict=True):
            attention = "attention_masked" if masked or (self.weighted and before < n) else "attention"
            total += self.part(attention, seen) + self.part("feed_forward", fed)
            if after < before:  # the selector may want to know the attention that tokens receive
                ranking = self.part("attention_ranked", seen) - self.part("attention", seen)
                total += self.part("choosing", before) + max(ranking, 0.0)
            before = after
        return total + sum(self.part("cls_attention", seen) + self.part("feed_forward", 1) for seen in attends[whole:])


def calibrate(
    pyramid: Any,
    longest: int,
    *,
    batch_size: int,
    rounds: int = _ROUNDS,
    known: Calibration | None = None,
    after_each: Callable[[], object] | None = None,
    in_time: Callable[[], bool] | None = None,
) -> Calibration:
    """Times the parts of `pyramid` on random batches of up to `longest` tokens.

    Args:
        pyramid: A pyramid in evaluation mode; what it keeps does not matter.
        longest: The longest length to be asked for.
        batch_size: Rows a batch.
        rounds: How many times each part is timed; medians count.
        known: A calibration of the same weights with another selector or reduction: only choosing is timed again, and
            what it asks of attention.
        after_each: Called after each run, for a progress bar.
        in_time: Whether there is time for another run. Each part is timed once at least.
    """
    settings, encoder = pyramid_settings(pyramid), pyramid_encoder(pyramid)
    if settings is None or encoder is None:
        raise PyramidError("calibrate takes a pyramid; use pyramidize(model, schedule) first")
    settings.check_saves()
    lengths, names = lengths_to_time(longest), PARTS if known is None else _OF_THE_SELECTOR
    every = list(encoder.plan.layers)
    layers = {n: every if batch_size * n < _LARGE else every[:_FEW_LAYERS] for n in lengths}
    runs = {}
    for n in lengths:
        hidden = torch.randn(batch_size, n, pyramid.config.hidden_size).to(pyramid.device, pyramid.dtype)
        parts = _parts(pyramid, encoder, layers[n], hidden)
        runs.update({f"{name} {n}": parts[name] for name in names})
    timing = time_interleaved(runs, rounds=rounds, after_each=after_each, in_time=in_time)

    def seconds(name: str, n: int) -> float:
        return timing.median(f"{name} {n}") / (1 if name in ("rest", "choosing") else len(layers[n]))

    timed = {name: tuple(seconds(name, n) for n in lengths) for name in names}
    return Calibration(
        lengths=tuple(lengths),
        seconds=timed if known is None else {**known.seconds, **timed},
        batch_size=batch_size,
        layers=len(every),
        weighted=encoder.weighted,
        placement=encoder.plan.placement,
        cls_layers=settings.replace(cls_only=encoder.plan.cls_only).cls_layers(len(every)),
        skip=settings.skip,
    )


def runs_of_calibration(longest: int) -> int:
    """How often `calibrate` calls `after_each`."""
    return len(lengths_to_time(longest)) * len(PARTS) * (_ROUNDS + 1)


def lengths_to_time(longest: int) -> list[int]:
    """A few lengths from 1 to `longest`, closer together where they are short.

    Example:
        >>> lengths_to_time(128)
        [1, 8, 26, 53, 87, 128]
    """
    return sorted({max(1, math.ceil(longest * (i / (_POINTS - 1)) ** 1.75)) for i in range(_POINTS)})


def _parts(pyramid: Any, encoder: Any, layers: Sequence[Any], hidden: Tensor) -> dict[str, Callable[[], None]]:
    """What is timed at one length. Parts of a layer run through several layers."""
    rows, n, _ = hidden.shape
    plain = Tokens(hidden, [n] * rows, owner=encoder.owner[0])
    masked = replace(plain, bias=hidden.new_zeros(rows, 1, 1, n))
    ids = torch.zeros(rows, n, dtype=torch.long, device=hidden.device)
    voters = encoder.selector.voters

    def timed(run: Callable[[], object]) -> Callable[[], None]:
        def call() -> None:
            with torch.inference_mode():
                run()
            wait_for(hidden.device)

        return call

    def through(half: Half, tokens: Tokens, **how: Any) -> Callable[[], None]:
        steps = [Step(1, half, layer, final=True, **how) for layer in layers]
        return timed(lambda: [encoder.family.run(step, tokens) for step in steps])

    def choose() -> None:
        if n > 1 and encoder.selector.name != "pool":
            received = hidden.new_ones(rows, n, dtype=torch.float32) if voters else None
            tokens = replace(plain, received=received)
            tokens.reduced(encoder.reducer(tokens, Step(1, "attention", keep=Exactly((max(1, n // 2),) * rows))))

    return {
        "attention": through("attention", plain),
        "attention_masked": through("attention", masked),
        "attention_ranked": through("attention", plain, voters=voters),
        "feed_forward": through("feed_forward", plain),
        "choosing": timed(choose),
        "cls_attention": through("attention", masked, cls_only=True),
        "rest": timed(lambda: run_ends(pyramid, ids, hidden)),
    }


def batch_shapes(lengths: Sequence[int], batch_size: int) -> dict[tuple[int, bool], float]:
    """(width, whether some rows are shorter) -> how many batches of it there are when rows are sorted by length.

    Example:
        >>> batch_shapes([3, 9, 4, 8, 8, 9], batch_size=4)
        {(9, True): 1.0, (4, True): 0.5}
        >>> batch_shapes([5, 9, 5], batch_size=1)
        {(9, False): 1.0, (5, False): 2.0}
    """
    longest_first = sorted(lengths, reverse=True)
    shapes: dict[tuple[int, bool], float] = {}
    for start in range(0, len(longest_first), batch_size):
        batch = longest_first[start : start + batch_size]
        shape = batch[0], batch[-1] < batch[0]
        shapes[shape] = shapes.get(shape, 0.0) + len(batch) / batch_size
    return shapes


class Predicted:
    """Speed-ups over dense, length-sorted batches, predicted by a calibration of this machine.

    Attributes:
        in_time: Whether there is time for another run of a calibration.
    """

    def __init__(
        self,
        model: Any,
        lengths: Sequence[int],
        batch_size: int,
        after_each: Callable[[], object] | None = None,
        in_time: Callable[[], bool] | None = None,
    ) -> None:
        self._model, self._after_each, self.in_time = copy.deepcopy(model), after_each, in_time
        self._longest, self._batch_size = max(lengths), batch_size
        self._shapes = batch_shapes(lengths, batch_size)
        self._known: dict[PyramidConfig, Calibration] = {}

    def __call__(self, settings: PyramidConfig) -> float:
        """The predicted speed-up over the dense model; 0 for settings that its family cannot run."""
        if settings_for(self._model, settings) is None:
            return 0.0
        times, shapes = self._calibration(settings), self._shapes.items()
        dense = sum(count * times.dense(n, masked=masked) for (n, masked), count in shapes)
        return dense / sum(count * times.pyramid(settings.schedule, n, masked=masked) for (n, masked), count in shapes)

    def knows(self, settings: PyramidConfig) -> bool:
        """Whether a prediction for these settings needs no further calibration."""
        return timed_as(settings) in self._known

    def _calibration(self, settings: PyramidConfig) -> Calibration:
        """The times of the parts; those of a new method are measured first."""
        method = timed_as(settings)
        if method not in self._known:
            self._known[method] = calibrate(
                pyramidize(self._model, config=method),
                self._longest,
                batch_size=self._batch_size,
                known=next(iter(self._known.values()), None),
                after_each=self._after_each,
                in_time=self.in_time,
            )
        known = self._known[method]
        return replace(known, cls_layers=settings.cls_layers(known.layers), skip=settings.skip)


def timed_as(settings: PyramidConfig) -> PyramidConfig:
    """The settings with the same times of parts: schedule, reach of clusters, resting and skipping do not matter.

    Example:
        >>> near = PyramidConfig(schedule=Schedule.constant(0.5), selector="cluster", within=8)
        >>> timed_as(near) == timed_as(near.replace(within=None, rest_from=4))
        True
    """
    return settings.replace(schedule=extreme_schedule(), within=None, rest_from=None, skip=())


def measured_speedup(
    dense: Any,
    pyramid: Any,
    workload: Workload,
    batch_size: int,
    *,
    rounds: int = 3,
    after_each: Callable[[], object] | None = None,
) -> float:
    """The median of `speedups_by_round`."""
    return median(speedups_by_round(dense, pyramid, workload, batch_size, rounds=rounds, after_each=after_each))


def speedups_by_round(
    dense: Any,
    pyramid: Any,
    workload: Workload,
    batch_size: int,
    *,
    rounds: int = 3,
    after_each: Callable[[], object] | None = None,
    in_time: Callable[[], bool] | None = None,
) -> list[float]:
    """How many times faster the pyramid runs the rows than the dense model, round by round.

    Rows are sorted by length, and each batch is run by both in turn. When time is up, the last round is left out if it
    is not complete; a first round is of at least one batch. Takes what `time_interleaved` takes.
    """
    batches = workload.tensors(workload.by_length(batch_size), device=dense.device)
    order, sides = shuffled(len(batches), 0), {"dense": dense, "pyramid": pyramid}
    runs = {f"{side} {i}": partial(forward_all, sides[side], [batches[i]]) for i in order for side in sides}
    times = time_interleaved(runs, rounds=rounds, after_each=after_each, in_time=in_time, at_least=2).seconds
    found: list[float] = []
    for turn in range(rounds):
        done = [i for i in order if len(times[f"pyramid {i}"]) > turn]
        if not done or (turn and len(done) < len(order)):
            break
        spent = {side: sum(times[f"{side} {i}"][turn] for i in done) for side in sides}
        found.append(spent["dense"] / spent["pyramid"])
    return found


def rows_to_time(items: Sequence[Encoded], batch_size: int, pad_id: int = 0) -> Workload:
    """About 16,000 tokens of the rows, at least three batches: whole batches of the sorted rows, evenly chosen."""
    batches = sorted_batches([len(item) for item in items], batch_size)
    wanted = max(3, int(len(batches) * _TOKENS_TO_TIME / sum(map(len, items))))
    step = max(1, len(batches) // wanted)
    some = [items[i] for batch in batches[(step - 1) // 2 :: step] for i in batch]
    return Workload(some, max(map(len, some)), "evenly chosen rows", pad_id)


def settle(
    settings: PyramidConfig,
    wanted: float,
    speedup_of: SpeedupOf,
    measure: SpeedupOf,
    tries: int,
    in_time: Callable[[], bool] = lambda: True,
) -> list[tuple[float, PyramidConfig]]:
    """Corrects the keep ratio until the measured speed-up is the wanted one: (measured, settings), the nearest first.

    The layers stay, unless only earlier ones reach the speed-up.

    Args:
        settings: Where to begin, with an exponential schedule.
        wanted: The speed-up.
        speedup_of: Predicts the speed-up of settings.
        measure: Measures it.
        tries: How often to measure, at most.
        in_time: Whether there is time to measure again.
    """
    found, aim = list[tuple[float, PyramidConfig]](), speedup_of(settings)
    for _ in range(tries):
        measured, schedule = measure(settings), settings.schedule
        found.append((measured, settings))
        aim *= wanted / measured
        assert isinstance(schedule, ExponentialSchedule)
        places = [(schedule.first_layer - i, schedule.last_layer - i) for i in range(schedule.first_layer)]
        corrected = next(each_at_speedup(settings, places, speedup_of, aim), None)
        if abs(measured / wanted - 1) <= _CLOSE_ENOUGH or corrected is None or not in_time():
            break
        settings = corrected
    return sorted(found, key=lambda one: abs(one[0] / wanted - 1))


def out_of_reach(
    speedup: float, lengths: Sequence[int], batch_size: int, reachable: float, *, timed: bool = True
) -> OutOfReachError:
    """The error that names the largest speed-up that can be reached; one that was `timed` may be a busy machine's."""
    mean = sum(lengths) / len(lengths)
    remedy = "ask for less, or try again on a quiet machine" if timed else "ask for less"
    return OutOfReachError(
        f"a speed-up of {speedup:g}x cannot be reached on these lengths (mean {mean:.0f} tokens, batches of "
        f"{batch_size}): at most {reachable:.2f}x, with {MIN_TOKENS} tokens left from layer 1 on; {remedy}"
    )
