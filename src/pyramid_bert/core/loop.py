"""The one loop: attention, reduction, feed-forward network, layer by layer. Every pass of every pyramid runs here.

What varies is passed in: the steps (`Plan`), how half layers run (`Halves`), which tokens stay (`Reducer`) and what is
recorded (`Recorder`). Follows section 4 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..cost import Placement
from ..schedule import AdaptiveSchedule, Schedule
from .arrays import Array
from .selectors import Voters
from .tokens import Tokens

if TYPE_CHECKING:
    from .reducer import Decision

Half = Literal["input", "attention", "feed_forward", "layer", "end"]


@dataclass(frozen=True)
class Exactly:
    """Keep `counts[b]` tokens of row b."""

    counts: tuple[int, ...]


@dataclass(frozen=True)
class Covering:
    """Keep the fewest tokens of each row that cover the others.

    Attributes:
        options: For each row the numbers of tokens to choose from, ascending.
        radius: The largest covering radius allowed.
        relative: The radius is a share of the covering radius of CLS without any other token.
    """

    options: tuple[tuple[int, ...], ...]
    radius: float
    relative: bool


Keep = Exactly | Covering


@dataclass(frozen=True)
class Step:
    """One half of a layer, and the reduction after it.

    Attributes:
        number: The layer, from 1; 0 for the input.
        half: Which half; "layer" for families that run whole layers, "input" before the first layer, "end" after a
            layer with forward hooks.
        layer: The layer's module; None for the input.
        keep: How many tokens stay; None without a reduction.
        cls_only: Only CLS is computed; it reads the other tokens.
        final: With `cls_only`: the other tokens are not needed after this layer.
        voters: Whose attention the selector needs; None if it needs none.
        seed: Seed of the selector's random choices at this step.
    """

    number: int
    half: Half
    layer: Any = None
    keep: Keep | None = None
    cls_only: bool = False
    final: bool = False
    voters: Voters | None = None
    seed: int = 0


class Halves(Protocol):
    """How a model family runs the halves of its layers."""

    halves: tuple[Half, ...]

    def run(self, step: Step, tokens: Tokens) -> Tokens:
        """The tokens after one half of a layer."""


class Recorder:
    """Watches a pass and records nothing. Subclasses override what they need."""

    def start(self, tokens: Tokens, n: int) -> None:
        """Called before the first step; `n` is the width of the input, pads included."""

    def ran(self, step: Step, tokens: Tokens) -> None:
        """Called after each half of a layer."""

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """Called after each reduction, with the tokens that are left."""


@dataclass(frozen=True)
class Both(Recorder):
    """Two recorders of one pass."""

    first: Recorder
    second: Recorder

    def start(self, tokens: Tokens, n: int) -> None:
        """Tells both."""
        self.first.start(tokens, n)
        self.second.start(tokens, n)

    def ran(self, step: Step, tokens: Tokens) -> None:
        """Tells both."""
        self.first.ran(step, tokens)
        self.second.ran(step, tokens)

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """Tells both."""
        self.first.reduced(step, decision, tokens)
        self.second.reduced(step, decision, tokens)


@dataclass
class Pass:
    """The options and results of one call: per-call state, so threads can share a model.

    Passed to the model as `model(**batch, pyramid_pass=Pass(...))`.

    Attributes:
        record: What to record.
        dense: Keep every token, as the dense model with these weights does.
        whole: Compute and reduce every token of the last layer, though a classifier reads only CLS.
        plan: The steps of another pyramid with the same reducer, in place of the model's own.
        protected: Set by the call, where the pyramid protects tokens: which ones (B, N).
        cls: Set by the call: the CLS vectors (B, D) of the last layer.
        tokens: Set by the call: the tokens after the last layer.
    """

    record: Recorder = field(default_factory=Recorder)
    dense: bool = False
    whole: bool = False
    plan: Plan | None = None
    protected: Array | None = None
    cls: Array | None = None
    tokens: Tokens | None = None


def run(
    tokens: Tokens,
    steps: Iterable[Step],
    family: Halves,
    reducer: Callable[[Tokens, Step], Decision | None],
    record: Recorder,
) -> Tokens:
    """The tokens after all steps."""
    for step in steps:
        tokens = family.run(step, tokens)
        record.ran(step, tokens)
        decision = None if step.keep is None else reducer(tokens, step)
        if decision is not None:
            tokens = tokens.reduced(decision)
            record.reduced(step, decision, tokens)
    return tokens


@dataclass(frozen=True, eq=False)
class Plan:
    """Makes the steps of a pass from the schedule and the true lengths of its rows. Built once per pyramid.

    Attributes:
        layers: The modules.
        halves: The parts in which the family runs a layer.
        schedule: How many tokens each layer keeps.
        placement: Where a layer reduces.
        cls_only: The last layer computes only CLS.
        rest_from: Only CLS is computed from this layer on; None for no layer.
        voters: Whose attention the selector needs.
        skip: Numbers of layers that are left out.
    """

    layers: Sequence[Any]
    halves: tuple[Half, ...]
    schedule: Schedule
    placement: Placement = "middle"
    cls_only: bool = False
    rest_from: int | None = None
    voters: Voters | None = None
    skip: tuple[int, ...] = ()

    def steps(
        self, counts: Sequence[int], *, dense: bool = False, whole: bool = False, seed: int = 0
    ) -> Iterator[Step]:
        """The steps for rows of these true lengths.

        Args:
            counts: Tokens of each row.
            dense: Reduce nothing and leave out nothing.
            whole: Compute every token of the last layer.
            seed: Seed of random choices; each layer adds its number.
        """
        numbers = [n for n in range(1, len(self.layers) + 1) if dense or n not in self.skip]
        keeps = [None] * len(numbers) if dense else self._keeps(counts, numbers)
        if self.placement == "input":
            yield Step(0, "input", keep=keeps[0], seed=seed)
            keeps = [None] * len(numbers)
        after = {"middle": self.halves[0], "end": self.halves[-1], "input": None}[self.placement]
        for number, keep in zip(numbers, keeps, strict=True):
            layer = self.layers[number - 1]
            final = number == numbers[-1] and self.cls_only and not whole
            rests = self.rest_from is not None and number >= self.rest_from and not dense
            keep = None if final or rests else keep
            for half in self.halves:
                yield Step(
                    number,
                    half,
                    layer,
                    keep=keep if half == after else None,
                    cls_only=final or rests,
                    final=final,
                    voters=None if keep is None else self.voters,
                    seed=seed + number,
                )
            if getattr(layer, "_forward_hooks", None):
                yield Step(number, "end", layer)

    def _keeps(self, counts: Sequence[int], numbers: Sequence[int]) -> list[Keep | None]:
        """What each of the layers with these numbers keeps; None where that is everything."""
        if isinstance(self.schedule, AdaptiveSchedule):
            return [self._covering(self.schedule, counts, number) for number in numbers]
        every = list(zip(*(self.schedule.lengths(n, len(self.layers)) for n in counts), strict=True))
        lengths = [every[number - 1] for number in numbers]
        before = [tuple(counts), *lengths]
        return [None if now == last else Exactly(now) for last, now in zip(before, lengths, strict=False)]

    @staticmethod
    def _covering(schedule: AdaptiveSchedule, counts: Sequence[int], number: int) -> Covering | None:
        options = tuple(schedule.options(n, number) for n in counts)
        if all(row[0] >= n for row, n in zip(options, counts, strict=True)):
            return None
        return Covering(options, schedule.radius_at(number), schedule.relative)
