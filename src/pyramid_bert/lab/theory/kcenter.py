"""The covering radius of greedy k-center, with one or several centres per step, against the optimum.

The optimum (k-center is NP-hard) is found by exhaustive search on small sets: a binary search over the possible radii,
where each test tries, for an uncovered point, every centre that could cover it. The classical greedy algorithm (m = 1)
is within a factor of 2 of the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...core.coreset import CentersPerStep, k_center_greedy
from ...errors import PyramidError

LARGEST = 32  # points for exhaustive search
STEPS: tuple[CentersPerStep, ...] = (1, 0.1, 0.4, "all")


def covering_radius(points: Tensor, centres: Sequence[int]) -> float:
    """The largest distance from one of `points` (N, D) to the nearest of the points numbered `centres`.

    Example:
        >>> import torch
        >>> covering_radius(torch.tensor([[0.0], [1.0], [9.0], [10.0]]), [0, 3])
        1.0
    """
    return float(_distances(points)[:, list(centres)].amin(dim=1).max())


def optimal_radius(points: Tensor, k: int, *, keep_first: bool = True) -> float:
    """The least covering radius of `points` (N, D) by k of them.

    Args:
        points: At most 32 points.
        k: Centres.
        keep_first: Only sets with the first point (CLS), as every selection has.

    Example:
        >>> import torch
        >>> line = torch.tensor([[0.0], [1.0], [2.0], [10.0]])
        >>> optimal_radius(line, 2), optimal_radius(line, 2, keep_first=False)
        (2.0, 1.0)
    """
    n = len(points)
    if not 1 <= k <= n <= LARGEST:
        raise PyramidError(f"exhaustive search takes 1 to {LARGEST} points and 1 <= k <= points, got {n} and k={k}")
    distances = _distances(points)
    candidates = sorted({0.0, *distances.flatten().tolist()})
    low, high = 0, len(candidates) - 1  # the last always covers
    while low < high:
        middle = (low + high) // 2
        if _covers(distances <= candidates[middle], k, keep_first):
            high = middle
        else:
            low = middle + 1
    return float(candidates[low])


def price_of_parallelism(points: Tensor, k: int, steps: Sequence[CentersPerStep] = STEPS) -> dict[str, Any]:
    """The covering radius of k of `points` (N, D), CLS first: the optimum, and greedy with m centres at a time.

    Returns "optimum" (of sets with CLS), "free_optimum" (of all sets), and "radius" by m.

    Example:
        >>> import torch
        >>> found = price_of_parallelism(torch.tensor([[0.0], [8.0], [9.0], [-6.0], [10.0]]), 3)
        >>> found["optimum"], found["radius"]
        (1.0, {'1': 2.0, '0.1': 2.0, '0.4': 6.0, 'all': 6.0})
    """
    radius = {}
    for m in steps:
        chosen = k_center_greedy(points[None], None, k, centers_per_step=m).indices[0].tolist()
        radius[str(m)] = covering_radius(points, chosen)
    return {
        "n": len(points),
        "k": k,
        "optimum": optimal_radius(points, k),
        "free_optimum": optimal_radius(points, k, keep_first=False),
        "radius": radius,
    }


def _distances(points: Tensor) -> Tensor:
    """(N, N) in double precision, from differences: exact where points are equal."""
    x = points.double()
    distances: Tensor = (x[:, None] - x[None]).norm(dim=2)
    return distances


def _covers(near: Tensor, k: int, keep_first: bool) -> bool:
    """Whether k centres cover all points, given which points (N, N) are near enough to which."""
    reach = [sum(1 << i for i, yes in enumerate(row) if yes) for row in near.tolist()]  # bit i: covers point i
    everything = (1 << len(reach)) - 1

    def search(covered: int, left: int) -> bool:
        missing = everything & ~covered
        if not missing:
            return True
        if not left or max((mask & missing).bit_count() for mask in reach) * left < missing.bit_count():
            return False
        open_points = [i for i in range(len(reach)) if missing >> i & 1]
        point = min(open_points, key=lambda i: reach[i].bit_count())  # with the fewest centres to try
        centres = sorted(
            (c for c in range(len(reach)) if reach[point] >> c & 1), key=lambda c: -(reach[c] & missing).bit_count()
        )
        return any(search(covered | reach[c], left - 1) for c in centres)

    return search(reach[0], k - 1) if keep_first else search(0, k)
