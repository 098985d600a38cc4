"""Which runtime, precision and pyramid to take, given what was measured. No model is run here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..config import PyramidConfig
from ..errors import OutOfReachError
from ..runtimes.places import Place
from .candidates import described
from .held_out import Interval

_MUCH_FASTER = 1.25
_TOGETHER = 1.1  # pyramids whose ideal speed-ups differ by less are one search


@dataclass(frozen=True)
class Option:
    """One way to run the classifier, as measured on the held-out rows.

    Attributes:
        runtime: "torch", or a runtime that models are exported to.
        precision: Its precision; in torch also "packed", see `optimize`.
        settings: The pyramid; None for the dense model.
        over_c: How many times faster than the dense model in torch (fp32, length-sorted batches).
        over_d: The same over the fastest dense model of those measured.
        agreement: The share of rows with the label of the dense model in torch, fp32; for numbers their correlation.
        interval: Its 95 % interval.
        metrics: On these rows; None without labels.
    """

    runtime: str
    precision: str
    settings: PyramidConfig | None
    over_c: float
    over_d: float
    agreement: float
    interval: Interval
    metrics: Mapping[str, float] | None = None

    @property
    def place(self) -> Place:
        """Runtime and precision."""
        return self.runtime, self.precision

    @property
    def name(self) -> str:
        """Runtime, precision and pyramid in a few words."""
        return f"{self.runtime} {self.precision}, {self.pyramid}"

    @property
    def pyramid(self) -> str:
        """The pyramid in a few words."""
        return "no pyramid" if self.settings is None else described(self.settings)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**data, "settings": None if self.settings is None else self.settings.to_dict()}


def choose(options: Sequence[Option], wanted: float, metric: str | None = None) -> Option:
    """The best of the options that are at least as fast as wanted; raises if none is, and names the fastest.

    The best agrees most with the dense model. With a metric, that decides among those whose agreement lies within the
    interval of the best one's. The faster one wins a tie.

    Example:
        >>> near = Option("openvino", "fp32", None, 2.0, 1.0, 1.0, (0.9, 1.0))
        >>> fast = Option("openvino", "int8", None, 4.0, 2.0, 0.8, (0.7, 0.9))
        >>> [choose([near, fast], wanted).precision for wanted in (1.5, 3)]
        ['fp32', 'int8']
    """
    enough = [option for option in options if option.over_c >= wanted]
    if not enough:
        most = max(options, key=lambda option: option.over_c)
        raise OutOfReachError(
            f"nothing that was found is {wanted:g}x as fast as the dense model in torch; the fastest is "
            f"{most.over_c:.2f}x: {most.name}, agreement {100 * most.agreement:.1f}; ask for less, or allow more time, "
            "runtimes or precisions"
        )
    nearest = max(enough, key=lambda option: (option.agreement, option.over_c))
    if metric is None or nearest.metrics is None:
        return nearest
    as_near = [option for option in enough if option is nearest or option.agreement >= nearest.interval[0]]
    return max(as_near, key=lambda one: (_worth((one.metrics or {}).get(metric)), one.agreement, one.over_c))


def _worth(number: float | None) -> float:
    """A number to compare by: the correlation of constant outputs is not a number, which is the worst."""
    return -math.inf if number is None or math.isnan(number) else number


def pareto_front(options: Sequence[Option]) -> list[Option]:
    """The options that no other one beats in speed and agreement at once, the slowest first.

    Example:
        >>> measured = (1, 1.0), (2, 0.8), (3, 0.9)
        >>> slow, lost, fast = (Option("torch", "fp32", None, x, x, y, (y, y)) for x, y in measured)
        >>> [option.over_c for option in pareto_front([fast, lost, slow])]
        [1, 3]
    """
    front: list[Option] = []
    for option in sorted(options, key=lambda one: (-one.over_c, -one.agreement)):
        if not front or option.agreement > front[-1].agreement:
            front.append(option)
    return front[::-1]


def pyramids_needed(dense: Sequence[Option], wanted: float) -> dict[Place, float]:
    """Runtime and precision -> how much faster a pyramid must make the dense model there, where one is worth a search.

    It is not worth one where another dense model agrees as much, or within the interval, and is fast enough, or is so
    much faster that its pyramid may drop much less.

    Args:
        dense: The dense model in several runtimes and precisions.
        wanted: The speed-up over torch.

    Example:
        >>> speeds = {("torch", "fp32"): (1.0, 1.0), ("openvino", "fp32"): (1.6, 1.0), ("openvino", "int8"): (4.0, 0.9)}
        >>> dense = [Option(*place, None, speed, speed, same, (same, 1)) for place, (speed, same) in speeds.items()]
        >>> pyramids_needed(dense, 8)
        {('openvino', 'fp32'): 5.0, ('openvino', 'int8'): 2.0}
        >>> pyramids_needed(dense, 3.2), pyramids_needed(dense, 1.5)
        ({('openvino', 'fp32'): 2.0}, {})
    """

    def is_better(other: Option, one: Option) -> bool:
        is_fast = other.over_c >= min(wanted, _MUCH_FASTER * one.over_c)
        return is_fast and other.agreement >= one.interval[0]

    slow = (one for one in dense if one.over_c < wanted)
    return {one.place: wanted / one.over_c for one in slow if not any(is_better(other, one) for other in dense)}


def searches(needed: Mapping[Place, float], margin: float, most: float) -> dict[float, list[Place]]:
    """Ideal speed-up -> where its pyramid is to run: one search each, the mildest first.

    What can be reached at all is at most what reaches `most`. Speed-ups that differ little are rounded up to one.

    Args:
        needed: Runtime and precision -> how much faster a pyramid must make the dense model there.
        margin: The ideal speed-up over the one that is realised.
        most: The largest ideal speed-up that any pyramid has.

    Example:
        >>> needed = {("torch", "fp32"): 6.0, ("openvino", "fp32"): 3.0, ("onnxruntime", "fp32"): 2.9}
        >>> searches(needed, margin=1.1, most=5)
        {3.3: [('openvino', 'fp32'), ('onnxruntime', 'fp32')]}
    """
    found: dict[float, list[Place]] = {}
    ideal = 0.0
    for place, need in sorted(needed.items(), key=lambda one: -one[1]):
        if need >= most:
            continue
        asked = min(need * margin, most)
        if not found or asked * _TOGETHER < ideal:
            ideal = min(math.ceil(100 * asked - 1e-9) / 100, most)
        found.setdefault(ideal, []).append(place)
    return dict(sorted(found.items()))
