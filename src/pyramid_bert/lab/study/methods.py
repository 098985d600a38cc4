"""The methods that a study compares, by name: data that map to fields of `PyramidConfig`. No torch.

The published ones forget the tokens that they do not keep (reduce = "drop"); ours merge them. CS-opt is not a method:
it is a row of the tables, for each configuration the best m among the core-set methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..lra.presets import LRA_NAMES

# Each kind has its configurations: schedules by layer, pooling windows at layers, cuts of the input.
Kind = Literal["select", "pool", "truncate"]
DENSE = "Dense"
CS_OPT = "CS-opt"


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to make a pyramid.

    Attributes:
        name: What experiments and tables call it.
        summary: One line for people.
        settings: Fields of `PyramidConfig`, but for the schedule.
        kind: Which of an experiment's configurations it takes.
        distills: Whether it learns from the dense classifier as well.
        training: Fields of `TrainSettings` that are its own, whatever the experiment says for all.
    """

    name: str
    summary: str
    settings: dict[str, Any] = field(default_factory=dict)
    kind: Kind = "select"
    distills: bool = False
    training: dict[str, Any] = field(default_factory=dict)


def _coreset(name: str, m: int | float | str) -> Method:
    settings = {"selector": "coreset", "centers_per_step": m, "reduce": "drop"}
    return Method(name=name, summary=f"core-set, m = {m}", settings=settings)


def _by_name(methods: Iterable[Method]) -> dict[str, Method]:
    return {method.name: method for method in methods}


CORESETS = _by_name(
    [_coreset("CS-1", 1), *(_coreset(f"CS-{m}", m) for m in (0.1, 0.2, 0.3, 0.4, 0.5)), _coreset("CS-k-1", "all")]
)
_MERGE = {"selector": "coreset", "centers_per_step": 1, "reduce": "merge"}
_POOL = {"selector": "pool", "reduce": "drop"}
METHODS = CORESETS | _by_name(
    [
        Method(name="Att", summary="most attended", settings={"selector": "attention", "reduce": "drop"}),
        Method(name="Pool", summary="mean of neighbours", settings=_POOL, kind="pool"),
        Method(name="1st", summary="first tokens", settings={"selector": "first", "reduce": "drop"}),
        Method(
            name="1st-I",
            summary="input cut to its first tokens",
            settings={"selector": "input-first", "reduce": "drop"},
            kind="truncate",
        ),
        Method(name="Rand", summary="random tokens", settings={"selector": "random", "reduce": "drop"}),
        Method(name="Merge", summary="core-set, others merged", settings=_MERGE),
        Method(name="Merge+KD", summary="Merge, taught by the dense model", settings=_MERGE, distills=True),
        Method(name="Pool+KD", summary="Pool, taught by the dense model", settings=_POOL, kind="pool", distills=True),
    ]
)


def variant(name: str, of: Method, settings: Mapping[str, Any], training: Mapping[str, Any] | None = None) -> Method:
    """A method that an experiment derives from another one: the same with other settings.

    Example:
        >>> variant("end", METHODS["CS-1"], {"placement": "end"}).settings["placement"]
        'end'
    """
    return replace(
        of,
        name=name,
        summary=f"{of.name} with other settings",
        settings={**of.settings, **settings},
        training={**of.training, **(training or {})},
    )


def kind_of(method: Method, task: str) -> str:
    """Where a method's configurations for a task stand: Long Range Arena selects at the input, whatever the method.

    Example:
        >>> kind_of(METHODS["CS-1"], "rte"), kind_of(METHODS["CS-1"], "bigbird-text")
        ('select', 'input')
    """
    return "input" if task in LRA_NAMES and method.kind == "select" else method.kind


def in_order(names: Iterable[str]) -> list[str]:
    """Names of methods as tables list them, each once, none for "Dense".

    Core-sets, CS-opt after them, then the others, and then an experiment's variants as they come.

    Example:
        >>> in_order(["mine", "Rand", "CS-opt", "Dense", "CS-1", "Rand"])
        ['CS-1', 'CS-opt', 'Rand', 'mine']
    """
    wanted = dict.fromkeys(name for name in names if name != DENSE)
    order = [*CORESETS, CS_OPT, *(name for name in METHODS if name not in CORESETS)]
    return [name for name in (*order, *(name for name in wanted if name not in order)) if name in wanted]
