"""From tokens to a `Decision`: which tokens stay, and what becomes of the others.

On a CPU compiled loops decide and reduce in one call. The other code does the same on any device; it is the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from . import arrays, compiled
from .arrays import Array
from .baselines import drawn_by
from .coreset import centers_in_a_step
from .covering import shortest_cover
from .distances import Metric, from_radius
from .loop import Covering, Exactly, Keep, Step
from .protection import Aside, Protection
from .reduction import Reduction
from .selectors import Candidates, Grouper, Ranker, Ranking, Selector
from .tokens import Tokens


@dataclass(frozen=True, eq=False)
class Space:
    """Where distances between tokens are measured.

    Attributes:
        metric: "euclidean" or "cosine".
        owner: The model whose `sensitivity` (layers, D, R) projects tokens, so that distances are changes of the
            answer; None to compare the tokens themselves. In a tuple, so that torch does not register it.
    """

    metric: Metric = "euclidean"
    owner: tuple[Any] | None = None

    def candidates(self, tokens: Tokens, step: Step) -> Candidates:
        """The tokens as selectors see them at a step."""
        itself = tokens.compared is None or self.owner is not None  # sensitivity is that of the hidden states
        hidden = arrays.detached(tokens.hidden if itself else tokens.compared)
        if self.owner is not None:
            hidden = project(hidden, self.owner[0].sensitivity[step.number - 1])
        tables = tokens.tables if self.owner is None else None
        return Candidates(hidden, tokens.mask, self.metric, tokens.size, tokens.received, tables=tables)


@arrays.without_gradients
def project(hidden: Array, directions: Array) -> Array:
    """Token vectors (B, N, D) projected on directions (D, R): (B, N, R), in at least fp32 even under autocast."""
    with arrays.in_full_precision(hidden):
        vectors = arrays.full_precision(hidden)
        return vectors @ arrays.placed_like(directions, vectors)


@dataclass(eq=False)
class Decision:
    """What happens to the tokens of a batch at one step.

    Attributes:
        counts: Tokens kept, by row.
        reduction: Which tokens are kept, and where the others go.
        candidates: The tokens as the selector saw them.
        size: (B, K) input tokens behind each kept token; None when attention is not weighted.
        hidden: (B, K, D) the reduced vectors, if the compiled loops computed them.
        known_radius: (B,) the covering radius, if the selection computed it.
        groups_only: Every kept token is the average of a group. A covering radius is then not defined.
    """

    counts: list[int]
    reduction: Reduction
    candidates: Candidates
    size: Array | None = None
    hidden: Array | None = None
    known_radius: Array | None = None
    groups_only: bool = False

    @cached_property
    def grouped(self) -> Reduction:
        """The reduction with the group of every token, computed now if the selection did not need it."""
        return self.reduction if self.reduction.group is not None else self._to_nearest[0]

    @property
    def radius(self) -> Array:
        """(B,) the largest distance from a token to its nearest kept one; 0 when no token is kept as it is."""
        if self.groups_only:
            return arrays.filled((len(self.counts),), 0, self.candidates.hidden)
        if self.known_radius is not None:
            return self.known_radius
        return self.candidates.geometry.radius(arrays.largest(self._to_nearest[1]))

    @cached_property
    def _to_nearest(self) -> tuple[Reduction, Array]:
        return self.reduction.with_groups(self.candidates.geometry, self.candidates.mask)


class Reducer:
    """Decides what happens to tokens at a step. Built once per pyramid.

    Args:
        selector: Which tokens stay.
        knobs: Settings of selectors; this one takes those that it names.
        space: Where distances are measured.
        how: What becomes of the others: "drop" them, let them "weigh" on the nearest kept token, or "merge" into it.
        protection: Which tokens of a call are left as they are.
    """

    def __init__(
        self,
        selector: Selector,
        knobs: Mapping[str, Any],
        space: Space,
        how: compiled.How,
        protection: Protection | None = None,
    ) -> None:
        self.selector = selector
        self.knobs = {name: knobs[name] for name in selector.knobs}
        self.space = space
        self.how = how
        self.protection = protection

    @arrays.without_gradients
    def __call__(self, tokens: Tokens, step: Step) -> Decision | None:
        """The decision, or None when every token stays. Protected tokens step aside."""
        assert step.keep is not None
        tokens = tokens.originals()
        if tokens.protected is None:
            return self._decide(tokens, step, step.keep)
        aside = Aside(tokens)
        found = self._decide(aside.others, step, aside.keep(step.keep, self.knobs.get("window")))
        if found is None:
            return None
        counts, reduction = aside.returned(found)
        size = None if found.size is None else reduction.sizes(tokens.sizes, max(counts))
        candidates = self.space.candidates(tokens, step)
        how: dict[str, Any] = {"known_radius": found.known_radius, "groups_only": found.groups_only}
        return Decision(counts, reduction, candidates, size, **how)

    def _decide(self, tokens: Tokens, step: Step, keep: Keep) -> Decision | None:
        candidates = self.space.candidates(tokens, step)
        if isinstance(self.selector, Grouper):
            candidates.tables = None  # slow for pairs of tokens
            return self._group(self.selector, tokens, candidates, keep)
        if self.selector.draws:
            # One per layer: which layers reduce depends on the other rows, and what they draw must not.
            candidates.drawn = drawn_by(step.seed)
        return self._choose(self.selector, tokens, candidates, keep)

    def _choose(
        self, selector: Ranker, tokens: Tokens, candidates: Candidates, keep: Exactly | Covering
    ) -> Decision | None:
        ranking: Ranking | None = None
        if isinstance(keep, Exactly):
            counts = list(keep.counts)
        else:
            ranked = selector.rank(candidates, tokens.counts, **self.knobs).indices
            options, limit = _clipped(keep, tokens), _limit(keep, candidates)
            counts, radius = shortest_cover(candidates.geometry, ranked, candidates.mask, options, limit)
            ranking = Ranking(ranked[:, : max(counts)], radius)
        if counts == tokens.counts:
            return None
        runs_compiled = self._can_run_compiled(candidates)
        if ranking is None and not (runs_compiled and selector.name == "coreset"):
            ranking = selector.rank(candidates, counts, **self.knobs)
        if runs_compiled:
            return self._choose_compiled(tokens, candidates, counts, ranking)
        assert ranking is not None
        reduction, size = Reduction.from_index(ranking.indices, counts, candidates.mask), None
        if self.how != "drop":
            merges = self.how == "merge"
            reduction, _ = reduction.with_groups(candidates.geometry, candidates.mask, skip_cls=merges)
            reduction = reduction.merged(tokens.sizes) if merges else reduction
            size = reduction.sizes(tokens.sizes, max(counts))
        return Decision(counts, reduction, candidates, size, known_radius=ranking.radius)

    def _can_run_compiled(self, candidates: Candidates) -> bool:
        """Whether distances are needed, and the compiled loops can use them."""
        ranks_by_distance = self.selector.name == "coreset" and self.knobs["centers_per_step"] != "all"
        if self.how == "drop" and not ranks_by_distance:
            return False
        return arrays.on_cpu(candidates.hidden) and candidates.geometry.runs_compiled

    def _choose_compiled(
        self, tokens: Tokens, candidates: Candidates, counts: list[int], ranking: Ranking | None
    ) -> Decision:
        """Reduces to a ranking or, if there is none yet, to a core-set."""
        geometry, vectors = candidates.geometry, _vectors_to_reduce(tokens)
        size = np.empty((len(counts), 0)) if self.how == "drop" else arrays.as_numpy(tokens.sizes)
        parts, real = geometry.for_loops, tokens.counts
        if ranking is not None:
            ranked = arrays.as_numpy(ranking.indices)
            made = compiled.reduce_ranked(parts, vectors, ranked, counts, real, size, self.how)
            return self._made(made, counts, candidates, ranking.radius)
        steps = [centers_in_a_step(self.knobs["centers_per_step"], count) for count in counts]
        to_cls = arrays.as_numpy(geometry.to_cls)
        made = compiled.reduce_coreset(parts, to_cls, vectors, counts, steps, real, size, self.how)
        radius = geometry.radius(arrays.as_given(made.squared, candidates.hidden).clip(min=0))
        return self._made(made, counts, candidates, radius)

    def _made(self, made: compiled.Arrays, counts: list[int], candidates: Candidates, radius: Array | None) -> Decision:
        """The results of the compiled loops as a decision."""
        weighs = self.how != "drop"
        kept, group, share, size, hidden, _ = (arrays.as_given(x, candidates.hidden) for x in made)
        reduction = Reduction(
            kept,
            group=group if weighs else None,
            mask=Reduction.filled_slots(kept, counts),
            share=share if self.how == "merge" else None,
        )
        return Decision(
            counts,
            reduction,
            candidates,
            size=size if weighs else None,
            hidden=hidden if hidden.shape[2] else None,
            known_radius=radius,
            groups_only=isinstance(self.selector, Grouper),
        )

    def _group(
        self, selector: Grouper, tokens: Tokens, candidates: Candidates, keep: Exactly | Covering
    ) -> Decision | None:
        if isinstance(keep, Exactly):
            counts = list(keep.counts)
        else:  # the fewest groups, among the options, that merges within the radius leave
            assert selector.count is not None
            limit = from_radius(_limit(keep, candidates), self.space.metric)
            found = zip(_clipped(keep, tokens), selector.count(candidates, limit, **self.knobs), strict=True)
            counts = [min(option for option in row if option >= count) for row, count in found]
        if counts == tokens.counts:
            return None
        size = tokens.sizes
        if selector.name == "cluster" and candidates.geometry.runs_compiled:
            vectors, within = _vectors_to_reduce(tokens), self.knobs["within"]
            parts, weight = candidates.geometry.for_loops, arrays.as_numpy(size)
            made = compiled.reduce_clusters(parts, vectors, counts, tokens.counts, weight, within)
            return self._made(made, counts, candidates, None)
        group = selector.group(candidates, counts, **self.knobs)
        weights = size if selector.weighs else size * 0 + 1
        reduction = Reduction.from_group(group, max(counts), weights)
        size_after = reduction.sizes(size, max(counts)) if selector.weighs else None
        return Decision(counts, reduction, candidates, size_after, groups_only=True)


def _vectors_to_reduce(tokens: Tokens) -> Any:
    """The vectors that the compiled loops reduce; none when gradients, copies or another precision need torch."""
    if tokens.copies is not None or not arrays.is_plain(tokens.hidden):
        return np.empty((*tokens.hidden.shape[:2], 0), dtype=np.float32)
    return np.ascontiguousarray(arrays.as_numpy(arrays.detached(tokens.hidden)))


def _clipped(keep: Covering, tokens: Tokens) -> Sequence[Sequence[int]]:
    return [tuple(min(option, n) for option in row) for row, n in zip(keep.options, tokens.counts, strict=True)]


def _limit(keep: Covering, candidates: Candidates) -> Array:
    """The largest covering radius (B,) that is allowed."""
    alone = candidates.cls_radius()
    return keep.radius * (alone if keep.relative else alone * 0 + 1)
