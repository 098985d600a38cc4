"""Distances between the tokens of a row, in full precision, and the nearest kept token of each."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UnknownNameError

Metric = Literal["euclidean", "cosine"]
METRICS: tuple[str, ...] = ("euclidean", "cosine")


@torch.no_grad()
def squared_distances(hidden: Tensor, metric: Metric = "euclidean") -> Tensor:
    """The squared Euclidean distances (B, N, N) between tokens `hidden` (B, N, D), of unit vectors for "cosine".

    One Gram matrix a row, in fp32 (fp64 for fp64 input) whatever the model's dtype or autocast. Vectors are taken
    relative to CLS first: tokens of a Transformer lie close together and far from the origin, where ‖a‖² + ‖b‖² − 2ab
    would cancel, and CLS, unlike a mean, does not depend on padding.
    """
    if metric not in METRICS:
        raise UnknownNameError("metric", metric, METRICS)
    with torch.autocast(hidden.device.type, enabled=False):
        x = hidden if hidden.dtype == torch.float64 else hidden.float()
        if metric == "cosine":
            x = F.normalize(x, dim=-1)
        x = x - x[:, :1]  # (B, N, D)
        gram = x @ x.transpose(1, 2)  # (B, N, N)
        square = gram.diagonal(dim1=1, dim2=2)  # (B, N)
        norms = square[:, :, None] + square[:, None, :]
        distances = torch.sub(norms, gram, alpha=2)
        # What rounding leaves between equal vectors is not a distance: equal tokens must tie exactly.
        noise = norms.mul_(16 * torch.finfo(x.dtype).eps)
        return distances.masked_fill_(distances <= noise, 0)


def to_radius(squared: Tensor, metric: Metric) -> Tensor:
    """A squared distance as users know it: Euclidean, or 1 − cosine."""
    return squared / 2 if metric == "cosine" else squared.sqrt()


@torch.no_grad()
def nearest_kept(
    distances: Tensor, index: Tensor, kept: Tensor | None, *, skip_cls: bool = False
) -> tuple[Tensor, Tensor]:
    """The slot (B, N) of the kept token nearest to each token, and its squared distance (B, N).

    Args:
        distances: (B, N, N) from `squared_distances`.
        index: (B, K) kept positions, in position order: ties go to the earlier one.
        kept: (B, K) bool, False for slots that hold nothing; None when all do.
        skip_cls: Leave slot 0 out, so that no token is sent to CLS.
    """
    rows, n, _ = distances.shape
    to_kept = distances.gather(2, index[:, None, :].expand(rows, n, -1))  # (B, N, K)
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
