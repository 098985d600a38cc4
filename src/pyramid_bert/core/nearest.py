"""Which of the kept tokens each token is nearest to."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import kernels as compiled
from .distances import Geometry


@torch.no_grad()
def nearest_kept(
    geometry: Geometry, index: Tensor, kept: Tensor | None, *, skip_cls: bool = False
) -> tuple[Tensor, Tensor]:
    """The slot (B, N) of the kept token nearest to each token, and its squared distance (B, N).

    Args:
        geometry: Of the tokens.
        index: (B, K) kept positions, in position order: ties go to the earlier one.
        kept: (B, K) bool, False for slots that hold nothing; None when all do.
        skip_cls: Leave slot 0 out, so that no token is sent to CLS.
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
    # A kept token is its own nearest, also when an equal one stands before it or when CLS was left out.
    own = torch.arange(index.shape[1], device=index.device).expand_as(index)
    if kept is not None:  # empty slots write to a column that is cut off again
        index = index.masked_fill(~kept, n)
    pad = (0, 1)
    slot = F.pad(slot, pad).scatter(1, index, own)[:, :n]
    squared = F.pad(squared, pad).scatter(1, index, torch.zeros_like(index, dtype=squared.dtype))[:, :n]
    return slot, squared
