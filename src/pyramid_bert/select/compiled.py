"""The greedy loop compiled for the CPU (numba, an optional extra). Chooses the same tokens as the torch loop.

The torch loop in `coreset` launches four small operations a centre; at batch 1 that is most of what a selection costs.
Here the loop over centres is machine code. Both read the same distances and break ties alike, so their indices are
equal; the torch loop stays the reference, the fallback, and the only one on accelerators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor


@cache
def _kernel() -> Callable[..., None] | None:
    """The compiled loop, or None when numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        return None

    minus_infinity = -float("inf")

    def choose(distances: Any, uncovered: Any, counts: Any, index: Any, squared: Any) -> None:
        rows, n = uncovered.shape
        for row in range(rows):
            left = uncovered[row]
            for rank in range(1, counts[row]):
                token = 0
                for i in range(1, n):  # the first of equal ones, as torch.max takes it
                    if left[i] > left[token]:
                        token = i
                index[row, rank] = token
                reach = distances[row, token]
                for i in range(n):
                    left[i] = min(left[i], reach[i])
                left[token] = minus_infinity
            farthest = left[0]
            for i in range(1, n):
                farthest = max(farthest, left[i])
            squared[row] = farthest

    compiled: Callable[..., None] = njit(choose, nogil=True)
    return compiled


def can_run(distances: Tensor) -> bool:
    """Whether the compiled loop can take these distances."""
    return distances.device.type == "cpu" and _kernel() is not None


def one_at_a_time(distances: Tensor, uncovered: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
    """As `coreset._one_at_a_time`, but entries of a row past its own count are 0. Overwrites `uncovered`."""
    kernel = _kernel()
    assert kernel is not None
    index = torch.zeros(len(counts), max(counts), dtype=torch.long)
    squared = torch.empty(len(counts), dtype=uncovered.dtype)
    kernel(distances.numpy(), uncovered.numpy(), torch.tensor(counts).numpy(), index.numpy(), squared.numpy())
    return index, squared
