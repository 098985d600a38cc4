"""What is searched: ways to choose and reduce tokens, and the layers between which they do it.

The solver finds for each candidate the keep ratio or radius that gives the wanted speed-up, so all are equally fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..config import PyramidConfig, Reduce, TokenMetric
from ..core.coreset import CentersPerStep
from ..schedule.base import Schedule
from ..text.sampling import shuffled
from .solver import MIN_TOKENS, SpeedupOf, at_speedup, extreme_schedule

_CENTERS: tuple[CentersPerStep, ...] = (1, 0.1, 0.4, "all")
_WITHIN: tuple[int | None, ...] = (3, 5, 8, 12, None)
_GROWTHS, _FIRST_GROWTH, _STEPS = (1.0, 1.1, 1.2, 1.3, 1.4), 1.1, 16


@dataclass(frozen=True)
class Method:
    """Which tokens stay and what becomes of the others: a `PyramidConfig` without its schedule."""

    selector: str = "coreset"
    reduce: Reduce = "merge"
    weighted: bool = False
    centers_per_step: CentersPerStep = 1
    metric: TokenMetric = "euclidean"
    within: int | None = None
    rest_from: int | None = None

    def settings(self, schedule: Schedule) -> PyramidConfig:
        """The settings of a pyramid with this method and a schedule.

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

    @property
    def may_follow(self) -> bool:
        """Whether lengths can follow the text: the method uses distances, so a radius can say how many tokens stay."""
        return self.selector in ("coreset", "cluster")


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


def described(settings: PyramidConfig) -> str:
    """The settings of a pyramid in a line.

    Example:
        >>> described(PyramidConfig(schedule=Schedule.constant(0.5)))
        'coreset, merge, m = 1, constant schedule'
        >>> described(Method("first", "drop").settings(Schedule.exponential(0.25, 6, first_layer=4)))
        'first, drop, layers 4-6 down to 25% of the tokens'
        >>> described(Method("cluster").settings(Schedule.adaptive(0.125, last_layer=9, growth=1.2)))
        "cluster, merge, layers 1-9, each text within 12.5% of CLS's radius, times 1.2 a layer"
        >>> described(Method("cluster", metric="cosine").settings(Schedule.adaptive(0.1, last_layer=9, relative=False)))
        'cluster, merge, cosine, layers 1-9, each text within a radius of 0.1'
        >>> described(Method("cluster", rest_from=6).settings(Schedule.exponential(0.5, 5)).replace(skip=(3,)))
        'cluster, merge, resting from 6, without layer 3, layers 1-5 down to 50% of the tokens'
    """
    method, fields = str(Method.of(settings)), settings.schedule.to_dict()
    if settings.skip:
        method += f", without {listed_layers(settings.skip)}"
    if settings.schedule.kind not in ("exponential", "adaptive"):
        return f"{method}, {settings.schedule.kind} schedule"
    first, last = fields["first_layer"], fields["last_layer"]
    layers = f"{method}, {f'layer {first}' if first == last else f'layers {first}-{last}'}"
    if "radius" not in fields:
        return f"{layers} down to {fields['keep_ratio']:.0%} of the tokens"
    growing = f", times {fields['growth']:g} a layer" if "growth" in fields else ""
    radius = f"{fields['radius']:.1%} of CLS's radius" if fields["relative"] else f"a radius of {fields['radius']:.3g}"
    return f"{layers}, each text within {radius}{growing}"


def listed_layers(numbers: Sequence[int]) -> str:
    """Layers by number, in words.

    Example:
        >>> listed_layers((3,)), listed_layers((3, 5))
        ('layer 3', 'layers 3, 5')
    """
    return f"layer{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def following(settings: PyramidConfig, layers: int) -> PyramidConfig:
    """The same method and first layer, with lengths that follow the text; the radius is still to be solved.

    Example:
        >>> following(Method("cluster", rest_from=10).settings(Schedule.exponential(0.5, 2)), 12).schedule.last_layer
        9
    """
    schedule = Schedule.adaptive(
        1.0,
        first_layer=settings.schedule.to_dict()["first_layer"],
        last_layer=(settings.rest_from or layers) - 1,
        relative=settings.metric == "euclidean",  # the other metrics have fixed scales, and do better so
        growth=_FIRST_GROWTH,
        steps=_STEPS,
        min_tokens=MIN_TOKENS,
    )
    return settings.replace(schedule=schedule)


def unsolved(settings: PyramidConfig) -> PyramidConfig:
    """The candidate that was solved: the settings with 1 as keep ratio or radius."""
    strength: dict[str, Any] = {"radius" if settings.schedule.is_adaptive else "keep_ratio": 1.0}
    return settings.replace(schedule=replace(settings.schedule, **strength))


def neighbours(settings: PyramidConfig, layers: int) -> Iterator[PyramidConfig]:
    """The unsolved candidates that differ in one thing, by one step.

    Example:
        >>> near = neighbours(following(Method().settings(Schedule.exponential(0.5, 1)), 12), 12)
        >>> [(one.schedule.growth, one.schedule.first_layer, one.rest_from) for one in near]
        [(1.0, 1, None), (1.2, 1, None), (1.1, 1, 11), (1.1, 2, None)]
    """
    settings = unsolved(settings)
    schedule: Any = settings.schedule
    first, last, beyond = schedule.first_layer, schedule.last_layer, settings.rest_from or layers
    follows = schedule.is_adaptive

    def scheduled(**changes: Any) -> PyramidConfig:
        return settings.replace(schedule=replace(schedule, **changes))

    if follows:
        yield from (scheduled(growth=growth) for growth in _beside(schedule.growth, _GROWTHS))
    if settings.selector == "cluster":
        yield from (settings.replace(within=within) for within in _beside(settings.within, _WITHIN))
    if settings.selector == "coreset" and not follows:
        yield from (settings.replace(centers_per_step=m) for m in _beside(settings.centers_per_step, _CENTERS))
    for layer in (beyond - 1, beyond + 1):
        if (first if follows else last) < layer <= layers:
            ends = {"last_layer": layer - 1} if follows else {}
            yield scheduled(**ends).replace(rest_from=layer if layer < layers else None)
    yield from (scheduled(first_layer=layer) for layer in (first - 1, first + 1) if 1 <= layer <= last)
    if not follows:
        yield from (scheduled(last_layer=layer) for layer in (last - 1, last + 1) if first <= layer < beyond)


def _beside(value: object, values: Sequence[Any]) -> list[Any]:
    """The values before and after one of them; all of them for a value that is not there."""
    if value not in values:
        return list(values)
    place = values.index(value)
    return [*values[max(place - 1, 0) : place], *values[place + 1 : place + 2]]


def grid(
    methods: Sequence[Method],
    layers: int,
    speedup_of: SpeedupOf,
    wanted: float,
    in_time: Callable[[], bool] = lambda: True,
) -> list[PyramidConfig]:
    """The settings of the wanted speed-up to begin with, in a fixed mixed order: any first part is a fair sample.

    When `in_time` says that time is up, those that are found so far; one at least, if there is any.
    """
    shapes: list[tuple[PyramidConfig, int, int]] = []
    for method in methods:
        settings = method.settings(extreme_schedule())
        shapes += [(settings, *ends) for ends in places(layers, method.rest_from)]
        for layer in rests(layers) if method.rest_from is None else ():
            ends = [(first, last) for first in range(1, layer) for last in sorted({first, layer - 1})]
            shapes += [(settings.replace(rest_from=layer), *end) for end in ends]
    found: dict[object, PyramidConfig] = {}
    for i in shuffled(len(shapes), 0):
        if found and not in_time():
            break
        one = at_speedup(*shapes[i], speedup_of, wanted)
        if one is not None:  # those that keep every token, fast enough by resting, are all the same pyramid
            reduces = one.schedule.to_dict()["keep_ratio"] < 1
            found.setdefault(one if reduces else one.rest_from, one)
    return list(found.values())


def places(layers: int, rest_from: int | None = None) -> list[tuple[int, int]]:
    """The first and last layers that are tried: every first layer, with five spans. Reduces before tokens rest.

    Example:
        >>> places(4)
        [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)]
    """
    spans = sorted({0, round(layers / 6), round(0.4 * layers), round(0.65 * layers), max(layers - 2, 0)})
    awake = rest_from or max(layers, 2)
    return [(first, first + span) for first in range(1, awake) for span in spans if first + span < awake]


def rests(layers: int) -> list[int]:
    """The layers from which tokens may rest, to begin with: the last sixth of a model, or its last twelfth.

    Example:
        >>> rests(12), rests(6)
        ([10, 11], [5])
    """
    return sorted({round(layers * 5 / 6), round(layers * 11 / 12)} & set(range(2, layers)))


def fastest(methods: Sequence[Method], layers: int, speedup_of: SpeedupOf) -> float:
    """The largest speed-up that any of the methods reaches."""
    resting = (replace(method, rest_from=layer) for method in methods for layer in rests(layers))
    return max(speedup_of(method.settings(extreme_schedule())) for method in (*methods, *resting))
