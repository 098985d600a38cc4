"""How narrow: schedules that say how many tokens each encoder layer keeps. Pure Python, no torch.

A schedule is *relative*: it is asked for its `lengths(n, layers)` at the true length n of a row, so one model
serves inputs of any length. Layer j's attention sees `lengths[j - 1]` tokens (n for the first) and, with the paper's
"middle" placement, its feed-forward network `lengths[j]`.
Follows section 5.2 of the paper (equation 4), its appendix and its LRA set-up.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from .checks import check_int, check_layer, check_ratio
from .errors import PyramidError, UnknownNameError
from .paper_table import PAPER_TABLE

__all__ = ["PAPER_TABLE", "Schedule"]

Rounding = Literal["ceil", "floor"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The number of tokens kept at each layer, for any input length; see the constructors.

    Example:
        >>> schedule = Schedule.exponential(keep_ratio=0.25, last_layer=3)
        >>> schedule.lengths(128, layers=6)
        (81, 51, 32, 32, 32, 32)
    """

    kind: ClassVar[str] = ""
    selects_at_input: ClassVar[bool] = False  # one selection, before the first layer

    rounding: Rounding = "ceil"
    min_tokens: int = 1

    def __post_init__(self) -> None:
        if type(self) is Schedule:
            raise PyramidError("Schedule is abstract; use Schedule.exponential(...) or another constructor")
        if self.rounding not in ("ceil", "floor"):
            raise UnknownNameError("rounding", self.rounding, ("ceil", "floor"))
        check_int("min_tokens", self.min_tokens, 1, "how many tokens short inputs keep at least")

    # ---- constructors: the public way to make one ----

    @staticmethod
    def exponential(
        keep_ratio: float,
        last_layer: int,
        *,
        first_layer: int = 1,
        rounding: Rounding = "ceil",
        min_tokens: int = 1,
    ) -> Schedule:
        """The paper's schedule: shrink by a constant factor a layer until `keep_ratio` is reached at `last_layer`.

        Args:
            keep_ratio: Share of the tokens that is left from `last_layer` on; the paper's p.
            last_layer: The last layer that drops tokens, counted from 1; the paper's i_prune-upto.
            first_layer: The first layer that drops tokens; 1 in the paper. Later is gentler: low layers, where
                tokens still differ, stay whole.
            rounding: "ceil" is the paper's formula, "floor" reproduces its printed table.
            min_tokens: Inputs never fall below this many tokens (or their own length, if that is less).

        Example:
            >>> Schedule.exponential(0.25, 6, first_layer=4).lengths(64, layers=6)
            (64, 64, 64, 41, 26, 16)
        """
        return ExponentialSchedule(
            keep_ratio=keep_ratio,
            last_layer=last_layer,
            first_layer=first_layer,
            rounding=rounding,
            min_tokens=min_tokens,
        )

    @staticmethod
    def constant(
        keep_ratio: float, *, first_layer: int = 1, rounding: Rounding = "ceil", min_tokens: int = 1
    ) -> Schedule:
        """One drop to `keep_ratio` at `first_layer`, and none after it.

        Example:
            >>> Schedule.constant(0.5, first_layer=2).lengths(10, layers=3)
            (10, 5, 5)
        """
        return ConstantSchedule(
            keep_ratio=keep_ratio, first_layer=first_layer, rounding=rounding, min_tokens=min_tokens
        )

    @staticmethod
    def input_only(keep_ratio: float, *, rounding: Rounding = "ceil", min_tokens: int = 1) -> Schedule:
        """One selection before the first layer, as in the paper's Long Range Arena runs.

        Example:
            >>> Schedule.input_only(0.3).lengths(1000, layers=2)
            (300, 300)
        """
        return InputSchedule(keep_ratio=keep_ratio, rounding=rounding, min_tokens=min_tokens)

    @staticmethod
    def custom(lengths: Sequence[int], *, n: int | None = None, min_tokens: int = 1) -> Schedule:
        """Your own list of lengths, one a layer.

        Args:
            lengths: Tokens kept at each layer; must not grow.
            n: The input length that `lengths` was written for: other inputs get the same shares. Without it the
                lengths are absolute, and a shorter input keeps what it has.
            min_tokens: As in `exponential`.

        Example:
            >>> Schedule.custom([80, 50, 32], n=128).lengths(64, layers=3)
            (40, 25, 16)
            >>> Schedule.custom([80, 50, 32]).lengths(64, layers=3)
            (64, 50, 32)
        """
        return CustomSchedule(layer_lengths=tuple(lengths), reference_length=n, rounding="ceil", min_tokens=min_tokens)

    @staticmethod
    def random(seed: int, *, rounding: Rounding = "ceil", min_tokens: int = 1) -> Schedule:
        """Random non-increasing shares, the paper's comparison in its appendix; the same seed gives the same shares.

        Example:
            >>> a, b = Schedule.random(0).lengths(128, 12), Schedule.random(0).lengths(128, 12)
            >>> a == b and list(a) == sorted(a, reverse=True)
            True
        """
        return RandomSchedule(seed=seed, rounding=rounding, min_tokens=min_tokens)

    @staticmethod
    def strided(window: int, at_layers: Sequence[int]) -> Schedule:
        """The lengths that pooling gives: at each of `at_layers`, `window` neighbours become one token; CLS stays.

        Example:
            >>> Schedule.strided(2, at_layers=[1, 3]).lengths(129, layers=4)
            (65, 65, 33, 33)
        """
        return StridedSchedule(window=window, at_layers=tuple(sorted(at_layers)))

    @staticmethod
    def for_speedup(model: Any, speedup: float, *, lengths: Sequence[int], **how: Any) -> Schedule:
        """The schedule that makes `model` so many times faster on this machine, over length-sorted dense batches.

        Args:
            model: A dense model or a pyramid.
            speedup: The wanted speed-up.
            lengths: True lengths of the rows to be fast on.
            **how: `batch_size` and more; see `bench.solve_speedup`, which also tells what was measured.
        """
        from .bench import solve_speedup

        return solve_speedup(model, speedup, lengths, **how).schedule

    # ---- what a schedule is asked ----

    def lengths(self, n: int, layers: int) -> tuple[int, ...]:
        """The number of tokens kept at layers 1..`layers` of an input of `n` tokens, non-increasing, in [1, n]."""
        check_int("n", n, 1, "an input has at least its CLS token")
        self.check(layers)
        return _lengths(self, n, layers)

    def check(self, layers: int) -> None:
        """Raises unless this schedule fits a model of `layers` layers."""
        check_int("layers", layers, 1, "the number of encoder layers of the model")

    def _raw_lengths(self, n: int, layers: int) -> list[int]:
        """Lengths before `min_tokens` and monotonicity are applied; from `_shares` unless overridden."""
        return [_round(n * share, n, self.rounding) for share in self._shares(layers)]

    def _shares(self, layers: int) -> list[float]:
        """The share of the input kept at each layer."""
        raise NotImplementedError

    # ---- as data ----

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict from which `from_dict` makes an equal schedule."""
        return {"kind": self.kind, **{key: _as_json(value) for key, value in dataclasses.asdict(self).items()}}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Schedule:
        """The schedule that `to_dict` described.

        Example:
            >>> schedule = Schedule.constant(0.5)
            >>> Schedule.from_dict(schedule.to_dict()) == schedule
            True
        """
        fields = dict(data)
        kind = fields.pop("kind", None)
        if kind not in _KINDS:
            raise UnknownNameError("schedule kind", kind, _KINDS)
        cls: type[Any] = _KINDS[kind]
        known = {field.name for field in dataclasses.fields(cls)}
        needed = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
        if unknown := sorted(set(fields) - known):
            raise PyramidError(f"a schedule of kind {kind!r} has no {', '.join(unknown)}; it has {sorted(known)}")
        if missing := sorted(needed - set(fields)):
            raise PyramidError(f"a schedule of kind {kind!r} needs {', '.join(missing)}; it is damaged")
        return cls(**{key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()})  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class ExponentialSchedule(Schedule):
    """See `Schedule.exponential`."""

    kind: ClassVar[str] = "exponential"
    keep_ratio: float
    last_layer: int
    first_layer: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self.keep_ratio)
        check_int("last_layer", self.last_layer, 1, "layers are counted from 1")
        check_int("first_layer", self.first_layer, 1, "layers are counted from 1")
        if self.first_layer > self.last_layer:
            raise PyramidError(
                f"first_layer must be at most last_layer={self.last_layer}, got {self.first_layer}; "
                "tokens are dropped from first_layer to last_layer"
            )

    def check(self, layers: int) -> None:
        super().check(layers)
        check_layer("last_layer", self.last_layer, layers)

    def _shares(self, layers: int) -> list[float]:
        steps = self.last_layer - self.first_layer + 1
        done = [min(max(j - self.first_layer + 1, 0), steps) for j in range(1, layers + 1)]
        return [self.keep_ratio ** (i / steps) for i in done]


@dataclass(frozen=True, kw_only=True)
class ConstantSchedule(Schedule):
    """See `Schedule.constant`."""

    kind: ClassVar[str] = "constant"
    keep_ratio: float
    first_layer: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self.keep_ratio)
        check_int("first_layer", self.first_layer, 1, "layers are counted from 1")

    def check(self, layers: int) -> None:
        super().check(layers)
        check_layer("first_layer", self.first_layer, layers)

    def _shares(self, layers: int) -> list[float]:
        return [1.0 if j < self.first_layer else self.keep_ratio for j in range(1, layers + 1)]


@dataclass(frozen=True, kw_only=True)
class InputSchedule(Schedule):
    """See `Schedule.input_only`."""

    kind: ClassVar[str] = "input_only"
    selects_at_input: ClassVar[bool] = True
    keep_ratio: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self.keep_ratio)

    def _shares(self, layers: int) -> list[float]:
        return [self.keep_ratio] * layers


@dataclass(frozen=True, kw_only=True)
class CustomSchedule(Schedule):
    """See `Schedule.custom`."""

    kind: ClassVar[str] = "custom"
    layer_lengths: tuple[int, ...]
    reference_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layer_lengths:
            raise PyramidError("a custom schedule needs one length a layer, got an empty list")
        for length in self.layer_lengths:
            check_int("each custom length", length, 1, "CLS is always kept")
        if list(self.layer_lengths) != sorted(self.layer_lengths, reverse=True):
            raise PyramidError(f"custom lengths must not grow from layer to layer, got {list(self.layer_lengths)}")
        if self.reference_length is not None:
            check_int("n", self.reference_length, self.layer_lengths[0], "lengths must not exceed the input's")

    def check(self, layers: int) -> None:
        super().check(layers)
        if len(self.layer_lengths) != layers:
            raise PyramidError(
                f"the model has {layers} layers and the custom schedule {len(self.layer_lengths)} lengths: "
                f"{list(self.layer_lengths)}; give one length a layer"
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
    window: int
    at_layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("window", self.window, 2, "the paper pools windows of 2 to 6 tokens")
        if self.min_tokens != 1:
            raise PyramidError(f"pooling takes whole windows: min_tokens must be 1, got {self.min_tokens}")
        if not self.at_layers or len(set(self.at_layers)) != len(self.at_layers):
            raise PyramidError(f"at_layers needs at least one layer and no layer twice, got {list(self.at_layers)}")
        for layer in self.at_layers:
            check_int("each of at_layers", layer, 1, "layers are counted from 1")

    def check(self, layers: int) -> None:
        super().check(layers)
        check_layer("at_layers", max(self.at_layers), layers)

    def _raw_lengths(self, n: int, layers: int) -> list[int]:
        lengths = []
        for j in range(1, layers + 1):
            if j in self.at_layers:
                n = 1 + -(-(n - 1) // self.window)
            lengths.append(n)
        return lengths


_KINDS: dict[str, type[Schedule]] = {
    cls.kind: cls
    for cls in (
        ExponentialSchedule,
        ConstantSchedule,
        InputSchedule,
        CustomSchedule,
        RandomSchedule,
        StridedSchedule,
    )
}


@lru_cache(maxsize=65_536)  # asked for every row of every batch
def _lengths(schedule: Schedule, n: int, layers: int) -> tuple[int, ...]:
    lengths: list[int] = []
    previous = n
    for raw in schedule._raw_lengths(n, layers):
        previous = min(previous, max(raw, schedule.min_tokens, 1))
        lengths.append(previous)
    return tuple(lengths)


def _as_json(value: Any) -> Any:
    """A field as plain Python: lists for tuples, ints and floats for numpy's."""
    if isinstance(value, tuple):
        return [_as_json(part) for part in value]
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def _round(value: float, n: int, rounding: Rounding) -> int:
    nearest = round(value)
    if abs(value - nearest) <= 1e-9 * n:  # 90 * 0.7 is 62.999...: a float's error must not cost a token
        return nearest
    return math.ceil(value) if rounding == "ceil" else math.floor(value)
