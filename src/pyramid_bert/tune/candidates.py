"""What is searched: ways to choose and reduce tokens, times the layers between which they do it.

Of every (first layer, last layer) there is one schedule: the one whose keep ratio gives the wanted speed-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial

from ..config import PyramidConfig, Reduce, TokenMetric
from ..core.coreset import CentersPerStep
from ..schedule.base import Schedule
from ..schedule.kinds import ExponentialSchedule
from ..text.sampling import shuffled
from .solver import MIN_TOKENS, extreme_schedule, with_speedup


@dataclass(frozen=True)
class Method:
    """Which tokens stay and what becomes of the others: a `PyramidConfig` but for its schedule."""

    selector: str = "coreset"
    reduce: Reduce = "merge"
    weighted: bool = False
    centers_per_step: CentersPerStep = 1
    metric: TokenMetric = "euclidean"
    within: int | None = None
    rest_from: int | None = None

    def settings(self, schedule: Schedule) -> PyramidConfig:
        """The settings of a pyramid that works like this.

        Example:
            >>> Method("first", "drop").settings(Schedule.constant(0.5)).selector
            'first'
        """
        return PyramidConfig(schedule=schedule, **asdict(self))

    def __str__(self) -> str:
        """In a few words, for tables.

        Example:
            >>> str(Method("cluster", metric="cosine", within=8))
            'cluster, merge, cosine, within 8'
        """
        words = [self.selector, "weighted" if self.weighted else self.reduce]
        words += [self.metric] if self.metric != "euclidean" else []
        words += [f"m = {self.centers_per_step}"] if self.selector == "coreset" else []
        words += [f"within {self.within}"] if self.within is not None else []
        words += [f"resting from {self.rest_from}"] if self.rest_from is not None else []
        return ", ".join(words)

    @classmethod
    def of(cls, settings: PyramidConfig) -> Method:
        """The method of a pyramid."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(cls)})


def described(settings: PyramidConfig) -> str:
    """What a search found, in a line: settings with an exponential schedule, or an adaptive one that ends somewhere.

    Example:
        >>> described(Method("first", "drop").settings(Schedule.exponential(0.25, 6, first_layer=4)))
        'first, drop, layers 4-6 down to 25% of the tokens'
        >>> described(Method("cluster").settings(Schedule.adaptive(0.125, last_layer=9, growth=1.2)))
        "cluster, merge, layers 1-9, each text within 12.5% of CLS's radius, times 1.2 a layer"
        >>> described(Method("cluster", metric="cosine").settings(Schedule.adaptive(0.1, last_layer=9, relative=False)))
        'cluster, merge, cosine, layers 1-9, each text within a radius of 0.1'
    """
    method, fields = Method.of(settings), settings.schedule.to_dict()
    layers = f"{method}, layers {fields['first_layer']}-{fields['last_layer']}"
    if "radius" not in fields:
        return f"{layers} down to {fields['keep_ratio']:.0%} of the tokens"
    growing = f", times {fields['growth']:g} a layer" if "growth" in fields else ""
    radius = f"{fields['radius']:.1%} of CLS's radius" if fields["relative"] else f"a radius of {fields['radius']:.3g}"
    return f"{layers}, each text within {radius}{growing}"


METHODS: tuple[Method, ...] = (
    Method("cluster", metric="sensitivity"),
    Method("cluster", metric="sensitivity", within=5),
    Method("cluster", metric="sensitivity", within=8),
    Method("cluster", metric="cosine"),
    Method("cluster", metric="cosine", within=5),
    Method("cluster", metric="cosine", within=8),
    Method("coreset", "merge"),
    Method("coreset", "drop", weighted=True),
    Method("coreset", "drop"),
    Method("coreset", "merge", metric="cosine"),
    Method("coreset", "merge", centers_per_step="all"),
    Method("cls-attention", "merge"),
    Method("cls-attention", "drop"),
    Method("attention", "merge"),
    Method("attention", "drop"),
    Method("first", "drop"),
)
_CENTERS: tuple[CentersPerStep, ...] = (1, 0.1, 0.4, "all")
WITHIN: tuple[int | None, ...] = (3, 5, 8, 12, None)

SpeedupOf = Callable[[PyramidConfig], float]


def grid(methods: Sequence[Method], layers: int, speedup_of: SpeedupOf, aim: float) -> list[PyramidConfig]:
    """The candidates to begin with, in a fixed mixed order: whatever part of them is looked at is a fair choice.

    Args:
        methods: The ways to choose and reduce tokens.
        layers: Layers of the model.
        speedup_of: The speed-up that settings give.
        aim: The speed-up that each of them is to give.
    """
    spans = sorted({0, round(layers / 6), round(0.4 * layers), round(0.65 * layers), layers - 2})
    places = [(first, first + span) for first in range(1, layers) for span in spans if first + span < layers]
    ways = [
        (method, first, last) for method in methods for first, last in places if last < (method.rest_from or layers)
    ]
    for rest_from in rests(layers):
        ways += [
            (replace(method, rest_from=rest_from), first, last)
            for method in methods
            for first in range(1, rest_from)
            for last in sorted({first, rest_from - 1})
            if method.rest_from is None
        ]
    found = _distinct(settings for way in ways if (settings := at_speedup(*way, speedup_of, aim)) is not None)
    return [found[i] for i in shuffled(len(found), 0)]


def _distinct(found: Iterable[PyramidConfig]) -> list[PyramidConfig]:
    """The candidates, and of those that are fast enough by resting and keep every token, which are all one, one."""
    kept: dict[object, PyramidConfig] = {}
    for settings in found:
        reduces = settings.schedule.to_dict()["keep_ratio"] < 1
        kept.setdefault(settings if reduces else settings.rest_from, settings)
    return list(kept.values())


def rests(layers: int) -> list[int]:
    """The layers from which tokens may rest, to begin with: the last sixth of a model, or its last twelfth.

    Example:
        >>> rests(12), rests(6)
        ([10, 11], [5])
    """
    return sorted({round(layers * 5 / 6), round(layers * 11 / 12)} & set(range(2, layers)))


def at_speedup(method: Method, first: int, last: int, speedup_of: SpeedupOf, aim: float) -> PyramidConfig | None:
    """The method between two layers, with the keep ratio that gives the speed-up `aim`; None when none gives it."""
    make = partial(Schedule.exponential, last_layer=last, first_layer=first, min_tokens=MIN_TOKENS)
    schedule = with_speedup(lambda schedule: speedup_of(method.settings(schedule)), aim, make)
    return None if schedule is None else method.settings(schedule)


def neighbours(settings: PyramidConfig, layers: int, speedup_of: SpeedupOf, aim: float) -> Iterator[PyramidConfig]:
    """Candidates that differ from `settings` in one thing: a layer more or less at an end, or a knob of the method."""
    method, schedule = Method.of(settings), settings.schedule
    assert isinstance(schedule, ExponentialSchedule)
    first, last = schedule.first_layer, schedule.last_layer
    beyond = method.rest_from or layers  # where nothing is reduced any more
    for begin, end in ((first - 1, last), (first + 1, last), (first, last - 1), (first, last + 1)):
        if 1 <= begin <= end < beyond:
            found = at_speedup(method, begin, end, speedup_of, aim)
            if found is not None:
                yield found
    rested = [layer for layer in (beyond - 1, beyond + 1) if last < layer <= layers]
    others = [replace(method, rest_from=layer if layer < layers else None) for layer in rested]
    if method.selector == "coreset":
        others += [replace(method, centers_per_step=m) for m in _CENTERS if m != method.centers_per_step]
    if method.selector == "cluster":
        others += [replace(method, within=places) for places in WITHIN if places != method.within]
    for other in others:
        found = at_speedup(other, first, last, speedup_of, aim)
        if found is not None:
            yield found


def with_other_speedup(settings: PyramidConfig, speedup_of: SpeedupOf, aim: float) -> PyramidConfig | None:
    """The same method with the speed-up `aim`, at the same layers or as few below as it takes; None when none do."""
    method, schedule = Method.of(settings), settings.schedule
    assert isinstance(schedule, ExponentialSchedule)
    for lower in range(schedule.first_layer):
        found = at_speedup(method, schedule.first_layer - lower, schedule.last_layer - lower, speedup_of, aim)
        if found is not None:
            return found
    return None


def fastest(methods: Sequence[Method], layers: int, speedup_of: SpeedupOf) -> float:
    """The largest speed-up that any of the methods reaches."""
    resting = (replace(method, rest_from=layer) for method in methods for layer in rests(layers))
    return max(speedup_of(method.settings(extreme_schedule())) for method in (*methods, *resting))
