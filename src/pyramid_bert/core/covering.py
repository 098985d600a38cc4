"""Covering: the nearest kept token of each token, and the fewest tokens that cover a row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from . import compiled
from .distances import Geometry


@torch.no_grad()
def nearest_kept(
    geometry: Geometry, index: Tensor, kept: Tensor | None, *, skip_cls: bool = False
) -> tuple[Tensor, Tensor]:
    """The slot (B, N) of the kept token nearest to each token, and its squared distance (B, N).

    Args:
        geometry: Distances between the tokens.
        index: (B, K) kept positions, in position order: ties go to the earlier one.
        kept: (B, K) bool, False for empty slots; None when all are filled.
        skip_cls: Leave slot 0 out, so that no other token goes to CLS.
    """
    if compiled.can_run(geometry):
        return compiled.nearest_kept(geometry, index, kept, skip_cls=skip_cls)
    distances = geometry.distances
    rows, n, _ = distances.shape
    to_kept = distances.gather(1, index[:, :, None].expand(rows, -1, n)).transpose(1, 2)  # (B, N, K)
    if kept is not None:
        to_kept = to_kept.masked_fill(~kept[:, None, :], torch.inf)
    if skip_cls and index.shape[1] > 1:
        to_kept[:, :, 0] = torch.inf
    squared, slot = to_kept.min(dim=2)
    # A kept token is its own nearest, even when an equal one stands before it or CLS was left out.
    own = torch.arange(index.shape[1], device=index.device).expand_as(index)
    if kept is not None:  # empty slots write to a column that is cut off again
        index = index.masked_fill(~kept, n)
    pad = (0, 1)
    slot = F.pad(slot, pad).scatter(1, index, own)[:, :n]
    squared = F.pad(squared, pad).scatter(1, index, torch.zeros_like(index, dtype=squared.dtype))[:, :n]
    return slot, squared


@torch.no_grad()
def shortest_cover(
    geometry: Geometry,
    ranked: Tensor,
    mask: Tensor | None,
    options: Sequence[Sequence[int]],
    limit: Tensor,
) -> tuple[list[int], Tensor]:
    """The fewest tokens of each row, among its options, that cover the row within `limit`; and their radius (B,).

    Reads the numbers back from the device, once.

    Args:
        geometry: Distances between the tokens.
        ranked: (B, R) positions in rank order, as a selector gives them.
        mask: (B, N) bool, True for real tokens; pads need no cover. None when all are real.
        options: For each row the same number of options, ascending. The last is taken when no other covers.
        limit: (B,) the largest radius allowed.

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
        radii.append(geometry.radius(reach.amax(dim=1)))
        start, before = end, [row[step] for row in options]
    radius = torch.stack(radii, dim=1)  # (B, S)
    enough = radius <= limit[:, None]
    enough[:, -1] = True
    chosen = enough.long().argmax(dim=1, keepdim=True)  # the first that is enough
    return counts.gather(1, chosen)[:, 0].tolist(), radius.gather(1, chosen)[:, 0]
