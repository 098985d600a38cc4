"""Selection by received attention, as in PoWER-BERT (Goyal et al., 2020): the paper's baseline "Att".

"cls-attention" ranks by the attention of CLS only, the one token that is read in the end.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import PyramidError
from .selectors import Candidates, Counts, Ranker, Ranking, register, top_by_score


@torch.no_grad()
def received_attention(query: Tensor, key: Tensor, bias: Tensor | None, mask: Tensor | None, scaling: float) -> Tensor:
    """The attention that each token receives, summed over heads and real queries: (B, N) in fp32.

    Fused attention kernels return no attention matrix, so this computes the scores once more. It costs one of the two
    n²d products of the layer's attention again, and memory for one head's (B, N, N) matrix at a time.

    Args:
        query: (B, H, Q, D/H): the tokens that may vote, all or only the first Q.
        key: (B, H, N, D/H).
        bias: (B, 1, 1, N) added to the scores, or None.
        mask: (B, Q) bool: the queries that vote; None when all do. Pads must not.
        scaling: What scores are multiplied by.
    """
    rows, heads, n, _ = key.shape
    received = torch.zeros(rows, n, dtype=torch.float32, device=query.device)
    for head in range(heads):
        scores = (query[:, head] @ key[:, head].transpose(1, 2)).float() * scaling  # (B, Q, N)
        if bias is not None:
            scores = scores + bias[:, 0].float()
        share = scores.softmax(dim=-1)
        if mask is not None:
            share = share * mask[:, :, None]
        received += share.sum(dim=1)
    return received


def _rank(candidates: Candidates, k: Counts) -> Ranking:
    if candidates.received is None:
        raise PyramidError(
            "selection by attention needs the attention that tokens receive, and this model or placement gives none; "
            "use 'coreset', or placement='middle' on a BERT-like model"
        )
    return Ranking(top_by_score(candidates.received, candidates.mask, k))


ATTENTION = register(
    Ranker(
        "attention",
        "the tokens that receive most attention, over heads and real queries (PoWER-BERT's)",
        _rank,
        voters="all",
    )
)
CLS_ATTENTION = register(
    Ranker("cls-attention", "the tokens that CLS attends to most, over heads", _rank, voters="cls")
)
