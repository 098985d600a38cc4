"""k-center-greedy-batch-m, the paper's token selection (its algorithm 1).

Starting from CLS, repeat: take the m tokens farthest from the centres chosen so far, then update the distances once.
Within a batch of m, tokens are ranked by their distance to the centres added before: the printed inner loop, read
literally, would choose the same token m times. The last batch is clipped so that exactly k are kept. m = 1 is the
classical greedy, whose covering radius is at most twice the optimum; m = k − 1 is one sort.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from ..errors import PyramidError, shown
from . import compiled
from .distances import Geometry, Metric, distance_to_cls
from .selectors import Candidates, Counts, Ranker, Ranking, counts_per_row, register, top_by_score

CentersPerStep = int | float | Literal["all"]


@torch.no_grad()
def k_center_greedy(
    hidden: Tensor,
    mask: Tensor | None,
    k: Counts,
    *,
    centers_per_step: CentersPerStep = 1,
    metric: Metric = "euclidean",
    geometry: Geometry | None = None,
) -> Ranking:
    """The core-set of each row: `k` positions in rank order, CLS first, and the covering radius (B,).

    The radius is the largest distance from a real token to its nearest chosen one; 0 when all are chosen. Nothing is
    read back from the device.

    Args:
        hidden: (B, N, D) token vectors.
        mask: (B, N) bool, True for real tokens; None when all are. Pads need no cover and are chosen last.
        k: Tokens to keep, one number or one per row. Ignore the entries of a row past its own k.
        centers_per_step: The paper's m: an int, a fraction of k in (0, 1), or "all" for k − 1.
        metric: "euclidean" or "cosine" (1 − cosine similarity).
        geometry: Distances between the tokens in this metric, if known already.

    Example:
        >>> tokens = torch.tensor([[[0.0], [1.0], [9.0], [10.0]]])
        >>> cover = k_center_greedy(tokens, None, k=2)
        >>> cover.indices.tolist(), cover.radius.tolist()
        ([[0, 3]], [1.0])
    """
    if hidden.dim() != 3 or not len(hidden):
        raise PyramidError(f"hidden must be (B, N, D) with at least one row, got shape {tuple(hidden.shape)}")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != hidden.shape[:2]):
        raise PyramidError(
            f"mask must be bool of shape {tuple(hidden.shape[:2])}, got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    rows, n, _ = hidden.shape
    counts = counts_per_row(k, rows, n)
    steps = [centers_in_a_step(centers_per_step, count) for count in counts]
    if geometry is None:
        geometry = Geometry.of(hidden, metric)
    uncovered = geometry.to_cls  # (B, N): squared distance to the nearest centre, so far CLS
    if mask is not None:
        uncovered.masked_fill_(~mask, -1.0)  # below every real token, above what is chosen
    uncovered[:, 0] = -torch.inf
    if compiled.can_run(geometry):
        index, squared = compiled.greedy(geometry, uncovered, counts, steps)
    elif any(step > 1 for step in steps):
        index, squared = _in_batches(geometry.distances, uncovered, counts, steps)
    else:
        index, squared = _one_at_a_time(geometry.distances, uncovered, counts)
    return Ranking(index, geometry.radius(squared.clamp(min=0)))


@torch.no_grad()
def radius_curve(hidden: Tensor, mask: Tensor | None, *, metric: Metric = "euclidean") -> Tensor:
    """The covering radius (B, N) of the first k = 1..N centres of the greedy order (m = 1).

    Args:
        hidden: (B, N, D) token vectors.
        mask: (B, N) bool, True for real tokens; None when all are.
        metric: As in `k_center_greedy`.

    Example:
        >>> radius_curve(torch.tensor([[[0.0], [1.0], [9.0], [10.0]]]), None).tolist()
        [[10.0, 1.0, 1.0, 0.0]]
    """
    geometry = Geometry.of(hidden, metric)
    distances, uncovered = geometry.distances, geometry.to_cls
    if mask is not None:
        uncovered.masked_fill_(~mask, 0)
        distances = distances.masked_fill(~mask[:, None, :], 0)
    curve = []
    batch = torch.arange(len(hidden), device=hidden.device)
    for _ in range(hidden.shape[1]):
        farthest, token = uncovered.max(dim=1)
        curve.append(farthest)
        uncovered = torch.minimum(uncovered, distances[batch, token])
    return geometry.radius(torch.stack(curve, 1))


@lru_cache(maxsize=4096, typed=True)  # asked for every row of every batch
def centers_in_a_step(centers_per_step: CentersPerStep, k: int) -> int:
    """The paper's m as a number, for a row that keeps `k` tokens.

    Example:
        >>> [centers_in_a_step(m, 32) for m in (1, 0.1, "all")]
        [1, 4, 31]
    """
    m = centers_per_step
    if isinstance(m, str) and m == "all":
        return max(k - 1, 1)
    if isinstance(m, int) and not isinstance(m, bool) and m >= 1:
        return m
    if isinstance(m, float) and 0 < m < 1:
        return math.ceil(m * k - 1e-9)
    raise PyramidError(
        f"centers_per_step must be an int of at least 1, a fraction in (0, 1) or 'all', got {shown(m)}; "
        "1 covers best, 'all' is fastest"
    )


def _one_at_a_time(distances: Tensor, uncovered: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
    """The ranks (B, K) and the squared radius (B,) for m = 1."""
    rows = len(uncovered)
    farthest, chosen = [], [torch.zeros(rows, dtype=torch.long, device=uncovered.device)]
    batch = torch.arange(rows, device=uncovered.device)
    for _ in range(max(counts) - 1):
        distance, token = uncovered.max(dim=1)  # (B,): the first of equal ones
        farthest.append(distance)
        chosen.append(token)
        uncovered = torch.minimum(uncovered, distances[batch, token])
        uncovered[batch, token] = -torch.inf
    farthest.append(uncovered.max(dim=1).values)
    # The radius of k centres is the distance at which the next one would be taken.
    after = torch.tensor(counts, device=uncovered.device)[:, None] - 1
    return torch.stack(chosen, 1), torch.stack(farthest, 1).gather(1, after)[:, 0]


def _in_batches(distances: Tensor, uncovered: Tensor, counts: list[int], steps: list[int]) -> tuple[Tensor, Tensor]:
    """The ranks (B, K) and the squared radius (B,) for m > 1, which may differ between rows."""
    rows, n = uncovered.shape
    device = uncovered.device
    widest, rounds = max(steps), max(-(-(count - 1) // step) for count, step in zip(counts, steps, strict=True))
    count, step = torch.tensor([counts, steps], device=device)[:, :, None]  # (B, 1) each
    index = torch.zeros(rows, max(counts) + widest, dtype=torch.long, device=device)
    place = torch.arange(min(widest, n), device=device)  # (M,)
    for done in range(rounds):
        taken = 1 + done * step  # (B, 1)
        token = uncovered.sort(dim=1, descending=True, stable=True).indices[:, : len(place)]  # (B, M)
        valid = (place < step) & (taken + place < count)  # (B, M): a finished row takes no more
        index.scatter_(1, (taken + place).clamp(max=index.shape[1] - 1), torch.where(valid, token, 0))
        reach = distances.gather(1, token[:, :, None].expand(-1, -1, n))  # (B, M, N)
        reach = reach.masked_fill(~valid[:, :, None], torch.inf).amin(dim=1)
        spent = torch.zeros_like(uncovered, dtype=torch.bool).scatter(1, token, valid)
        uncovered = torch.minimum(uncovered, reach).masked_fill(spent, -torch.inf)
    return index[:, : max(counts)], uncovered.amax(dim=1)


def _rank(candidates: Candidates, k: Counts, *, centers_per_step: CentersPerStep = 1) -> Ranking:
    hidden, mask, metric = candidates.hidden, candidates.mask, candidates.metric
    if centers_per_step == "all" and "geometry" not in candidates.__dict__:
        # One round ranks by the distance to CLS only: no Gram matrix is needed.
        return Ranking(top_by_score(distance_to_cls(hidden, metric), mask, k))
    geometry = candidates.geometry
    return k_center_greedy(hidden, mask, k, centers_per_step=centers_per_step, metric=metric, geometry=geometry)


summary = "greedy k-center: every dropped token has a kept one near it (the paper)"
register(Ranker("coreset", summary, _rank, knobs=("centers_per_step",)))
