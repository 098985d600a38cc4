"""The kinds of schedules. Users make them through the constructors of `Schedule`."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import ClassVar

from ..checks import check_flag, check_int, check_kind, check_number, check_ratio
from ..errors import PyramidError
from .base import Schedule

_UP = "lengths are rounded up to a multiple of it"


@dataclass(frozen=True, kw_only=True)
class ExponentialSchedule(Schedule):
    """See `Schedule.exponential`."""

    kind: ClassVar[str] = "exponential"
    added_later: ClassVar[str] = "multiple_of"
    numbers_of_layers: ClassVar[tuple[str, ...]] = ("last_layer",)
    keep_ratio: float
    last_layer: int
    first_layer: int = 1
    multiple_of: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self.keep_ratio)
        check_int("last_layer", self.last_layer, 1, "layers are counted from 1")
        check_int("first_layer", self.first_layer, 1, "layers are counted from 1")
        check_int("multiple_of", self.multiple_of, 1, _UP)
        if self.first_layer > self.last_layer:
            raise PyramidError(
                f"first_layer must be at most last_layer={self.last_layer}, got {self.first_layer}; "
                "tokens are dropped from first_layer to last_layer"
            )

    def _shares(self, layers: int) -> list[float]:
        steps = self.last_layer - self.first_layer + 1
        done = [min(max(j - self.first_layer + 1, 0), steps) for j in range(1, layers + 1)]
        return [self.keep_ratio ** (i / steps) for i in done]

    def _raw_lengths(self, n: int, layers: int) -> list[int]:
        return _rounded_up(super()._raw_lengths(n, layers), self.multiple_of)


@dataclass(frozen=True, kw_only=True)
class ConstantSchedule(Schedule):
    """See `Schedule.constant`."""

    kind: ClassVar[str] = "constant"
    numbers_of_layers: ClassVar[tuple[str, ...]] = ("first_layer",)
    keep_ratio: float
    first_layer: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self.keep_ratio)
        check_int("first_layer", self.first_layer, 1, "layers are counted from 1")

    def _shares(self, layers: int) -> list[float]:
        return [1.0 if j < self.first_layer else self.keep_ratio for j in range(1, layers + 1)]


@dataclass(frozen=True, kw_only=True)
class InputSchedule(Schedule):
    """See `Schedule.input_only`."""

    kind: ClassVar[str] = "input_only"
    added_later: ClassVar[str] = "multiple_of"
    selects_at_input: ClassVar[bool] = True
    keep_ratio: float
    multiple_of: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self.keep_ratio)
        check_int("multiple_of", self.multiple_of, 1, _UP)

    def _shares(self, layers: int) -> list[float]:
        return [self.keep_ratio] * layers

    def _raw_lengths(self, n: int, layers: int) -> list[int]:
        return _rounded_up(super()._raw_lengths(n, layers), self.multiple_of)


@dataclass(frozen=True, kw_only=True)
class CustomSchedule(Schedule):
    """See `Schedule.custom`."""

    kind: ClassVar[str] = "custom"
    layer_lengths: tuple[int, ...]
    reference_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("lengths", self.layer_lengths, tuple, "give one length per layer")
        if not self.layer_lengths:
            raise PyramidError("a custom schedule needs one length per layer, got an empty list")
        for length in self.layer_lengths:
            check_int("each custom length", length, 1, "CLS is always kept")
        if list(self.layer_lengths) != sorted(self.layer_lengths, reverse=True):
            raise PyramidError(f"custom lengths must not grow from layer to layer, got {list(self.layer_lengths)}")
        if self.reference_length is not None:
            check_int("n", self.reference_length, self.layer_lengths[0], "lengths must not exceed the input's")

    def check(self, layers: int) -> None:
        """See `Schedule.check`."""
        super().check(layers)
        if len(self.layer_lengths) != layers:
            raise PyramidError(
                f"the model has {layers} layers and the custom schedule {len(self.layer_lengths)} lengths: "
                f"{list(self.layer_lengths)}; give one length per layer"
            )

    def _raw_lengths(self, n: int, layers: int) -> list[int]:
        if self.reference_length is None:
            return [min(length, n) for length in self.layer_lengths]
        return super()._raw_lengths(n, layers)

    def _shares(self, layers: int) -> list[float]:
        assert self.reference_length is not None
        return [length / self.reference_length for length in self.layer_lengths]


@dataclass(frozen=True, kw_only=True)
class RandomSchedule(Schedule):
    """See `Schedule.random`."""

    kind: ClassVar[str] = "random"
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("seed", self.seed, 0, "the same seed gives the same shares")

    def _shares(self, layers: int) -> list[float]:
        draw = random.Random(self.seed)
        # 1 - random() lies in (0, 1]: a share of 0 would drop CLS.
        return sorted((1.0 - draw.random() for _ in range(layers)), reverse=True)


@dataclass(frozen=True, kw_only=True)
class StridedSchedule(Schedule):
    """See `Schedule.strided`."""

    kind: ClassVar[str] = "strided"
    numbers_of_layers: ClassVar[tuple[str, ...]] = ("at_layers",)
    window: int
    at_layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("window", self.window, 2, "the paper pools windows of 2 to 6 tokens")
        if self.min_tokens != 1:
            raise PyramidError(f"pooling takes whole windows: min_tokens must be 1, got {self.min_tokens}")
        check_kind("at_layers", self.at_layers, tuple, "name the layers that pool")
        for layer in self.at_layers:
            check_int("each of at_layers", layer, 1, "layers are counted from 1")
        if not self.at_layers or len(set(self.at_layers)) != len(self.at_layers):
            raise PyramidError(f"at_layers needs at least one layer and no layer twice, got {list(self.at_layers)}")

    def _raw_lengths(self, n: int, layers: int) -> list[int]:
        lengths = []
        for j in range(1, layers + 1):
            if j in self.at_layers:
                n = 1 + -(-(n - 1) // self.window)
            lengths.append(n)
        return lengths


@dataclass(frozen=True, kw_only=True)
class AdaptiveSchedule(Schedule):
    """See `Schedule.adaptive`."""

    kind: ClassVar[str] = "adaptive"
    numbers_of_layers: ClassVar[tuple[str, ...]] = ("first_layer", "last_layer")
    added_later: ClassVar[str] = "growth"
    is_adaptive: ClassVar[bool] = True
    radius: float
    relative: bool = True
    steps: int = 8
    first_layer: int = 1
    last_layer: int | None = None
    growth: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("relative", self.relative)
        share = "a share of the radius that only CLS leaves; " if self.relative else ""
        check_number("radius", self.radius, 0, 1 if self.relative else inf, f"{share}larger keeps fewer", above=True)
        if self.rounding != "ceil":
            raise PyramidError("an adaptive schedule rounds up, or its radius would not hold; leave rounding out")
        check_number(
            "steps", self.steps, 1, 2**16, "lengths are rounded up to this many parts of the input", whole=True
        )
        check_int("first_layer", self.first_layer, 1, "layers are counted from 1")
        if self.last_layer is not None:
            check_int("last_layer", self.last_layer, self.first_layer, "it must not stand before first_layer")
        check_number("growth", self.growth, 0, 10, "1 is the same radius at every layer", above=True)

    def lengths(self, n: int, layers: int) -> tuple[int, ...]:
        """Raises: there are none before a text is run."""
        raise PyramidError(
            "an adaptive schedule keeps as many tokens as each text needs, so it has no lengths before a text is run; "
            "bench.kept_lengths(model, items) measures them"
        )

    def done_at(self, layers: int) -> int:
        """See `Schedule.done_at`."""
        return self.last_layer or layers

    def radius_at(self, layer: int) -> float:
        """The radius that a layer may leave.

        Example:
            >>> AdaptiveSchedule(radius=0.25, growth=2.0, first_layer=3).radius_at(4)
            0.5
        """
        return self.radius * self.growth ** (layer - self.first_layer)

    def options(self, n: int, layer: int) -> tuple[int, ...]:
        """See `Schedule.options`."""
        check_int("n", n, 1, "an input has at least its CLS token")
        return _options(self, n, layer)


@lru_cache(maxsize=65_536)  # asked for every row of every batch
def _options(schedule: AdaptiveSchedule, n: int, layer: int) -> tuple[int, ...]:
    if layer < schedule.first_layer or (schedule.last_layer is not None and layer > schedule.last_layer):
        return (n,) * schedule.steps
    least = min(schedule.min_tokens, n)
    return tuple(max(-(-n * part // schedule.steps), least) for part in range(1, schedule.steps + 1))


def _rounded_up(lengths: list[int], multiple_of: int) -> list[int]:
    return [-(-length // multiple_of) * multiple_of for length in lengths]
