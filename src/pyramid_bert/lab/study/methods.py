"""The methods that a study compares, as fields of `PyramidConfig`, and the axes of its tables. No torch, no numpy.

The published methods forget the tokens that they do not keep (reduce = "drop"); ours merge them. CS-opt is not a method
but a row of the tables: the best m of the core-set methods, for each configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...schedule.base import Schedule
from ..lra.presets import LRA_NAMES

# Each kind has its configurations: schedules by layer, pooling windows at layers, cuts of the input, wanted speed-ups.
Kind = Literal["select", "pool", "truncate", "speed"]
DENSE = "Dense"
CS_OPT = "CS-opt"
DISTILLING = ("temperature", "distill_weight", "hidden_weight")  # how methods that learn from the dense model do


_SPEEDUPS, _SPACES = (1.5, 2.0, 3.0, 3.5), (0.3, 0.7)
# What a metric can be tabulated against -> its title, and where tables read it by default (the paper's points).
AXES: dict[str, tuple[str, tuple[float, ...]]] = {
    "ideal-c": ("ideal speed-up over c (dense at true lengths)", _SPEEDUPS),
    "ideal-a": ("ideal speed-up over a (dense padded to N)", _SPEEDUPS),
    "measured-c": ("measured speed-up over c (dense, length-sorted)", _SPEEDUPS),
    "measured-a": ("measured speed-up over a (dense padded to N)", _SPEEDUPS),
    "space": ("attention space saved at N, with the tokens that attention sees", _SPACES),
    "space-printed": ("attention space saved at N, by the printed formula", _SPACES),
}


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to make a pyramid.

    Attributes:
        name: What experiments and tables call it.
        summary: One line for people.
        settings: Fields of `PyramidConfig`, except the schedule.
        kind: Which of an experiment's configurations it takes.
        distills: Whether it also learns from the dense classifier.
        training: Fields of `TrainSettings` that override the experiment's.
        schedules: Its own configurations; empty for those of its kind.
        elastic: With wanted speed-ups: one model is trained for all of them.
    """

    name: str
    summary: str
    settings: dict[str, Any] = field(default_factory=dict)
    kind: Kind = "select"
    distills: bool = False
    training: dict[str, Any] = field(default_factory=dict)
    schedules: tuple[Schedule, ...] = ()
    elastic: bool = False


def _drop(name: str, summary: str, selector: str, kind: Kind = "select", **settings: Any) -> Method:
    return Method(name=name, summary=summary, settings={"selector": selector, **settings, "reduce": "drop"}, kind=kind)


_M = {"CS-1": 1, **{f"CS-{m}": m for m in (0.1, 0.2, 0.3, 0.4, 0.5)}, "CS-k-1": "all"}
CORESETS = {name: _drop(name, f"core-set, m = {m}", "coreset", centers_per_step=m) for name, m in _M.items()}
_POOL = _drop("Pool", "mean of neighbours", "pool", "pool")
_MERGE = Method(
    name="Merge",
    summary="core-set, others merged",
    settings={"selector": "coreset", "centers_per_step": 1, "reduce": "merge"},
)
METHODS = CORESETS | {
    method.name: method
    for method in (
        _drop("Att", "most attended", "attention"),
        _POOL,
        _drop("1st", "first tokens", "first"),
        _drop("1st-I", "input cut to its first tokens", "input-first", "truncate"),
        _drop("Rand", "random tokens", "random"),
        _MERGE,
        replace(_MERGE, name="Merge+KD", summary="Merge, taught by the dense model", distills=True),
        replace(_POOL, name="Pool+KD", summary="Pool, taught by the dense model", distills=True),
        Method(
            name="Taught", summary="found by short trainings, taught by the dense model", kind="speed", distills=True
        ),
        Method(
            name="Elastic",
            summary="one model for all speed-ups, taught as Taught",
            kind="speed",
            distills=True,
            elastic=True,
        ),
    )
}


def kind_of(method: Method, task: str) -> str:
    """The key of `configurations` for a method on a task: for Long Range Arena, every method selects at the input.

    Example:
        >>> kind_of(METHODS["CS-1"], "rte"), kind_of(METHODS["CS-1"], "bigbird-text")
        ('select', 'input')
    """
    return "input" if task in LRA_NAMES and method.kind == "select" else method.kind


def in_order(names: Iterable[str]) -> list[str]:
    """Names of methods in the order of tables, each once and without "Dense".

    Core-sets come first, then CS-opt, the other methods, and an experiment's variants in the given order.

    Example:
        >>> in_order(["mine", "Rand", "CS-opt", "Dense", "CS-1", "Rand"])
        ['CS-1', 'CS-opt', 'Rand', 'mine']
    """
    wanted = dict.fromkeys(name for name in names if name != DENSE)
    order = [*CORESETS, CS_OPT, *(name for name in METHODS if name not in CORESETS)]
    return [name for name in (*order, *(name for name in wanted if name not in order)) if name in wanted]
