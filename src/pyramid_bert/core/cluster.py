"""Who goes together: tokens merged pair by pair, those first whose merging changes the row least (Ward's clustering).

A core-set keeps the outliers and lets everything else gather around them; here no token is kept as it is, and the
groups are as tight as their number allows. Merging groups of weights a and b at a squared distance d costs
a·b/(a+b)·d, which is what it adds to the squared distances of tokens to the mean of their group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .distances import Geometry, Metric
from .selectors import Counts, Selector, counts_per_row, register

_TOO_FAR = 100.0  # what a pair that is too far apart costs, in units of the largest distance in its row


@torch.no_grad()
def ward_groups(
    hidden: Tensor,
    mask: Tensor | None,
    k: Counts,
    *,
    size: Tensor | None = None,
    metric: Metric = "euclidean",
    within: int | None = None,
) -> Tensor:
    """The slot (B, N) that each token is averaged into: CLS alone in slot 0, then groups in the order of their firsts.

    Args:
        hidden: (B, N, D) token vectors.
        mask: (B, N) bool, True for real tokens, which stand on the left; None when all are. Pads get -1.
        k: How many slots to fill, one number or one a row. With k = 1 only CLS is left and the others get -1.
        size: (B, N) how many input tokens stand behind each token; 1 if None.
        metric: "euclidean" or "cosine" (1 − cosine similarity).
        within: Merge tokens only if they stand at most so many places apart, as long as there are such (a high cost,
            not a wall: k is always reached). In a pair of texts that keeps apart what the two have in common.

    Example:
        >>> tokens = torch.tensor([[[0.0], [5.0], [9.0], [5.1], [5.3]]])
        >>> ward_groups(tokens, None, 3).tolist()
        [[0, 1, 2, 1, 1]]
    """
    rows, n, _ = hidden.shape
    counts = counts_per_row(k, rows, n)
    real = _real(hidden, mask)
    first, leads = _first_of_group(hidden, real, counts, size, metric, within, limit=None)
    slot = (leads.cumsum(1) - 1).gather(1, first)
    past = slot >= torch.tensor(counts, device=hidden.device)[:, None]
    return slot.masked_fill(~real | past, -1)


@torch.no_grad()
def ward_counts(
    hidden: Tensor,
    mask: Tensor | None,
    limit: Tensor,
    *,
    size: Tensor | None = None,
    metric: Metric = "euclidean",
    within: int | None = None,
) -> list[int]:
    """How many groups are left in each row when merges go on for as long as none costs more than `limit` (B,).

    What a merge costs is the sum of squares by which it moves tokens; at least one group stands beside CLS. Reads the
    numbers back from the device. The other arguments are those of `ward_groups`.

    Example:
        >>> tokens = torch.tensor([[[0.0], [5.0], [9.0], [5.1], [5.3]]])
        >>> ward_counts(tokens, None, torch.tensor([1.0])), ward_counts(tokens, None, torch.tensor([0.01]))
        ([3], [4])
    """
    real = _real(hidden, mask)
    _, leads = _first_of_group(hidden, real, [2] * len(hidden), size, metric, within, limit)
    counts: list[int] = leads.sum(1).tolist()
    return counts


def _real(hidden: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device) if mask is None else mask


def _first_of_group(
    hidden: Tensor,
    real: Tensor,
    counts: Sequence[int],
    size: Tensor | None,
    metric: Metric,
    within: int | None,
    limit: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The first token (B, N) of the group that each is in, and which tokens (B, N) are such first ones."""
    rows, n, _ = hidden.shape
    distances = Geometry.of(hidden, metric).distances
    weight = torch.ones_like(distances[:, 0]) if size is None else size.to(distances.dtype).clone()
    cost = _cost_of_pairs(distances, weight, real, within)
    goal = torch.tensor(counts, device=hidden.device).clamp(min=2)
    limit = torch.full_like(cost[:, 0, 0], torch.inf) if limit is None else limit.to(cost.dtype)
    kernel = _kernel() if cost.device.type == "cpu" else None
    if kernel is None:
        first = _merge(cost, weight, real.sum(1), goal, limit)
    else:
        first = torch.empty(rows, n, dtype=torch.long)
        kernel(cost.numpy(), weight.numpy(), real.sum(1).numpy(), goal.numpy(), limit.numpy(), first.numpy())
    return first, real & (first == torch.arange(n, device=hidden.device))


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
        i, j = torch.minimum(one, other), torch.maximum(one, other)  # rounding may tell (i, j) from (j, i)
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


@cache
def _kernel() -> Callable[..., None] | None:
    """The same, compiled for the CPU; None when numba is not installed. The nearest partner of each token is kept."""
    try:
        from numba import njit
    except ImportError:
        return None
    infinite = float("inf")

    @njit(nogil=True)
    def nearest(cost: Any, i: int, n: int) -> int:
        best = i
        for j in range(i + 1, n):
            if cost[i, j] < cost[i, best]:
                best = j
        return best

    @njit(nogil=True)
    def merge(costs: Any, weights: Any, counts: Any, goals: Any, limits: Any, firsts: Any) -> None:
        rows, width = weights.shape
        for row in range(rows):
            cost, weight, first, n = costs[row], weights[row], firsts[row], counts[row]
            partner = [nearest(cost, i, n) for i in range(n)]
            for i in range(width):
                first[i] = i
            for _ in range(n - goals[row]):
                i = 1
                for t in range(2, n):
                    if cost[t, partner[t]] < cost[i, partner[i]]:
                        i = t
                j, least = partner[i], cost[i, partner[i]]
                if not least < infinite or least > limits[row]:
                    break
                a, b = weight[i], weight[j]
                for t in range(1, n):
                    w = weight[t]
                    of_both = (w + a) * cost[i, t] + (w + b) * cost[j, t] - w * least
                    merged = infinite if t in (i, j) else of_both / (w + a + b)
                    cost[i, t] = cost[t, i] = merged if merged < infinite else infinite
                    cost[j, t] = cost[t, j] = infinite
                weight[i] = a + b
                partner[j] = j
                for t in range(1, j):  # those whose partner may have changed
                    near = partner[t]
                    if t == i or near in (i, j):
                        partner[t] = nearest(cost, t, n)
                    elif t < i and (cost[t, i] < cost[t, near] or (cost[t, i] == cost[t, near] and i < near)):
                        partner[t] = i
                for t in range(n):
                    if first[t] == j:
                        first[t] = i

    return merge


CLUSTER = register(
    Selector(
        "cluster",
        "no token alone: groups of similar ones, merged pair by pair (Ward); best with metric='cosine'",
        None,
        group=ward_groups,
        count=ward_counts,
    )
)
