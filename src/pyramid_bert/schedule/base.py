"""Schedules: how many tokens each layer keeps.

A schedule is *relative*: `lengths(n, layers)` takes the true length n of a row, so one model serves inputs of any
length. Layer j's attention sees `lengths[j - 1]` tokens (n for the first layer); with the paper's "middle" placement
its feed-forward network sees `lengths[j]`. Follows section 5.2 of the paper (equation 4), its appendix and LRA set-up.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from ..checks import check_choice, check_int, check_kind, check_layer, check_number
from ..errors import PyramidError

Rounding = Literal["ceil", "floor"]
_MOST_TOKENS, _MOST_LAYERS = 10**7, 10_000  # far beyond any model; lists have one entry a layer
_LONG = 2**20  # a text so long that different shares of it are different lengths
_KINDS: dict[str, Any] = {}  # kind -> class; subclasses register themselves


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
    is_adaptive: ClassVar[bool] = False  # its lengths depend on the text, not only on its length
    numbers_of_layers: ClassVar[tuple[str, ...]] = ()  # the fields that are numbers of layers
    added_later: ClassVar[str] = ""  # a field that is not written while it has its default, as in older versions

    rounding: Rounding = "ceil"
    min_tokens: int = 1

    def __init_subclass__(cls) -> None:
        _KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        if type(self) is Schedule:
            raise PyramidError("Schedule is abstract; use Schedule.exponential(...) or another constructor")
        check_choice("rounding", self.rounding, ("ceil", "floor"))
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
        multiple_of: int = 1,
    ) -> Schedule:
        """The paper's schedule: shrink by a constant factor per layer until `keep_ratio` is reached at `last_layer`.

        Args:
            keep_ratio: Share of the tokens that is left from `last_layer` on; the paper's p.
            last_layer: The last layer that drops tokens, counted from 1; the paper's i_prune-upto.
            first_layer: The first layer that drops tokens; 1 in the paper. Later is gentler: the lower layers, where
                tokens differ most, keep all of them.
            rounding: "ceil" is the paper's formula, "floor" reproduces its printed table.
            min_tokens: Inputs keep at least this many tokens, or all if they have fewer.
            multiple_of: Round up to a multiple of this, or to all tokens. Processors with AMX compute 16 tokens at a
                time, so that 100 tokens of a text take as long as 112 in another runtime; see `docs/runtimes.md`.

        Example:
            >>> Schedule.exponential(0.25, 6, first_layer=4).lengths(64, layers=6)
            (64, 64, 64, 41, 26, 16)
            >>> Schedule.exponential(0.25, 6, first_layer=4, multiple_of=16).lengths(64, layers=6)
            (64, 64, 64, 48, 32, 16)
        """
        return _make(
            "exponential",
            keep_ratio=keep_ratio,
            last_layer=last_layer,
            first_layer=first_layer,
            rounding=rounding,
            min_tokens=min_tokens,
            multiple_of=multiple_of,
        )

    @staticmethod
    def constant(
        keep_ratio: float, *, first_layer: int = 1, rounding: Rounding = "ceil", min_tokens: int = 1
    ) -> Schedule:
        """One drop to `keep_ratio` at `first_layer`, and no other.

        Example:
            >>> Schedule.constant(0.5, first_layer=2).lengths(10, layers=3)
            (10, 5, 5)
        """
        return _make(
            "constant", keep_ratio=keep_ratio, first_layer=first_layer, rounding=rounding, min_tokens=min_tokens
        )

    @staticmethod
    def input_only(
        keep_ratio: float, *, rounding: Rounding = "ceil", min_tokens: int = 1, multiple_of: int = 1
    ) -> Schedule:
        """One selection before the first layer, as in the paper's Long Range Arena runs.

        Args:
            keep_ratio: Share of the tokens that the layers see.
            rounding: As in `exponential`.
            min_tokens: As in `exponential`.
            multiple_of: Round up to a multiple of this, or to all tokens. For BigBird it is set to the block size.

        Example:
            >>> Schedule.input_only(0.3).lengths(1000, layers=2)
            (300, 300)
            >>> Schedule.input_only(0.3, multiple_of=8).lengths(1000, layers=2)
            (304, 304)
        """
        return _make(
            "input_only", keep_ratio=keep_ratio, rounding=rounding, min_tokens=min_tokens, multiple_of=multiple_of
        )

    @staticmethod
    def custom(lengths: Sequence[int], *, n: int | None = None, min_tokens: int = 1) -> Schedule:
        """A list of lengths, one per layer.

        Args:
            lengths: Tokens kept at each layer; must not grow.
            n: The input length of `lengths`; inputs of other lengths keep the same shares. Without it the lengths are
                absolute, and a shorter input keeps all its tokens.
            min_tokens: As in `exponential`.

        Example:
            >>> Schedule.custom([80, 50, 32], n=128).lengths(64, layers=3)
            (40, 25, 16)
            >>> Schedule.custom([80, 50, 32]).lengths(64, layers=3)
            (64, 50, 32)
        """
        given = _numbers("lengths", lengths)
        return _make("custom", layer_lengths=given, reference_length=n, rounding="ceil", min_tokens=min_tokens)

    @staticmethod
    def random(seed: int, *, rounding: Rounding = "ceil", min_tokens: int = 1) -> Schedule:
        """Random non-increasing shares, the paper's comparison in its appendix; the same seed gives the same shares.

        Example:
            >>> a, b = Schedule.random(0).lengths(128, 12), Schedule.random(0).lengths(128, 12)
            >>> a == b and list(a) == sorted(a, reverse=True)
            True
        """
        return _make("random", seed=seed, rounding=rounding, min_tokens=min_tokens)

    @staticmethod
    def strided(window: int, at_layers: Sequence[int]) -> Schedule:
        """The lengths that pooling gives: at each of `at_layers`, `window` neighbours become one token; CLS stays.

        Example:
            >>> Schedule.strided(2, at_layers=[1, 3]).lengths(129, layers=4)
            (65, 65, 33, 33)
        """
        return _make("strided", window=window, at_layers=tuple(sorted(_numbers("at_layers", at_layers))))

    @staticmethod
    def adaptive(
        radius: float,
        *,
        relative: bool = True,
        steps: int = 8,
        first_layer: int = 1,
        last_layer: int | None = None,
        growth: float = 1.0,
        min_tokens: int = 1,
    ) -> Schedule:
        """For each text and layer the fewest tokens that cover the others within `radius`.

        The selector "cluster" stops before a merge that would add more than the squared radius (for "cosine", twice the
        radius) to the squared distances of tokens to the means of their groups.

        Such a schedule has no `lengths` before a text is run; `bench.kept_lengths` measures them.

        Args:
            radius: The largest covering radius of a layer. Unless `relative` is False it is a share, in (0, 1], of the
                covering radius of CLS without any other token. Larger is faster.
            relative: Distances grow from layer to layer and differ between models; a share means the same everywhere.
            steps: Lengths are rounded up to one of this many equal parts of the text's length, so that fewer lengths
                differ within a batch.
            first_layer: The first layer that drops tokens.
            last_layer: The last layer that drops tokens; the model's last if None.
            growth: The factor by which the radius grows from layer to layer.
            min_tokens: As in `exponential`.

        Example:
            >>> Schedule.adaptive(0.5, steps=4).options(10, layer=1)
            (3, 5, 8, 10)
        """
        return _make(
            "adaptive",
            radius=radius,
            relative=relative,
            steps=steps,
            first_layer=first_layer,
            last_layer=last_layer,
            growth=growth,
            min_tokens=min_tokens,
        )

    @staticmethod
    def adaptive_for_speedup(model: Any, speedup: float, items: Sequence[Any], **options: Any) -> Schedule:
        """Deprecated: use `pyramid_bert.adaptive_schedule_for_speedup`, which takes the same arguments."""
        from ..tune.schedules import adaptive_schedule_for_speedup

        _warn_of_move("adaptive_for_speedup", "adaptive_schedule_for_speedup")
        return adaptive_schedule_for_speedup(model, speedup, items, **options)

    @staticmethod
    def for_speedup(model: Any, speedup: float, *, lengths: Sequence[int], **options: Any) -> Schedule:
        """Deprecated: use `pyramid_bert.schedule_for_speedup`, which takes the same arguments."""
        from ..tune.schedules import schedule_for_speedup

        _warn_of_move("for_speedup", "schedule_for_speedup")
        return schedule_for_speedup(model, speedup, lengths=lengths, **options)

    # ---- lengths ----

    def lengths(self, n: int, layers: int) -> tuple[int, ...]:
        """The number of tokens kept at layers 1..`layers` of an input of `n` tokens, non-increasing, in [1, n]."""
        check_number("n", n, 1, _MOST_TOKENS, "an input has at least its CLS token", whole=True)
        self.check(layers)
        return _lengths(self, n, layers)

    def options(self, n: int, layer: int) -> tuple[int, ...] | None:
        """The lengths among which an adaptive schedule chooses at a layer, ascending; None for all others.

        Args:
            n: The length of the input; a layer that has fewer tokens left keeps at most these.
            layer: Counted from 1.
        """
        return None

    def done_at(self, layers: int) -> int:
        """The last layer that may keep fewer tokens than the one before it; 0 when none does.

        Example:
            >>> Schedule.exponential(0.25, last_layer=3).done_at(12)
            3
        """
        lengths = (_LONG, *self.lengths(_LONG, layers))
        return max((layer for layer in range(1, layers + 1) if lengths[layer] < lengths[layer - 1]), default=0)

    def check(self, layers: int) -> None:
        """Raises unless this schedule fits a model of `layers` layers."""
        check_number("layers", layers, 1, _MOST_LAYERS, "the number of encoder layers of the model", whole=True)
        for name in self.numbers_of_layers:
            value = getattr(self, name)
            check_layer(name, max(value) if isinstance(value, tuple) else value or 1, layers)

    def _raw_lengths(self, n: int, layers: int) -> list[int]:
        """Lengths before `min_tokens` and monotonicity are applied; from `_shares` unless overridden."""
        return [_round(n * share, n, self.rounding) for share in self._shares(layers)]

    def _shares(self, layers: int) -> list[float]:
        """The share of the input kept at each layer."""
        raise NotImplementedError

    # ---- as data ----

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict from which `from_dict` makes an equal schedule."""
        fields = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        written = {f.name: _as_json(v) for f, v in fields if f.name != self.added_later or v != f.default}
        return {"kind": self.kind, **written}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Schedule:
        """The schedule that `to_dict` described.

        Example:
            >>> schedule = Schedule.constant(0.5)
            >>> Schedule.from_dict(schedule.to_dict()) == schedule
            True
        """
        check_kind("a schedule", data, Mapping, "give what to_dict returned")
        fields = dict(data)
        kind = fields.pop("kind", None)
        check_choice("schedule kind", kind, _KINDS)
        cls: type[Any] = _KINDS[kind]
        known = {field.name for field in dataclasses.fields(cls)}
        needed = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
        if unknown := sorted(set(fields) - known):
            raise PyramidError(f"a schedule of kind {kind!r} has no {', '.join(unknown)}; it has {sorted(known)}")
        if missing := sorted(needed - set(fields)):
            raise PyramidError(f"a schedule of kind {kind!r} needs {', '.join(missing)}; it is damaged")
        return _make(kind, **{key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()})


def _warn_of_move(old: str, new: str) -> None:
    warnings.warn(f"Schedule.{old} is deprecated; use pyramid_bert.{new}", DeprecationWarning, stacklevel=3)


def _numbers(name: str, values: Any) -> tuple[int, ...]:
    """The integers in a list; raises for anything else."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list | tuple | range):
        raise PyramidError(f"{name} must be a list of integers, got {type(values).__name__}")
    for value in values:
        check_int(f"each of {name}", value, 1, "tokens and layers are counted from 1")
    return tuple(values)


def _make(kind: str, **fields: Any) -> Schedule:
    made: Schedule = _KINDS[kind](**fields)
    return made


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
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool | Integral) else value


def _round(value: float, n: int, rounding: Rounding) -> int:
    nearest = round(value)
    if abs(value - nearest) <= 1e-9 * n:  # 90 * 0.7 is 62.999...: a rounding error must not cost a token
        return nearest
    return math.ceil(value) if rounding == "ceil" else math.floor(value)
