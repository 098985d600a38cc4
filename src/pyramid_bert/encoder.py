"""The one loop: [attention -> reduce -> feed-forward] x L, and the record of who survived.

Knows torch alone. What a layer's attention and feed-forward network are is the `Backbone`'s business (one adapter a
model family); how narrow and who stays come as a schedule and a selector.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .cost import Placement
from .errors import PyramidError
from .reduction import Reduction
from .schedule import Schedule, StridedSchedule
from .select import Geometry, get_selector, pool_groups, to_radius
from .select.coreset import CentersPerStep
from .select.distance import Metric
from .trace import Trace

# Which encoder is traced, or keeps everything, in this thread: state of a pass, not of a model that many may share.
_TRACED: ContextVar[tuple[object, Trace | None]] = ContextVar("traced", default=(None, None))
_KEEPING_ALL: ContextVar[object] = ContextVar("keeping_all", default=None)


class Backbone(Protocol):
    """What the loop needs to know of a model family."""

    def attend(
        self,
        layer: nn.Module,
        hidden: Tensor,
        bias: Tensor | None,
        *,
        queries: int | None = None,
        voters: Tensor | None = None,
        want_received: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of `layer`, with its Add & LayerNorm.

        Args:
            layer: One of the model's layers.
            hidden: (B, N, D).
            bias: (B, 1, 1, N) added to the key logits, or None.
            queries: Compute only the first so many tokens; None for all.
            voters: (B, Q) bool, which of the first Q queries count towards received attention; None when all do.
            want_received: Return the attention (B, N) that each token receives as well.
        """

    def feed_forward(self, layer: nn.Module, hidden: Tensor) -> Tensor:
        """The rest of `layer`: its feed-forward network with Add & LayerNorm."""

    def observe(self, layer: nn.Module, before: Tensor, after: Tensor) -> Tensor:
        """Called with the input and output of each layer; returns what goes on to the next."""


@dataclasses.dataclass
class Tokens:
    """The tokens between two steps of the loop."""

    hidden: Tensor  # (B, N, D)
    counts: list[int]  # real tokens of each row: known on the host, so that nothing is read back from the device
    mask: Tensor | None  # (B, N) bool; None when no row has pads
    size: Tensor | None  # (B, N) input tokens behind each token; None when that is 1 or attention is not weighted


class PyramidEncoder(nn.Module):
    """A stack of encoder layers that gets narrower on the way up.

    Takes over the `layer` list of the encoder it stands in for, and adds no parameter. All arguments are validated by
    `PyramidConfig`, which is what users make.
    """

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
        cls_only: bool,
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
        self.cls_only = cls_only
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
        if self._trace is not None:
            self._trace.start(mask, hidden)
        tokens = self._start(hidden, mask)
        plan = self._plan(tokens.counts)
        seed = self._seed()
        if self.placement == "input" and list(plan[0]) != tokens.counts:
            self.shrink(tokens, 0, plan[0], None, seed)
        last = len(self.layer)
        for number, (layer, keep) in enumerate(zip(self.layer, plan, strict=True), start=1):
            before = tokens.hidden
            only_cls = number == last and self.cls_only and not all_tokens and self._trace is None
            shrinks = self.placement != "input" and not only_cls and list(keep) != tokens.counts
            tokens.hidden, received = self.backbone.attend(
                layer,
                tokens.hidden,
                _key_bias(tokens),
                queries=1 if only_cls else None,
                voters=self.voters(tokens),
                want_received=shrinks and self.selector.needs_attention,
            )
            if shrinks and self.placement == "middle":
                self.shrink(tokens, number, keep, received, seed + number)
            tokens.hidden = self.backbone.feed_forward(layer, tokens.hidden)
            if shrinks and self.placement == "end":
                self.shrink(tokens, number, keep, received, seed + number)
            tokens.hidden = self.backbone.observe(layer, before, tokens.hidden)
        return tokens.hidden

    def _start(self, hidden: Tensor, mask: Tensor | None) -> Tokens:
        """Real tokens pushed to the left and padding cut off. Reads the true lengths from the device, once a pass."""
        rows, n, _ = hidden.shape
        counts = [n] * rows
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
                hidden, mask = Reduction(order).apply(hidden), mask.gather(1, order)
            hidden, mask = hidden[:, :widest], mask[:, :widest]
        mask = None if min(counts) == hidden.shape[1] else mask
        return Tokens(hidden, counts, mask, size=None)

    def _plan(self, counts: list[int]) -> list[tuple[int, ...]]:
        """The tokens to keep, by layer and row: one look at the true lengths serves all layers."""
        layers = len(self.layer)
        if _KEEPING_ALL.get() is self:
            return [tuple(counts)] * layers
        return list(zip(*(self.schedule.lengths(n, layers) for n in counts), strict=True))

    def voters(self, tokens: Tokens) -> Tensor | None:
        """Whose attention the selector goes by; see `Backbone.attend`."""
        if self.selector.voters == "cls":
            return torch.ones(len(tokens.counts), 1, dtype=torch.bool, device=tokens.hidden.device)
        return tokens.mask

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
    ) -> None:
        """Shrinks `tokens` in place to `keep[b]` tokens in row b."""
        slots = max(keep)
        reduction, radius = self._decide(tokens, keep, received, seed)
        if self._trace is not None:
            self._trace.record(number, reduction, radius, slots)
        if self.weighted:
            tokens.size = reduction.sizes(_sizes(tokens), slots)
        tokens.hidden = reduction.apply(tokens.hidden)
        tokens.counts = list(keep)
        tokens.mask = None if min(keep) == slots else reduction.mask

    @torch.no_grad()
    def _decide(
        self,
        tokens: Tokens,
        keep: Sequence[int],
        received: Tensor | None,
        seed: int,
    ) -> tuple[Reduction, Tensor]:
        """The reduction, and the covering radius (B,) if it is being traced (zeros otherwise)."""
        hidden, mask = tokens.hidden.detach(), tokens.mask
        rows, n, _ = hidden.shape
        radius = hidden.new_zeros(rows)
        if self.selector.select is None:
            assert isinstance(self.schedule, StridedSchedule)
            group = pool_groups(mask, rows, n, self.schedule.window, hidden.device)
            ones = torch.ones_like(group, dtype=_sizes(tokens).dtype)
            return Reduction.from_group(group, max(keep), ones), radius
        grouped = self.weighted or self._trace is not None
        knobs: dict[str, Any] = {"centers_per_step": self.centers_per_step, "metric": self.metric}
        one_round = self.centers_per_step == "all"
        if grouped or ("geometry" in self.selector.knobs and not one_round):
            knobs["geometry"] = Geometry.of(hidden, self.metric)
        knobs["received"] = received
        wanted = {name: knobs[name] for name in self.selector.knobs if name in knobs}
        # A generator for each layer: which layers reduce depends on the other rows, what they draw must not.
        generator = torch.Generator().manual_seed(seed)
        ranked = self.selector.select(hidden, mask, keep, generator=generator, **wanted)
        reduction = Reduction.from_index(ranked, keep, mask)
        merging = self.reduce == "merge"
        if self._trace is not None or (self.weighted and not merging):
            reduction, squared = reduction.with_groups(knobs["geometry"], mask)
            radius = to_radius(squared.amax(dim=1), self.metric)
        if merging:
            reduction, _ = reduction.with_groups(knobs["geometry"], mask, skip_cls=True)
            reduction = reduction.merged(_sizes(tokens))
        return reduction, radius


def _sizes(tokens: Tokens) -> Tensor:
    """The sizes (B, N), in the precision of distances: fp32, or fp64 for an fp64 model."""
    if tokens.size is not None:
        return tokens.size
    dtype = torch.promote_types(tokens.hidden.dtype, torch.float32)
    return torch.ones(tokens.hidden.shape[:2], dtype=dtype, device=tokens.hidden.device)


def _key_bias(tokens: Tokens) -> Tensor | None:
    """What is added to the logits of each key (B, 1, 1, N): log(size), and a large negative number for pads.

    A key with log(s) added weighs as much as s copies of it (the paper's Remark 1).
    """
    if tokens.mask is None and tokens.size is None:
        return None
    dtype = tokens.hidden.dtype
    if tokens.size is None:
        bias = torch.zeros(tokens.hidden.shape[:2], dtype=dtype, device=tokens.hidden.device)
    else:
        bias = tokens.size.clamp(min=1e-6).log().to(dtype)
    if tokens.mask is not None:
        bias = bias.masked_fill(~tokens.mask, torch.finfo(dtype).min)
    return bias[:, None, None, :]
