"""How many tokens of a ranking are enough: the shortest of a few prefixes whose covering radius is small enough."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .distances import Geometry, Metric, to_radius
from .nearest import nearest_kept


@torch.no_grad()
def shortest_cover(
    geometry: Geometry,
    ranked: Tensor,
    mask: Tensor | None,
    options: Sequence[Sequence[int]],
    limit: Tensor,
    *,
    metric: Metric = "euclidean",
) -> tuple[list[int], Tensor]:
    """The fewest tokens of each row, among its options, that cover the row within `limit`; and their radius (B,).

    Reads the numbers back from the device, once.

    Args:
        geometry: Of the tokens.
        ranked: (B, R) positions in rank order, as a selector gives them.
        mask: (B, N) bool, True for real tokens, which alone need cover; None when all are.
        options: For each row equally many numbers, ascending, the last of which is taken when no other is enough.
        limit: (B,) the largest radius allowed.
        metric: As in `k_center_greedy`.

    Example:
        >>> tokens = torch.tensor([[[0.0], [1.0], [9.0], [10.0]]])
        >>> geometry, ranked = Geometry.of(tokens), torch.tensor([[0, 3, 1, 2]])
        >>> keep, radius = shortest_cover(geometry, ranked, None, [(1, 2, 3, 4)], torch.tensor([1.0]))
        >>> keep, radius.tolist()
        ([2], [1.0])
    """
    last = ranked.shape[1] - 1
    counts = torch.tensor(options, device=ranked.device)  # (B, S)
    start = torch.zeros_like(counts[:, :1])  # (B, 1)
    reach: Tensor | None = None  # (B, N) squared distance to the nearest of the tokens taken so far
    radii, before = [], [0] * len(options)
    for step in range(counts.shape[1]):
        end = counts[:, step : step + 1]
        widest = max(row[step] - done for row, done in zip(options, before, strict=True))
        if widest > 0 or reach is None:
            place = start + torch.arange(max(widest, 1), device=ranked.device)  # (B, W)
            _, squared = nearest_kept(geometry, ranked.gather(1, place.clamp(max=last)), place < end)
            if mask is not None:
                squared = squared.masked_fill(~mask, 0)
            reach = squared if reach is None else torch.minimum(reach, squared)
        radii.append(to_radius(reach.amax(dim=1), metric))
        start, before = end, [row[step] for row in options]
    radius = torch.stack(radii, dim=1)  # (B, S)
    enough = radius <= limit[:, None]
    enough[:, -1] = True
    chosen = enough.long().argmax(dim=1, keepdim=True)  # the first that is enough
    return counts.gather(1, chosen)[:, 0].tolist(), radius.gather(1, chosen)[:, 0]
