"""The published baselines: first k, random k, a cut of the input, pooling of neighbours, and received attention.

"attention" is PoWER-BERT's selection (Goyal et al., 2020), the paper's baseline "Att". "cls-attention" counts only the
attention of CLS, the one token that a classifier reads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import PyramidError
from .selectors import Candidates, Counts, Grouper, Ranker, Ranking, register, top_by_score


def _first(candidates: Candidates, k: Counts) -> Ranking:
    rows, n, _ = candidates.hidden.shape
    position = torch.arange(n, device=candidates.hidden.device, dtype=torch.float32)
    return Ranking(top_by_score(-position.expand(rows, n), candidates.mask, k))


def _random(candidates: Candidates, k: Counts) -> Ranking:
    """Ranks tokens by a hash of (a drawn number, the row's length, the position).

    Drawing a matrix of numbers would let padding and the rows before it change a row's choice.
    """
    rows, n, _ = candidates.hidden.shape
    generator = candidates.generator
    drawn = 0 if generator is None else int(torch.randint(2**31, (), generator=generator))
    position = torch.arange(n, device=candidates.hidden.device).expand(rows, n)
    length = candidates.real.sum(1, keepdim=True)
    return Ranking(top_by_score(_hash32(_hash32(position + drawn) + length).double(), candidates.mask, k))


def _hash32(x: Tensor) -> Tensor:
    """A well-mixed 32-bit hash of int64 values (a multiply-xorshift chain; products wrap, then are cut to 32 bits)."""
    cut = 0xFFFFFFFF
    x = (x * 0x9E3779B1 + 0x7F4A7C15) & cut
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & cut
    x = ((x ^ (x >> 12)) * 0x297A2D39) & cut
    return x ^ (x >> 15)


def pool_groups(candidates: Candidates, k: Counts, *, window: int) -> Tensor:
    """The slot (B, N) that each token is averaged into: CLS in slot 0, then `window` neighbours a slot.

    The number of slots follows from the window, so `k` is not used. Pads get -1: they are in no average.

    Example:
        >>> pool_groups(Candidates(torch.zeros(1, 6, 2)), 4, window=2).tolist()
        [[0, 1, 1, 2, 2, 3]]
    """
    rows, n, _ = candidates.hidden.shape
    position = torch.arange(n, device=candidates.hidden.device).expand(rows, n)
    slot = (position + window - 1).div(window, rounding_mode="floor")
    return slot if candidates.mask is None else slot.masked_fill(~candidates.mask, -1)


@torch.no_grad()
def received_attention(query: Tensor, key: Tensor, bias: Tensor | None, mask: Tensor | None, scaling: float) -> Tensor:
    """The attention that each token receives, summed over heads and real queries: (B, N) in fp32.

    Fused attention kernels return no attention matrix, so this computes the scores a second time: one more n²d product
    per layer, and memory for one head's (B, N, N) matrix at a time.

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


def _most_attended(candidates: Candidates, k: Counts) -> Ranking:
    if candidates.received is None:
        raise PyramidError(
            "selection by attention needs the attention that tokens receive, and this model or placement gives none; "
            "use 'coreset', or placement='middle' on a BERT-like model"
        )
    return Ranking(top_by_score(candidates.received, candidates.mask, k))


register(Ranker("first", "the first tokens of the input", _first))
register(Ranker("random", "random tokens; the same ones for the same seed and length", _random, draws=True))
register(Ranker("input-first", "the first tokens, cut once before the first layer", _first, placement="input"))
summary = "the tokens that receive most attention, over heads and real queries (PoWER-BERT's)"
register(Ranker("attention", summary, _most_attended, voters="all"))
register(Ranker("cls-attention", "the tokens that CLS attends to most, over heads", _most_attended, voters="cls"))
summary = "the mean of neighbours in windows; takes Schedule.strided(window, at_layers)"
register(Grouper("pool", summary, pool_groups, knobs=("window",), weighs=False))
