"""Ward's clustering: tokens are merged pair by pair, the cheapest pair first.

A core-set keeps outliers and assigns every other token to one of them. A cluster keeps no token as it is; its groups
are tighter. Merging groups of weights a and b at a squared distance d costs a·b/(a+b)·d: the increase of the squared
distances of tokens to the mean of their group.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import compiled
from .distances import Metric
from .selectors import Candidates, Counts, Grouper, counts_per_row, register

_TOO_FAR = 100.0  # added cost of a pair farther apart than `within`, in units of the largest distance in its row


def ward_groups(
    hidden: Tensor,
    mask: Tensor | None,
    k: Counts,
    *,
    size: Tensor | None = None,
    metric: Metric = "euclidean",
    within: int | None = None,
) -> Tensor:
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
        >>> tokens = torch.tensor([[[0.0], [5.0], [9.0], [5.1], [5.3]]])
        >>> ward_groups(tokens, None, 3).tolist()
        [[0, 1, 2, 1, 1]]
    """
    return _group(Candidates(hidden, mask, metric, size), k, within=within)


def ward_counts(
    hidden: Tensor,
    mask: Tensor | None,
    limit: Tensor,
    *,
    size: Tensor | None = None,
    metric: Metric = "euclidean",
    within: int | None = None,
) -> list[int]:
    """The number of groups of each row when merging stops before the first merge that costs more than `limit` (B,).

    At least one group is left besides CLS. Reads the numbers back from the device. The other arguments are those of
    `ward_groups`.

    Example:
        >>> tokens = torch.tensor([[[0.0], [5.0], [9.0], [5.1], [5.3]]])
        >>> ward_counts(tokens, None, torch.tensor([1.0])), ward_counts(tokens, None, torch.tensor([0.01]))
        ([3], [4])
    """
    return _count(Candidates(hidden, mask, metric, size), limit, within=within)


@torch.no_grad()
def _group(candidates: Candidates, k: Counts, *, within: int | None = None) -> Tensor:
    rows, n, _ = candidates.hidden.shape
    counts = counts_per_row(k, rows, n)
    first, leads = _first_of_group(candidates, counts, within, limit=None)
    slot = (leads.cumsum(1) - 1).gather(1, first)
    past = slot >= torch.tensor(counts, device=slot.device)[:, None]
    return slot.masked_fill(~candidates.real | past, -1)


@torch.no_grad()
def _count(candidates: Candidates, limit: Tensor, *, within: int | None = None) -> list[int]:
    _, leads = _first_of_group(candidates, [2] * len(candidates.hidden), within, limit)
    counts: list[int] = leads.sum(1).tolist()
    return counts


def _first_of_group(
    candidates: Candidates, counts: Sequence[int], within: int | None, limit: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The first token (B, N) of each token's group, and whether a token (B, N) is the first of its group."""
    geometry, real, size = candidates.geometry, candidates.real, candidates.size
    squares = geometry.to_cls
    weight = torch.ones_like(squares) if size is None else size.to(squares.dtype).clone()
    if compiled.can_run(geometry):
        first = compiled.ward_firsts(geometry, counts, real.sum(1).tolist(), weight, within, limit)
    else:
        goal = torch.tensor(counts, device=real.device).clamp(min=2)
        cost = _cost_of_pairs(geometry.distances, weight, real, within)
        limit = torch.full_like(cost[:, 0, 0], torch.inf) if limit is None else limit.to(cost.dtype)
        first = _merge(cost, weight, real.sum(1), goal, limit)
    return first, real & (first == torch.arange(first.shape[1], device=first.device))


def _cost_of_pairs(distances: Tensor, weight: Tensor, real: Tensor, within: int | None) -> Tensor:
    """(B, N, N): what merging each pair costs; infinite for CLS, for pads and on the diagonal."""
    n = weight.shape[1]
    place = torch.arange(n, device=weight.device)
    free = real & (place > 0)
    barred = ~(free[:, :, None] & free[:, None, :]) | torch.eye(n, dtype=torch.bool, device=weight.device)
    if within is not None:
        largest = distances.masked_fill(barred, 0).amax(dim=(1, 2), keepdim=True)
        apart = (place[:, None] - place).abs() > within
        distances = distances + apart * (_TOO_FAR * largest)
    both = weight[:, :, None] + weight[:, None, :]
    share = weight[:, :, None] * weight[:, None, :] / both.clamp(min=1e-12)
    return (distances * share).masked_fill(barred, torch.inf)


def _merge(cost: Tensor, weight: Tensor, counts: Tensor, goal: Tensor, limit: Tensor) -> Tensor:
    """The first token (B, N) of the group that each is in, after the cheapest merges. Overwrites its arguments."""
    rows, n = weight.shape
    first = torch.arange(n, device=cost.device).repeat(rows, 1)
    every = torch.arange(rows, device=cost.device)
    for _ in range(int((counts - goal).max().clamp(min=0))):
        cheapest, pair = cost.flatten(1).min(dim=1)
        going = (counts > goal) & cheapest.isfinite() & (cheapest <= limit)
        row = every[going]
        one, other = (pair // n)[going], (pair % n)[going]
        i, j = torch.minimum(one, other), torch.maximum(one, other)  # rounding may make (i, j) and (j, i) differ
        a, b = weight[row, i][:, None], weight[row, j][:, None]
        w = weight[row]
        of_both = (w + a) * cost[row, i] + (w + b) * cost[row, j] - w * cheapest[going][:, None]
        merged = (of_both / (w + a + b)).nan_to_num(nan=torch.inf, posinf=torch.inf)
        merged.scatter_(1, torch.stack([i, j], 1), torch.inf)
        cost[row, i] = merged
        cost[row, :, i] = merged
        cost[row, j] = torch.inf
        cost[row, :, j] = torch.inf
        weight[row, i] += b[:, 0]
        first[row] = torch.where(first[row] == j[:, None], i[:, None], first[row])
        counts = counts - going.long()
    return first


summary = "groups of similar tokens, merged pair by pair (Ward); best with metric='cosine'"
register(Grouper("cluster", summary, _group, knobs=("within",), count=_count))
