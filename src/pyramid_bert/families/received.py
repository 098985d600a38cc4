"""The attention that tokens receive, which the selectors "attention" and "cls-attention" rank by."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def received_attention(query: Tensor, key: Tensor, bias: Tensor | None, mask: Tensor | None, scaling: float) -> Tensor:
    """The attention that each token receives, summed over heads and real queries: (B, N) in fp32.

    Fused attention kernels return no attention matrix, so this computes the scores a second time: one more n²d product
    per layer, and memory for one head's (B, N, N) matrix at a time.

    Args:
        query: (B, H, Q, D/H): the tokens that may vote, all or only the first Q.
        key: (B, H, N, D/H).
        bias: (B, 1 or H, 1 or Q, N) added to the scores, or None.
        mask: (B, Q) bool: the queries that vote; None when all do. Pads must not.
        scaling: What scores are multiplied by.
    """
    rows, heads, n, _ = key.shape
    received = torch.zeros(rows, n, dtype=torch.float32, device=query.device)
    for head in range(heads):
        scores = (query[:, head] @ key[:, head].transpose(1, 2)).float() * scaling  # (B, Q, N)
        if bias is not None:
            scores = scores + bias[:, head if bias.shape[1] > 1 else 0].float()
        share = scores.softmax(dim=-1)
        if mask is not None:
            share = share * mask[:, :, None]
        received += share.sum(dim=1)
    return received
