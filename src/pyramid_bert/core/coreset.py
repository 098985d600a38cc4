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

from ..errors import PyramidError, shown
from . import arrays, compiled
from .arrays import Array
from .distances import Geometry, Metric, distance_to_cls
from .selectors import Candidates, Counts, Ranker, Ranking, counts_per_row, register, top_by_score

CentersPerStep = int | float | Literal["all"]


@arrays.without_gradients
def k_center_greedy(
    hidden: Array,
    mask: Array | None,
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
        >>> import numpy as np
        >>> tokens = np.array([[[0.0], [1.0], [9.0], [10.0]]])
        >>> cover = k_center_greedy(tokens, None, k=2)
        >>> cover.indices.tolist(), cover.radius.tolist()
        ([[0, 3]], [1.0])
    """
    if hidden.ndim != 3 or not len(hidden):
        raise PyramidError(f"hidden must be (B, N, D) with at least one row, got shape {tuple(hidden.shape)}")
    if mask is not None and ("bool" not in str(mask.dtype) or mask.shape != hidden.shape[:2]):
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
        uncovered[~mask] = -1.0  # below every real token, above what is chosen
    uncovered[:, 0] = -math.inf
    if geometry.runs_compiled:
        found = compiled.greedy(geometry.for_loops, arrays.as_numpy(uncovered), counts, steps)
        index, squared = (arrays.as_given(x, hidden) for x in found)
    elif any(step > 1 for step in steps):
        index, squared = _in_batches(geometry.distances, uncovered, counts, steps)
    else:
        index, squared = _one_at_a_time(geometry.distances, uncovered, counts)
    return Ranking(index, geometry.radius(squared.clip(min=0)))


@arrays.without_gradients
def radius_curve(hidden: Array, mask: Array | None, *, metric: Metric = "euclidean") -> Array:
    """The covering radius (B, N) of the first k = 1..N centres of the greedy order (m = 1).

    Args:
        hidden: (B, N, D) token vectors.
        mask: (B, N) bool, True for real tokens; None when all are.
        metric: As in `k_center_greedy`.

    Example:
        >>> import numpy as np
        >>> radius_curve(np.array([[[0.0], [1.0], [9.0], [10.0]]]), None).tolist()
        [[10.0, 1.0, 1.0, 0.0]]
    """
    geometry = Geometry.of(hidden, metric)
    distances, uncovered = geometry.distances, geometry.to_cls
    if mask is not None:
        uncovered[~mask] = 0
        distances = arrays.masked(distances, ~mask[:, None, :], 0)
    curve = []
    batch = arrays.positions(len(hidden), hidden)
    for _ in range(hidden.shape[1]):
        farthest, token = _farthest(uncovered)
        curve.append(farthest)
        uncovered = arrays.lesser(uncovered, distances[batch, token])
    return geometry.radius(arrays.side_by_side(curve))


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


def _one_at_a_time(distances: Array, uncovered: Array, counts: list[int]) -> tuple[Array, Array]:
    """The ranks (B, K) and the squared radius (B,) for m = 1."""
    batch = arrays.positions(len(uncovered), uncovered)
    farthest, chosen = [], [batch * 0]
    for _ in range(max(counts) - 1):
        distance, token = _farthest(uncovered)
        farthest.append(distance)
        chosen.append(token)
        uncovered = arrays.lesser(uncovered, distances[batch, token])
        uncovered[batch, token] = -math.inf
    farthest.append(arrays.largest(uncovered))
    # The radius of k centres is the distance at which the next one would be taken.
    after = arrays.whole_numbers(counts, uncovered)[:, None] - 1
    return arrays.side_by_side(chosen), arrays.gathered(arrays.side_by_side(farthest), after)[:, 0]


def _farthest(uncovered: Array) -> tuple[Array, Array]:
    """The largest distances (B,), and the tokens that have them: the first of equal ones."""
    distance, token = arrays.smallest(-uncovered)
    return -distance, token


def _in_batches(distances: Array, uncovered: Array, counts: list[int], steps: list[int]) -> tuple[Array, Array]:
    """The ranks (B, K) and the squared radius (B,) for m > 1, which may differ between rows."""
    rows, n = uncovered.shape
    widest, rounds = max(steps), max(-(-(count - 1) // step) for count, step in zip(counts, steps, strict=True))
    count, step = arrays.whole_numbers([counts, steps], uncovered)[:, :, None]  # (B, 1) each
    index = arrays.filled((rows, max(counts) + widest), 0, count)
    place = arrays.positions(min(widest, n), uncovered)  # (M,)
    batch = arrays.positions(rows, uncovered)[:, None]
    for done in range(rounds):
        taken = 1 + done * step  # (B, 1)
        token = arrays.sorted_from(uncovered, descending=True)[:, : len(place)]  # (B, M)
        valid = (place < step) & (taken + place < count)  # (B, M): a finished row takes no more
        index = arrays.scattered(index, (taken + place).clip(max=index.shape[1] - 1), arrays.masked(token, ~valid, 0))
        reach = arrays.masked(distances[batch, token], ~valid[:, :, None], math.inf)  # (B, M, N)
        spent = arrays.scattered(uncovered < -math.inf, token, valid)
        uncovered = arrays.lesser(uncovered, arrays.smallest(reach.swapaxes(1, 2))[0])
        uncovered = arrays.masked(uncovered, spent, -math.inf)
    return index[:, : max(counts)], arrays.largest(uncovered)


def _rank(candidates: Candidates, k: Counts, *, centers_per_step: CentersPerStep = 1) -> Ranking:
    hidden, mask, metric = candidates.hidden, candidates.mask, candidates.metric
    if centers_per_step == "all" and "geometry" not in candidates.__dict__:
        # One round ranks by the distance to CLS only: no Gram matrix is needed.
        return Ranking(top_by_score(distance_to_cls(hidden, metric), mask, k))
    geometry = candidates.geometry
    return k_center_greedy(hidden, mask, k, centers_per_step=centers_per_step, metric=metric, geometry=geometry)


summary = "greedy k-center: every dropped token has a kept one near it (the paper)"
register(Ranker("coreset", summary, _rank, knobs=("centers_per_step",)))
