"""Bipartite merging, the matching of ToMe (Bolya et al. 2023): every other token may join its nearest neighbour.

The tokens behind CLS are dealt alternately into two sets. Each token of the first set points to the nearest one of the
second, and the closest pairs are merged, as many as must go. One round removes half of the tokens at most; a schedule
that asks for more takes several. Here distances are between hidden states; ToMe compares the keys of attention.
"""

from __future__ import annotations

import math

from . import arrays
from .arrays import Array
from .distances import Geometry, Metric
from .reduction import Reduction
from .selectors import Candidates, Counts, Grouper, counts_per_row, register

_VERY_FAR = 1e38  # stands for a distance that is not a number


def bipartite_groups(
    hidden: Array, mask: Array | None, k: Counts, *, size: Array | None = None, metric: Metric = "euclidean"
) -> Array:
    """The slot (B, N) that each token is averaged into: CLS in slot 0, then groups in the order of their first tokens.

    Args:
        hidden: (B, N, D) token vectors.
        mask: (B, N) bool, True for real tokens, which stand on the left; None when all are. Pads get -1.
        k: Slots to fill, one number or one per row. With k = 1 only CLS is left and the others get -1.
        size: (B, N) input tokens behind each token; 1 if None. Used from the second round on, which compares means.
        metric: "euclidean" or "cosine" (1 − cosine similarity).

    Example:
        >>> import numpy as np
        >>> tokens = np.array([[[0.0], [5.0], [9.0], [9.1], [5.3]]])
        >>> bipartite_groups(tokens, None, 4).tolist()  # 5.0 and 9.1 point to 5.3 and 9.0, and 9.1 is nearer
        [[0, 1, 2, 2, 3]]
    """
    return _group(Candidates(hidden, mask, metric, size), k)


@arrays.without_gradients
def _group(candidates: Candidates, k: Counts) -> Array:
    rows, n, _ = candidates.hidden.shape
    vectors = arrays.full_precision(candidates.hidden)
    counts = arrays.whole_numbers(counts_per_row(k, rows, n), vectors)
    given = candidates.size
    size = arrays.filled((rows, n), 1, vectors) if given is None else arrays.as_type(given, vectors)
    left, goal = candidates.real.sum(1), counts.clip(min=2)  # (B,)
    group = arrays.repeated(arrays.positions(n, counts), rows)
    while bool((left > goal).any()):
        joins = _joined(vectors, left, goal, candidates.metric)
        alone = joins == arrays.positions(joins.shape[1], joins)
        number = arrays.gathered(alone.cumsum(1) - 1, joins)  # groups keep their order
        group = arrays.gathered(number, group)
        reduction = Reduction.from_group(number, n, size)
        size, vectors = arrays.added_up(size, number, n), reduction.apply(vectors)
        left = left - (~alone).sum(1)
    slot = _by_first_token(arrays.masked(group, ~candidates.real, n - 1), n)
    return arrays.masked(slot, ~candidates.real | (slot >= counts[:, None]), -1)


def _joined(vectors: Array, left: Array, goal: Array, metric: Metric) -> Array:
    """The token (B, N) that each token joins in one round; itself where it stays."""
    place = arrays.positions(vectors.shape[1], vectors)
    exists = place < left[:, None]  # (B, N)
    first, second = place[1::2], place[2::2]
    joins = arrays.repeated(place, len(vectors))
    distances = Geometry.of(vectors, metric).distances[:, 1::2, 2::2]  # (B, N/2, N/2)
    # Vectors that are not finite must not keep a round from merging something.
    distances = arrays.masked(distances, distances != distances, _VERY_FAR)
    nearest, target = arrays.smallest(arrays.masked(distances, ~exists[:, 2::2][:, None], math.inf))
    nearest = arrays.masked(nearest, ~exists[:, 1::2], math.inf)
    order = arrays.sorted_from(nearest)
    rank = arrays.scattered(order, order, arrays.repeated(arrays.positions(len(first), order), len(order)))
    goes = (rank < (left - goal)[:, None]) & arrays.is_finite(nearest)
    joins[:, 1::2] = arrays.where(goes, second[target], arrays.repeated(first, len(joins)))
    return joins


def _by_first_token(group: Array, groups: int) -> Array:
    """The groups (B, N) numbered anew in the order of their first tokens."""
    number = arrays.sorted_from(arrays.sorted_from(arrays.first_with(group, groups)))
    return arrays.gathered(number, group)


register(Grouper("bipartite", "pairs of similar tokens, matched as in ToMe; best with metric='cosine'", _group))
