"""The one loop: [attention -> reduce -> feed-forward] x L, and the record of who survived.

Knows torch alone. What a layer's attention and feed-forward network are is the `Backbone`'s business (one adapter a
model family); how narrow and who stays come as a schedule and a selector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cost import Placement
from ..errors import PyramidError
from ..schedule.base import Schedule
from ..schedule.kinds import AdaptiveSchedule, StridedSchedule
from .backbone import Backbone
from .baselines import pool_groups
from .coreset import CentersPerStep
from .cover import shortest_cover
from .distances import Metric, from_radius, to_radius
from .record import Radii, Trace
from .reduction import Reduction
from .selectors import get_selector
from .summed import Summands
from .tokens import Tokens

# Which encoder is traced, measured or keeps everything in this thread: state of a pass, not of a model that many share.
_TRACED: ContextVar[tuple[object, Trace | None]] = ContextVar("traced", default=(None, None))
_MEASURED: ContextVar[tuple[object, Radii | None]] = ContextVar("measured", default=(None, None))
_KEEPING_ALL: ContextVar[object] = ContextVar("keeping_all", default=None)


class Beginning(NamedTuple):
    """A pass before its first layer: the tokens that reach it, true lengths, tokens to keep by layer, and the seed."""

    tokens: Tokens
    full: list[int]
    plan: list[tuple[int, ...]]
    seed: int


class PyramidEncoder(nn.Module):
    """A stack of encoder layers that gets narrower on the way up.

    Takes over the `layer` list of the encoder it stands in for, and adds no parameter. All arguments are validated by
    `PyramidConfig`, which is what users make.
    """

    # What the adapter leaves here. In tuples, so that torch does not register modules a second time.
    config: Any
    replaced: tuple[nn.Module]
    owner: tuple[Any]
    at_input: Any = None  # an AtInput for a selection there

    def __init__(
        self,
        layer: nn.ModuleList,
        backbone: Backbone,
        *,
        schedule: Schedule,
        selector: str,
        reduce: str,
        weighted: bool,
        placement: Placement,
        centers_per_step: CentersPerStep,
        metric: Metric,
        by_sensitivity: bool,
        within: int | None,
        cls_only: bool,
        rest_from: int | None,
        seed: int,
    ) -> None:
        super().__init__()
        schedule.check(len(layer))
        self.layer = layer
        self.backbone = backbone
        self.schedule = schedule
        self.selector = get_selector(selector)
        self.reduce = reduce
        self.weighted = weighted or reduce == "merge"
        self.placement = placement
        self.centers_per_step = centers_per_step
        self.metric: Metric = metric
        self.by_sensitivity = by_sensitivity
        self.within = within
        self.cls_only = cls_only
        self.rest_from = rest_from
        self.seed = seed

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        """Records the forward passes of this thread; the last layer then reduces too, though only its CLS is read.

        The trace holds the last pass, and is complete after it.
        """
        trace = Trace()
        before = _TRACED.set((self, trace))
        try:
            yield trace
        finally:
            _TRACED.reset(before)

    @property
    def _trace(self) -> Trace | None:
        owner, trace = _TRACED.get()
        return trace if owner is self else None

    @contextmanager
    def measuring(self, *, only_kept: bool = False) -> Iterator[Radii]:
        """Records the covering radius of each layer in the forward passes of this thread, and the tokens kept.

        The core-set knows it from choosing; other selectors have to compute it, at the price of one Gram matrix a
        layer. One that keeps no token that could cover others is refused, unless `only_kept` is asked for. Holds the
        last pass.
        """
        if self.selector.select is None and not only_kept:
            raise PyramidError(
                f"the selector {self.selector.name!r} makes new vectors and keeps no token, so there is no covering "
                "radius; use 'coreset', or another that chooses tokens"
            )
        radii = Radii(len(self.layer))
        before = _MEASURED.set((self, radii))
        try:
            yield radii
        finally:
            _MEASURED.reset(before)

    @property
    def _radii(self) -> Radii | None:
        owner, radii = _MEASURED.get()
        return radii if owner is self else None

    @contextmanager
    def keeping_all(self) -> Iterator[None]:
        """Drops nothing inside of the block, in this thread: the dense model, with the same weights."""
        before = _KEEPING_ALL.set(self)
        try:
            yield
        finally:
            _KEEPING_ALL.reset(before)

    def run(self, hidden: Tensor, mask: Tensor | None, *, all_tokens: bool = False) -> Tensor:
        """The output of the last layer: (B, l_L, D), or (B, 1, D) when it computes CLS alone.

        Args:
            hidden: (B, N, D) embeddings, CLS first.
            mask: (B, N) bool, True for real tokens; None when all are.
            all_tokens: Compute every token of the last layer, whatever `cls_only` says.
        """
        tokens, full, plan, seed = self.begin(hidden, mask)
        last = len(self.layer)
        for number, (layer, keep) in enumerate(zip(self.layer, plan, strict=True), start=1):
            before, resting = tokens.hidden, self._rests(number)
            last_alone = number == last and self.cls_only and not all_tokens and self._trace is None
            only_cls = resting or last_alone
            options = self._options(number, full, tokens.counts)
            narrower = list(keep) != tokens.counts if options is None else _any_shorter(options, tokens.counts)
            shrinks = self.placement != "input" and not only_cls and narrower
            tokens.hidden, received = self.backbone.attend(
                layer,
                tokens.hidden,
                tokens.key_bias(),
                queries=1 if only_cls else None,
                voters=self.voters(tokens),
                want_received=shrinks and self.selector.needs_attention,
            )
            if shrinks and self.placement == "middle":
                self.shrink(tokens, number, keep, received, seed + number, options)
            tokens.hidden = self.backbone.feed_forward(layer, tokens.hidden)
            if shrinks and self.placement == "end":
                self.shrink(tokens, number, keep, received, seed + number, options)
            if resting and not last_alone:  # the others are there as they were
                tokens.hidden = torch.cat([tokens.hidden, before[:, 1:]], dim=1)
                if tokens.copies is not None:  # a copy of CLS goes on with it
                    tokens.hidden = tokens.copies.replaced(tokens.hidden)
            tokens.hidden = self.backbone.observe(layer, before, tokens.hidden)
        return tokens.hidden

    @property
    def cls_layers(self) -> int:
        """How many of the last layers compute CLS alone."""
        return int(self.cls_only) if self.rest_from is None else len(self.layer) - self.rest_from + 1

    def _rests(self, number: int) -> bool:
        """Whether layer `number` computes CLS alone and leaves the other tokens as they are."""
        return self.rest_from is not None and number >= self.rest_from and _KEEPING_ALL.get() is not self

    def begin(self, hidden: Tensor, mask: Tensor | None) -> Beginning:
        """What comes before the first layer: padding cut off, lengths planned, and the selection at the input."""
        if self._trace is not None:
            self._trace.start(mask, hidden)
        tokens = self._start(hidden, mask)
        if self._radii is not None:
            self._radii.start(tokens.counts)
        full, plan, seed = tokens.counts, self._plan(tokens.counts), self._seed()
        if self.placement == "input" and list(plan[0]) != full:
            self.shrink(tokens, 0, plan[0], None, seed)
        tokens.summands = None
        return Beginning(tokens, full, plan, seed)

    def _start(self, hidden: Tensor, mask: Tensor | None) -> Tokens:
        """Real tokens pushed to the left and padding cut off. Reads the true lengths from the device, once a pass."""
        rows, n, _ = hidden.shape
        counts, summands = [n] * rows, Summands.taken_from(hidden)
        if mask is not None:
            *counts, cls_is_real, contiguous = torch.cat(
                [mask.sum(1), mask[:, :1].all(0), (mask[:, 1:] <= mask[:, :-1]).all()[None]]
            ).tolist()
            if not cls_is_real:
                row = int((~mask[:, 0]).nonzero()[0])
                raise PyramidError(
                    f"row {row} masks its first token, but CLS is read there; pad on the right "
                    "(tokenizer.padding_side = 'right') and give every row at least one token"
                )
            widest = max(counts)
            if not contiguous:
                order = mask.long().sort(dim=1, descending=True, stable=True).indices[:, :widest]
                hidden, mask, summands = Reduction(order).apply(hidden), mask.gather(1, order), None
            hidden, mask = hidden[:, :widest], mask[:, :widest]
            summands = None if summands is None else summands.cut(widest)
        mask = None if min(counts) == hidden.shape[1] else mask
        copies = Reduction.keeping_all(hidden, mask) if self.reduce == "replace" else None
        return Tokens(hidden, counts, mask, size=None, copies=copies, summands=summands)

    def _plan(self, counts: list[int]) -> list[tuple[int, ...]]:
        """The tokens to keep at most, by layer and row: one look at the true lengths serves all layers."""
        layers = len(self.layer)
        if _KEEPING_ALL.get() is self or self.schedule.is_adaptive:
            return [tuple(counts)] * layers
        return list(zip(*(self.schedule.lengths(n, layers) for n in counts), strict=True))

    def _options(self, number: int, full: list[int], counts: list[int]) -> list[tuple[int, ...]] | None:
        """The numbers of tokens among which an adaptive schedule chooses for each row; None when it does not."""
        if not self.schedule.is_adaptive or _KEEPING_ALL.get() is self:
            return None
        found = (self.schedule.options(n, number) or () for n in full)
        return [tuple(min(option, count) for option in row) for row, count in zip(found, counts, strict=True)]

    def voters(self, tokens: Tokens) -> Tensor | None:
        """Whose attention the selector goes by; see `Backbone.attend`."""
        if self.selector.voters == "cls":
            return torch.ones(len(tokens.counts), 1, dtype=torch.bool, device=tokens.hidden.device)
        return tokens.mask if tokens.copies is None else tokens.copies.stands_for_itself()

    def _seed(self) -> int:
        """The seed of this pass: drawn from torch's own state in training, fixed in evaluation."""
        if self.training and self.selector.name == "random":
            return int(torch.randint(2**31, ()))
        return self.seed

    def shrink(
        self,
        tokens: Tokens,
        number: int,
        keep: Sequence[int],
        received: Tensor | None,
        seed: int,
        options: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Shrinks `tokens` in place to `keep[b]` tokens in row b, or to one of its options by their covering radius.

        With "replace", to so many different ones.
        """
        if tokens.copies is not None:
            self._replace(tokens, tokens.copies, number, keep, received, seed, options)
            return
        reduction, keep = self._decide(tokens, number, keep, received, seed, options)
        if list(keep) == tokens.counts:
            return
        slots = max(keep)
        if self.weighted:
            tokens.size = reduction.sizes(tokens.sizes, slots)
        tokens.hidden, tokens.summands = reduction.apply(tokens.hidden), None
        tokens.counts = list(keep)
        tokens.mask = None if min(keep) == slots else reduction.mask

    def _replace(
        self,
        tokens: Tokens,
        copies: Reduction,
        number: int,
        keep: Sequence[int],
        received: Tensor | None,
        seed: int,
        options: Sequence[Sequence[int]] | None,
    ) -> None:
        """As `shrink`, but of N tokens N are left: chooses among those that are no copies, and copies over the rest.

        A copy follows its original: rounding, which may tell equal vectors apart, has no say in where it goes.
        """
        hidden = copies.apply(tokens.hidden)  # (B, K before, D)
        different = hidden.shape[1]
        mask = None if min(tokens.counts) == different else copies.mask
        if received is not None:  # an original receives what its copies do
            received = copies.sizes(received, different)
        originals = Tokens(hidden, tokens.counts, mask, size=None, summands=tokens.summands)
        reduction, keep = self._decide(originals, number, keep, received, seed, options)
        if list(keep) == tokens.counts:
            return
        tokens.copies = copies.then(reduction)
        tokens.hidden, tokens.summands = tokens.copies.replaced(tokens.hidden), None
        tokens.counts = list(keep)

    @torch.no_grad()
    def _decide(
        self,
        tokens: Tokens,
        number: int,
        keep: Sequence[int],
        received: Tensor | None,
        seed: int,
        options: Sequence[Sequence[int]] | None,
    ) -> tuple[Reduction, Sequence[int]]:
        """The reduction at layer `number`, and the tokens kept by row. Tells whoever records it."""
        if self.by_sensitivity:
            (model,) = self.owner
            tokens = tokens.as_felt(model.sensitivity[number - 1])
        hidden, mask = tokens.hidden.detach(), tokens.mask
        if self.selector.select is None:
            keep = keep if options is None else self._worth_keeping(tokens, number, options)
            reduction = self._grouped(tokens, keep)
            self._record(tokens, number, reduction, hidden.new_zeros(len(hidden)), keep)
            return reduction, keep
        merging = self.reduce == "merge"
        to_nearest = self._trace is not None or (self.weighted and not merging) or self.reduce == "replace"
        measured = self._radii is not None or options is not None
        knobs: dict[str, Any] = {"centers_per_step": self.centers_per_step, "metric": self.metric}
        one_round = self.centers_per_step == "all"
        if to_nearest or merging or measured or ("geometry" in self.selector.knobs and not one_round):
            knobs["geometry"] = tokens.geometry(self.metric)
        knobs["received"] = received
        wanted = {name: knobs[name] for name in self.selector.knobs if name in knobs}
        # A generator for each layer: which layers reduce depends on the other rows, what they draw must not.
        wanted["generator"] = torch.Generator().manual_seed(seed)
        radius = None
        if options is not None:
            ranked = self.selector.select(hidden, mask, tokens.counts, **wanted)
            limit = self._limit(tokens, number)
            keep, radius = shortest_cover(knobs["geometry"], ranked, mask, options, limit, metric=self.metric)
            ranked = ranked[:, : max(keep)]
        elif measured and self.selector.cover is not None:
            ranked, radius = self.selector.cover(hidden, mask, keep, **wanted)
        else:
            ranked = self.selector.select(hidden, mask, keep, **wanted)
        reduction = Reduction.from_index(ranked, keep, mask)
        if to_nearest or (measured and radius is None):
            reduction, squared = reduction.with_groups(knobs["geometry"], mask)
            radius = to_radius(squared.amax(dim=1), self.metric)
        if merging:
            reduction, _ = reduction.with_groups(knobs["geometry"], mask, skip_cls=True)
            reduction = reduction.merged(tokens.sizes)
        self._record(tokens, number, reduction, hidden.new_zeros(len(hidden)) if radius is None else radius, keep)
        return reduction, keep

    def _grouped(self, tokens: Tokens, keep: Sequence[int]) -> Reduction:
        """The reduction of a selector that chooses no token but puts them into groups."""
        hidden, mask, size = tokens.hidden.detach(), tokens.mask, tokens.sizes
        if self.selector.group is not None:
            group = self.selector.group(hidden, mask, keep, size=size, metric=self.metric, within=self.within)
            return Reduction.from_group(group, max(keep), size)
        assert isinstance(self.schedule, StridedSchedule)
        rows, n, _ = hidden.shape
        group = pool_groups(mask, rows, n, self.schedule.window, hidden.device)
        return Reduction.from_group(group, max(keep), torch.ones_like(group, dtype=size.dtype))

    def _worth_keeping(self, tokens: Tokens, number: int, options: Sequence[Sequence[int]]) -> list[int]:
        """The fewest groups of each row, among its options, that merges within the radius leave."""
        assert self.selector.count is not None
        limit = from_radius(self._limit(tokens, number), self.metric)
        how = {"size": tokens.sizes, "metric": self.metric, "within": self.within}
        counts = self.selector.count(tokens.hidden.detach(), tokens.mask, limit, **how)
        return [min(option for option in row if option >= count) for row, count in zip(options, counts, strict=True)]

    def _record(self, tokens: Tokens, number: int, reduction: Reduction, radius: Tensor, keep: Sequence[int]) -> None:
        """Tells the trace and the recorder of radii, if there are any, unless everything was kept."""
        if list(keep) == tokens.counts:
            return
        if self._trace is not None:
            self._trace.record(number, reduction, radius, max(keep))
        if self._radii is not None:
            self._radii.record(number, radius, tokens.alone(self.metric), keep)

    def _limit(self, tokens: Tokens, number: int) -> Tensor:
        """The largest covering radius (B,) that an adaptive schedule allows at layer `number`."""
        assert isinstance(self.schedule, AdaptiveSchedule)
        alone = tokens.alone(self.metric)
        return self.schedule.radius_at(number) * (alone if self.schedule.relative else torch.ones_like(alone))


def _any_shorter(options: Sequence[Sequence[int]], counts: Sequence[int]) -> bool:
    return any(row[0] < count for row, count in zip(options, counts, strict=True))
