"""Ward's clustering: tokens are merged pair by pair, the cheapest pair first.

A core-set keeps outliers and assigns every other token to one of them. A cluster keeps no token as it is; its groups
are tighter. Merging groups of weights a and b at a squared distance d costs a·b/(a+b)·d: the increase of the squared
distances of tokens to the mean of their group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from . import arrays, compiled
from .arrays import Array
from .distances import Metric
from .selectors import Candidates, Counts, Grouper, counts_per_row, register

_TOO_FAR = 100.0  # added cost of a pair farther apart than `within`, in units of the largest distance in its row


def ward_groups(
    hidden: Array,
    mask: Array | None,
    k: Counts,
    *,
    size: Array | None = None,
    metric: Metric = "euclidean",
    within: int | None = None,
) -> Array:
    """The slot (B, N) that each token is averaged into: CLS in slot 0, then groups in the order of their first tokens.

    Args:
        hidden: (B, N, D) token vectors.
        mask: (B, N) bool, True for real tokens, which stand on the left; None when all are. Pads get -1.
        k: Slots to fill, one number or one per row. With k = 1 only CLS is left and the others get -1.
        size: (B, N) input tokens behind each token; 1 if None.
        metric: "euclidean" or "cosine" (1 − cosine similarity).
        within: Prefer to merge tokens at most this many positions apart. Other pairs cost more, so k is always
            reached. In a pair of texts this keeps equal words of the two texts apart.

    Example:
        >>> tokens = np.array([[[0.0], [5.0], [9.0], [5.1], [5.3]]])
        >>> ward_groups(tokens, None, 3).tolist()
        [[0, 1, 2, 1, 1]]
    """
    return _group(Candidates(hidden, mask, metric, size), k, within=within)


def ward_counts(
    hidden: Array,
    mask: Array | None,
    limit: Array,
    *,
    size: Array | None = None,
    metric: Metric = "euclidean",
    within: int | None = None,
) -> list[int]:
    """The number of groups of each row when merging stops before the first merge that costs more than `limit` (B,).

    At least one group is left besides CLS. Reads the numbers back from the device. The other arguments are those of
    `ward_groups`.

    Example:
        >>> tokens = np.array([[[0.0], [5.0], [9.0], [5.1], [5.3]]])
        >>> ward_counts(tokens, None, np.array([1.0])), ward_counts(tokens, None, np.array([0.01]))
        ([3], [4])
    """
    return _count(Candidates(hidden, mask, metric, size), limit, within=within)


@arrays.without_gradients
def _group(candidates: Candidates, k: Counts, *, within: int | None = None) -> Array:
    rows, n, _ = candidates.hidden.shape
    counts = counts_per_row(k, rows, n)
    first, leads = _first_of_group(candidates, counts, within, limit=None)
    slot = arrays.gathered(leads.cumsum(1) - 1, first)
    past = slot >= arrays.whole_numbers(counts, slot)[:, None]
    return arrays.masked(slot, ~candidates.real | past, -1)


@arrays.without_gradients
def _count(candidates: Candidates, limit: Array, *, within: int | None = None) -> list[int]:
    _, leads = _first_of_group(candidates, [2] * len(candidates.hidden), within, limit)
    counts: list[int] = leads.sum(1).tolist()
    return counts


def _first_of_group(
    candidates: Candidates, counts: Sequence[int], within: int | None, limit: Array | None
) -> tuple[Array, Array]:
    """The first token (B, N) of each token's group, and whether a token (B, N) is the first of its group."""
    geometry, real, size = candidates.geometry, candidates.real, candidates.size
    squares = geometry.to_cls
    weight = squares * 0 + 1 if size is None else arrays.copied(arrays.as_type(size, squares))
    if geometry.runs_compiled:
        bound, real_tokens = None if limit is None else arrays.as_numpy(limit), real.sum(1).tolist()
        found = compiled.ward_firsts(geometry.for_loops, counts, real_tokens, arrays.as_numpy(weight), within, bound)
        first = arrays.as_given(found, real)
    else:
        goal = arrays.whole_numbers(counts, real).clip(min=2)
        cost = _cost_of_pairs(geometry.distances, weight, real, within)
        limit = arrays.filled((len(cost),), math.inf, cost) if limit is None else arrays.as_type(limit, cost)
        first = _merge(cost, weight, real.sum(1), goal, limit)
    return first, real & (first == arrays.positions(first.shape[1], first))


def _cost_of_pairs(distances: Array, weight: Array, real: Array, within: int | None) -> Array:
    """(B, N, N): what merging each pair costs; infinite for CLS, for pads and on the diagonal."""
    rows, n = weight.shape
    place = arrays.positions(n, weight)
    free = real & (place > 0)
    barred = ~(free[:, :, None] & free[:, None, :]) | (place[:, None] == place)
    if within is not None:
        largest = arrays.largest(arrays.masked(distances, barred, 0).reshape(rows, -1))[:, None, None]
        apart = abs(place[:, None] - place) > within
        distances = distances + apart * (_TOO_FAR * largest)
    both = weight[:, :, None] + weight[:, None, :]
    share = weight[:, :, None] * weight[:, None, :] / both.clip(min=1e-12)
    return arrays.masked(distances * share, barred, math.inf)


def _merge(cost: Array, weight: Array, counts: Array, goal: Array, limit: Array) -> Array:
    """The first token (B, N) of the group that each is in, after the cheapest merges. Overwrites its arguments."""
    rows, n = weight.shape
    first, every = arrays.repeated(arrays.positions(n, cost), rows), arrays.positions(rows, cost)
    for _ in range(max(int((counts - goal).max()), 0)):
        cheapest, pair = arrays.smallest(cost.reshape(rows, -1))
        going = (counts > goal) & arrays.is_finite(cheapest) & (cheapest <= limit)
        row = every[going]
        one, other = (pair // n)[going], (pair % n)[going]
        i = arrays.lesser(one, other)  # rounding may make (i, j) and (j, i) differ
        j = one + other - i
        a, b = weight[row, i][:, None], weight[row, j][:, None]
        w = weight[row]
        with np.errstate(invalid="ignore"):  # infinite less infinite, beside CLS and pads
            of_both = (w + a) * cost[row, i] + (w + b) * cost[row, j] - w * cheapest[going][:, None]
        merged = of_both / (w + a + b)
        merged = arrays.masked(merged, ~arrays.is_finite(merged), math.inf)
        place = arrays.positions(len(row), row)
        merged[place, i] = math.inf
        merged[place, j] = math.inf
        cost[row, i] = merged
        cost[row, :, i] = merged
        cost[row, j] = math.inf
        cost[row, :, j] = math.inf
        weight[row, i] += b[:, 0]
        first[row] = arrays.where(first[row] == j[:, None], i[:, None], first[row])
        counts = counts - going * 1
    return first


summary = "groups of similar tokens, merged pair by pair (Ward); best with metric='cosine'"
register(Grouper("cluster", summary, _group, knobs=("within",), count=_count))
