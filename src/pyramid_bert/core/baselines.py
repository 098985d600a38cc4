"""The published baselines: first k, random k, a cut of the input, pooling of neighbours, and received attention.

"attention" is PoWER-BERT's selection (Goyal et al., 2020), the paper's baseline "Att". "cls-attention" counts only the
attention of CLS, the one token that a classifier reads.
"""

from __future__ import annotations

import numpy as np

from ..errors import PyramidError
from . import arrays
from .arrays import Array
from .selectors import Candidates, Counts, Grouper, Ranker, Ranking, register, top_by_score


def _first(candidates: Candidates, k: Counts) -> Ranking:
    rows, n, _ = candidates.hidden.shape
    score = arrays.repeated(-1.0 * arrays.positions(n, candidates.hidden), rows)
    return Ranking(top_by_score(score, candidates.mask, k))


def _random(candidates: Candidates, k: Counts) -> Ranking:
    """Ranks tokens by a hash of (a drawn number, the row's length, the position).

    Drawing a matrix of numbers would let padding and the rows before it change a row's choice.
    """
    position = arrays.positions(candidates.hidden.shape[1], candidates.hidden)
    length = candidates.real.sum(1)[:, None]
    score = arrays.as_fp64(_hash32(_hash32(position + candidates.drawn) + length))
    return Ranking(top_by_score(score, candidates.mask, k))


def drawn_by(seed: int) -> int:
    """A number below 2³¹ drawn by a seed: the one that torch's generator gives."""
    return int(np.random.RandomState(seed % 2**32).randint(0, 2**32, 2, dtype=np.uint32)[1] % 2**31)


def _hash32(x: Array) -> Array:
    """A well-mixed 32-bit hash of int64 values (a multiply-xorshift chain; products wrap, then are cut to 32 bits)."""
    cut = 0xFFFFFFFF
    x = (x * 0x9E3779B1 + 0x7F4A7C15) & cut
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & cut
    x = ((x ^ (x >> 12)) * 0x297A2D39) & cut
    return x ^ (x >> 15)


def pool_groups(candidates: Candidates, k: Counts, *, window: int) -> Array:
    """The slot (B, N) that each token is averaged into: CLS in slot 0, then `window` neighbours a slot.

    The number of slots follows from the window, so `k` is not used. Pads get -1: they are in no average.

    Example:
        >>> pool_groups(Candidates(np.zeros((1, 6, 2))), 4, window=2).tolist()
        [[0, 1, 1, 2, 2, 3]]
    """
    rows, n, _ = candidates.hidden.shape
    slot = (arrays.repeated(arrays.positions(n, candidates.hidden), rows) + window - 1) // window
    return slot if candidates.mask is None else arrays.masked(slot, ~candidates.mask, -1)


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
