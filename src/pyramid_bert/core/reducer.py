"""Who stays, and what becomes of the others: from tokens to a `Decision`. Built once for a pyramid.

On a CPU the compiled loops decide and carry out in one go; the torch code does the same anywhere, and is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from . import compiled
from .coreset import centers_in_a_step
from .covering import shortest_cover
from .distances import Metric, from_radius
from .loop import Covering, Exactly, Step
from .reduction import Reduction
from .selectors import Candidates, Grouper, Ranker, Ranking, Selector
from .tokens import Tokens


@dataclass(frozen=True, eq=False)
class Space:
    """Where distances between tokens are measured.

    Attributes:
        metric: "euclidean" or "cosine".
        owner: The model whose `sensitivity` (layers, D, R) projects tokens, so that distances are changes of the
            answer; None measures between the tokens themselves. In a tuple: torch must not register it as a part.
    """

    metric: Metric = "euclidean"
    owner: tuple[Any] | None = None

    def candidates(self, tokens: Tokens, step: Step) -> Candidates:
        """The tokens as selectors see them at a step."""
        hidden = tokens.hidden.detach()
        if self.owner is not None:
            hidden = project(hidden, self.owner[0].sensitivity[step.number - 1])
        tables = tokens.tables if self.owner is None else None
        return Candidates(hidden, tokens.mask, self.metric, tokens.size, tokens.received, tables=tables)


@torch.no_grad()
def project(hidden: Tensor, directions: Tensor) -> Tensor:
    """Token vectors (B, N, D) along directions (D, R): (B, N, R), in the precision of distances under autocast too."""
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    with torch.autocast(hidden.device.type, enabled=False):
        return hidden.to(dtype) @ directions.to(hidden.device, dtype)


@dataclass(eq=False)
class Decision:
    """What happens to the tokens of a batch at one step.

    Attributes:
        counts: Tokens kept, by row.
        reduction: Which, and where the others go.
        candidates: What was decided on.
        size: (B, K) input tokens behind each kept token; None when attention is not weighted.
        hidden: (B, K, D) the reduced vectors, where the compiled loops made them already.
        known_radius: (B,) the covering radius, where choosing gave it.
        groups_only: No token is kept as it is, so there is no covering radius.
    """

    counts: list[int]
    reduction: Reduction
    candidates: Candidates
    size: Tensor | None = None
    hidden: Tensor | None = None
    known_radius: Tensor | None = None
    groups_only: bool = False

    @cached_property
    def grouped(self) -> Reduction:
        """The reduction with the group of every token, computed if choosing did not need it."""
        return self.reduction if self.reduction.group is not None else self._to_nearest[0]

    @property
    def radius(self) -> Tensor:
        """(B,) the largest distance from a token to its nearest kept one; 0 where no token is kept as it is."""
        if self.groups_only:
            return self.candidates.hidden.new_zeros(len(self.counts))
        if self.known_radius is not None:
            return self.known_radius
        return self.candidates.geometry.radius(self._to_nearest[1].amax(dim=1))

    @cached_property
    def _to_nearest(self) -> tuple[Reduction, Tensor]:
        return self.reduction.with_groups(self.candidates.geometry, self.candidates.mask)


class Reducer:
    """Decides what happens to tokens at a step.

    Args:
        selector: Who stays.
        knobs: Settings, of which the selector takes those that it names.
        space: Where distances are measured.
        how: What becomes of the others: they are dropped, weigh on the token nearest to them, or are merged into it.
    """

    def __init__(self, selector: Selector, knobs: Mapping[str, Any], space: Space, how: compiled.How) -> None:
        self.selector = selector
        self.knobs = {name: knobs[name] for name in selector.knobs}
        self.space = space
        self.how = how

    @torch.no_grad()
    def __call__(self, tokens: Tokens, step: Step) -> Decision | None:
        """The decision, or None when every token stays."""
        tokens = tokens.originals()
        candidates = self.space.candidates(tokens, step)
        if isinstance(self.selector, Grouper):
            candidates.tables = None  # pairs would be read out of them one by one
        elif self.selector.draws:
            # One for each layer: which layers reduce depends on the other rows, what they draw must not.
            candidates.generator = torch.Generator().manual_seed(step.seed)
        choose = self._group if isinstance(self.selector, Grouper) else self._choose
        assert step.keep is not None
        return choose(tokens, candidates, step.keep)

    # ---- selectors that rank ----

    def _choose(self, tokens: Tokens, candidates: Candidates, keep: Exactly | Covering) -> Decision | None:
        assert isinstance(self.selector, Ranker)
        rank: Callable[..., Ranking] = partial(self.selector.rank, **self.knobs)
        if isinstance(keep, Exactly):
            counts, ranking = list(keep.counts), None
        else:
            options = _clipped(keep, tokens)
            ranked = rank(candidates, tokens.counts).indices
            limit = _limit(keep, candidates)
            counts, radius = shortest_cover(candidates.geometry, ranked, candidates.mask, options, limit)
            ranking = Ranking(ranked[:, : max(counts)], radius)
        if counts == tokens.counts:
            return None
        if self._can_run_compiled(candidates):
            return self._choose_compiled(tokens, candidates, counts, ranking, rank)
        ranking = ranking or rank(candidates, counts)
        reduction, size = Reduction.from_index(ranking.indices, counts, candidates.mask), None
        if self.how != "drop":
            merges = self.how == "merge"
            reduction, _ = reduction.with_groups(candidates.geometry, candidates.mask, skip_cls=merges)
            reduction = reduction.merged(tokens.sizes) if merges else reduction
            size = reduction.sizes(tokens.sizes, max(counts))
        return Decision(counts, reduction, candidates, size, known_radius=ranking.radius)

    def _can_run_compiled(self, candidates: Candidates) -> bool:
        """Whether distances are needed, and the compiled loops can compute with them."""
        ranks_by_distance = self.selector.name == "coreset" and self.knobs["centers_per_step"] != "all"
        if self.how == "drop" and not ranks_by_distance:
            return False
        return candidates.hidden.device.type == "cpu" and compiled.can_run(candidates.geometry)

    def _choose_compiled(
        self,
        tokens: Tokens,
        candidates: Candidates,
        counts: list[int],
        ranking: Ranking | None,
        rank: Callable[..., Ranking],
    ) -> Decision:
        geometry, vectors = candidates.geometry, _vectors_to_reduce(tokens)
        size = torch.empty(len(counts), 0) if self.how == "drop" else tokens.sizes
        if ranking is None and self.selector.name == "coreset":
            steps = [centers_in_a_step(self.knobs["centers_per_step"], count) for count in counts]
            made = compiled.reduce_coreset(geometry, vectors, counts, steps, tokens.counts, size, self.how)
            radius: Tensor | None = geometry.radius(made.squared.clamp(min=0))
        else:
            found = ranking or rank(candidates, counts)
            made = compiled.reduce_ranked(geometry, vectors, found.indices, counts, tokens.counts, size, self.how)
            radius = found.radius
        return self._made(made, counts, candidates, vectors, radius)

    def _made(
        self, made: compiled.Arrays, counts: list[int], candidates: Candidates, vectors: Tensor, radius: Tensor | None
    ) -> Decision:
        """The decision in what the compiled loops filled in."""
        weighs = self.how != "drop"
        reduction = Reduction(
            made.index,
            group=made.group if weighs else None,
            mask=Reduction.filled_slots(made.index, counts),
            share=made.share if self.how == "merge" else None,
        )
        return Decision(
            counts,
            reduction,
            candidates,
            size=made.size if weighs else None,
            hidden=made.hidden if vectors.shape[2] else None,
            known_radius=radius,
            groups_only=isinstance(self.selector, Grouper),
        )

    # ---- selectors that group ----

    def _group(self, tokens: Tokens, candidates: Candidates, keep: Exactly | Covering) -> Decision | None:
        selector = self.selector
        assert isinstance(selector, Grouper)
        counts = list(keep.counts) if isinstance(keep, Exactly) else self._fewest(selector, tokens, candidates, keep)
        if counts == tokens.counts:
            return None
        size = tokens.sizes
        if selector.name == "cluster" and compiled.can_run(candidates.geometry):
            vectors, within = _vectors_to_reduce(tokens), self.knobs["within"]
            made = compiled.reduce_clusters(candidates.geometry, vectors, counts, tokens.counts, size, within)
            return self._made(made, counts, candidates, vectors, None)
        group = selector.group(candidates, counts, **self.knobs)
        weights = size if selector.weighs else torch.ones_like(size)
        reduction = Reduction.from_group(group, max(counts), weights)
        size_after = reduction.sizes(size, max(counts)) if selector.weighs else None
        return Decision(counts, reduction, candidates, size_after, groups_only=True)

    def _fewest(self, selector: Grouper, tokens: Tokens, candidates: Candidates, keep: Covering) -> list[int]:
        """The fewest groups of each row, among its options, that merges within the radius leave."""
        assert selector.count is not None
        limit = from_radius(_limit(keep, candidates), self.space.metric)
        found = selector.count(candidates, limit, **self.knobs)
        options = _clipped(keep, tokens)
        return [min(option for option in row if option >= count) for row, count in zip(options, found, strict=True)]


def _vectors_to_reduce(tokens: Tokens) -> Tensor:
    """What the compiled loops reduce: the vectors, or none where gradients or another precision need torch."""
    hidden = tokens.hidden
    plain = hidden.dtype in (torch.float32, torch.float64) and not hidden.requires_grad and tokens.copies is None
    return hidden.detach().contiguous() if plain else torch.empty(*hidden.shape[:2], 0)


def _clipped(keep: Covering, tokens: Tokens) -> Sequence[Sequence[int]]:
    return [tuple(min(option, n) for option in row) for row, n in zip(keep.options, tokens.counts, strict=True)]


def _limit(keep: Covering, candidates: Candidates) -> Tensor:
    """The largest covering radius (B,) that is allowed."""
    alone = candidates.cls_radius()
    return keep.radius * (alone if keep.relative else torch.ones_like(alone))
