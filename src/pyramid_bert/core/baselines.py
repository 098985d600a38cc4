"""The baselines that do not look at the vectors: first k, random k, a cut of the input, and pooling of neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from .selectors import Counts, Selector, register, top_by_score


def _first(hidden: Tensor, mask: Tensor | None, k: Counts, *, generator: torch.Generator | None = None) -> Tensor:
    rows, n, _ = hidden.shape
    position = torch.arange(n, device=hidden.device, dtype=torch.float32)
    return top_by_score(-position.expand(rows, n), mask, k)


def _random(hidden: Tensor, mask: Tensor | None, k: Counts, *, generator: torch.Generator | None = None) -> Tensor:
    """Ranks tokens by a hash of (a seed from `generator`, the row's length, the position).

    Drawing a matrix of numbers would tie a row's fate to the padding and to the rows before it.
    """
    rows, n, _ = hidden.shape
    seed = 0 if generator is None else int(torch.randint(2**31, (), generator=generator))
    position = torch.arange(n, device=hidden.device).expand(rows, n)
    length = position.new_full((rows, 1), n) if mask is None else mask.sum(1, keepdim=True)
    return top_by_score(_hash32(_hash32(position + seed) + length).double(), mask, k)


def _hash32(x: Tensor) -> Tensor:
    """A well-mixed 32-bit hash of int64 values (a multiply-xorshift chain; products wrap, then are cut to 32 bits)."""
    cut = 0xFFFFFFFF
    x = (x * 0x9E3779B1 + 0x7F4A7C15) & cut
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & cut
    x = ((x ^ (x >> 12)) * 0x297A2D39) & cut
    return x ^ (x >> 15)


def pool_groups(mask: Tensor | None, rows: int, n: int, window: int, device: torch.device) -> Tensor:
    """The slot (B, N) that each token is averaged into: CLS alone in slot 0, then `window` neighbours a slot.

    Pads get -1: they are in no average.

    Example:
        >>> pool_groups(None, 1, 6, 2, torch.device("cpu")).tolist()
        [[0, 1, 1, 2, 2, 3]]
    """
    position = torch.arange(n, device=device).expand(rows, n)
    slot = (position + window - 1).div(window, rounding_mode="floor")
    return slot if mask is None else slot.masked_fill(~mask, -1)


FIRST = register(Selector("first", "the first tokens of the input", _first))
RANDOM = register(Selector("random", "random tokens; the same ones for the same seed and length", _random))
INPUT_FIRST = register(
    Selector("input-first", "the first tokens, cut once before the first layer", _first, placement="input")
)
POOL = register(Selector("pool", "the mean of neighbours in windows; takes Schedule.strided(window, at_layers)", None))
