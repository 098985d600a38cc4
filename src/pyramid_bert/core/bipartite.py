"""Bipartite merging, the matching of ToMe (Bolya et al. 2023): every other token may join its nearest neighbour.

The tokens behind CLS are dealt alternately into two sets. Each token of the first set points to the nearest one of the
second, and the closest pairs are merged, as many as must go. One round removes half of the tokens at most; a schedule
that asks for more takes several. Here distances are between hidden states; ToMe compares the keys of attention.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .distances import Geometry, Metric
from .selectors import Candidates, Counts, Grouper, counts_per_row, register


def bipartite_groups(
    hidden: Tensor, mask: Tensor | None, k: Counts, *, size: Tensor | None = None, metric: Metric = "euclidean"
) -> Tensor:
    """The slot (B, N) that each token is averaged into: CLS in slot 0, then groups in the order of their first tokens.

    Args:
        hidden: (B, N, D) token vectors.
        mask: (B, N) bool, True for real tokens, which stand on the left; None when all are. Pads get -1.
        k: Slots to fill, one number or one per row. With k = 1 only CLS is left and the others get -1.
        size: (B, N) input tokens behind each token; 1 if None. Used from the second round on, which compares means.
        metric: "euclidean" or "cosine" (1 − cosine similarity).

    Example:
        >>> tokens = torch.tensor([[[0.0], [5.0], [9.0], [9.1], [5.3]]])
        >>> bipartite_groups(tokens, None, 4).tolist()  # 5.0 and 9.1 point to 5.3 and 9.0, and 9.1 is nearer
        [[0, 1, 2, 2, 3]]
    """
    return _group(Candidates(hidden, mask, metric, size), k)


@torch.no_grad()
def _group(candidates: Candidates, k: Counts) -> Tensor:
    rows, n, _ = candidates.hidden.shape
    counts = torch.tensor(counts_per_row(k, rows, n), device=candidates.hidden.device)
    vectors = candidates.hidden.to(torch.promote_types(candidates.hidden.dtype, torch.float32))
    size = torch.ones_like(vectors[..., 0]) if candidates.size is None else candidates.size.to(vectors.dtype)
    left, goal = candidates.real.sum(1), counts.clamp(min=2)  # (B,)
    group = torch.arange(n, device=counts.device).repeat(rows, 1)
    while bool((left > goal).any()):
        joins = _joined(vectors, left, goal, candidates.metric)
        alone = joins == torch.arange(joins.shape[1], device=joins.device)
        number = (alone.cumsum(1) - 1).gather(1, joins)  # groups keep their order
        group = number.gather(1, group)
        total = torch.zeros_like(size).scatter_add_(1, number, size)
        home = number[..., None].expand_as(vectors)
        vectors = torch.zeros_like(vectors).scatter_add_(1, home, size[..., None] * vectors)
        vectors, size = vectors / total.clamp(min=1e-12)[..., None], total
        left = left - (~alone).sum(1)
    slot = _by_first_token(group.masked_fill(~candidates.real, n - 1), n)
    return slot.masked_fill(~candidates.real | (slot >= counts[:, None]), -1)


def _joined(vectors: Tensor, left: Tensor, goal: Tensor, metric: Metric) -> Tensor:
    """The token (B, N) that each token joins in one round; itself where it stays."""
    n, device = vectors.shape[1], vectors.device
    place = torch.arange(n, device=device)
    exists = place < left[:, None]  # (B, N)
    first, second = place[1::2], place[2::2]
    joins = place.repeat(len(vectors), 1)
    distances = Geometry.of(vectors, metric).distances[:, 1::2, 2::2]  # (B, N/2, N/2)
    # Vectors that are not finite must not keep a round from merging something.
    distances = distances.nan_to_num(nan=torch.finfo(distances.dtype).max)
    nearest, target = distances.masked_fill(~exists[:, 2::2][:, None], torch.inf).min(dim=2)
    nearest = nearest.masked_fill(~exists[:, 1::2], torch.inf)
    order = nearest.sort(dim=1, stable=True).indices
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(len(first), device=device).expand_as(order))
    goes = (rank < (left - goal)[:, None]) & nearest.isfinite()
    joins[:, 1::2] = torch.where(goes, second[target], first)
    return joins


def _by_first_token(group: Tensor, groups: int) -> Tensor:
    """The groups (B, N) numbered anew in the order of their first tokens."""
    place = torch.arange(group.shape[1], device=group.device).expand_as(group)
    first = torch.full((len(group), groups), group.shape[1], device=group.device)
    first = first.scatter_reduce(1, group, place, reduce="amin")  # (B, groups)
    number = first.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    return number.gather(1, group)


register(Grouper("bipartite", "pairs of similar tokens, matched as in ToMe; best with metric='cosine'", _group))
