"""The loops over tokens compiled for the CPU (numba, an optional extra). They choose the same tokens as the torch ones.

The torch loop in `coreset` launches four small operations a centre; at batch 1 that is most of what a selection costs.
Here the loop over centres is machine code, and reads distances out of the Gram matrix as it needs them. Arithmetic and
ties are the torch code's own, so the results are equal bit for bit; the torch code stays the reference, the fallback,
and the only one on accelerators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .distance import Geometry, snap_limit


class _Kernels(NamedTuple):
    """The compiled functions: each works on some rows of the batch."""

    choose: Callable[..., None]
    assign: Callable[..., None]


def can_run(geometry: Geometry) -> bool:
    """Whether the compiled loops can take this geometry."""
    return geometry.grams[0].device.type == "cpu" and available()


def available() -> bool:
    """Whether numba is installed."""
    return _kernels() is not None


def one_at_a_time(geometry: Geometry, uncovered: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
    """As `coreset._one_at_a_time`, but entries of a row past its own count are 0. Overwrites `uncovered`."""
    kernels = _kernels()
    assert kernels is not None
    index = torch.zeros(len(counts), max(counts), dtype=torch.long)
    squared = torch.empty(len(counts), dtype=uncovered.dtype)
    count = torch.tensor(counts)
    for rows, gram, square, constants in _parts(geometry):
        of_rows = (x[rows].numpy() for x in (uncovered, count, index, squared))
        kernels.choose(gram, square, *constants, *of_rows)
    return index, squared


def nearest_kept(geometry: Geometry, index: Tensor, kept: Tensor | None, *, skip_cls: bool) -> tuple[Tensor, Tensor]:
    """As `nearest.nearest_kept`."""
    kernels = _kernels()
    assert kernels is not None
    shape, dtype = (index.shape[0], geometry.grams[0].shape[1]), geometry.grams[0].dtype
    slot, squared = torch.zeros(shape, dtype=torch.long), torch.full(shape, torch.inf, dtype=dtype)
    filled = torch.ones_like(index, dtype=torch.bool) if kept is None else kept
    first = 1 if skip_cls and index.shape[1] > 1 else 0
    for rows, gram, square, constants in _parts(geometry):
        of_rows = (x[rows].numpy() for x in (index, filled, slot, squared))
        kernels.assign(gram, square, *constants, first, *of_rows)
    return slot, squared


def _parts(geometry: Geometry) -> Iterator[tuple[slice, Any, Any, tuple[Any, Any]]]:
    """The rows of each Gram matrix, it and its diagonal as arrays, and (what is noise, zero) in their own precision."""
    done = 0
    for gram, square in zip(geometry.grams, geometry.squares, strict=True):
        array = gram.numpy()
        number = array.dtype.type
        yield slice(done, done + len(gram)), array, square.numpy(), (number(snap_limit(gram.dtype)), number(0))
        done += len(gram)


@cache
def _kernels() -> _Kernels | None:
    """The compiled loops, or None when numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        return None

    minus_infinity = -float("inf")

    def choose(
        gram: Any, square: Any, noise: Any, zero: Any, uncovered: Any, counts: Any, index: Any, out: Any
    ) -> None:
        rows, n = uncovered.shape
        for row in range(rows):
            left = uncovered[row]
            for rank in range(1, counts[row]):
                token = 0
                for i in range(1, n):  # the first of equal ones, as torch.max takes it
                    if left[i] > left[token]:
                        token = i
                index[row, rank] = token
                own, inner = square[row, token], gram[row, token]
                for i in range(n):
                    norms = own + square[row, i]
                    distance = norms - (inner[i] + inner[i])
                    if distance <= norms * noise:
                        distance = zero
                    left[i] = min(left[i], distance)
                left[token] = minus_infinity
            farthest = left[0]
            for i in range(1, n):
                farthest = max(farthest, left[i])
            out[row] = farthest

    def assign(
        gram: Any, square: Any, noise: Any, zero: Any, first: int, index: Any, kept: Any, slot: Any, squared: Any
    ) -> None:
        rows, slots = index.shape
        n = slot.shape[1]
        for row in range(rows):
            for i in range(n):
                inner = gram[row, i]
                for s in range(first, slots):  # the earlier of equal ones
                    token = index[row, s]
                    norms = square[row, i] + square[row, token]
                    distance = norms - (inner[token] + inner[token])
                    if distance <= norms * noise:
                        distance = zero
                    if kept[row, s] and distance < squared[row, i]:
                        squared[row, i] = distance
                        slot[row, i] = s
            for s in range(slots):  # a kept token is its own nearest, also when an equal one stands before it
                if kept[row, s]:
                    slot[row, index[row, s]] = s
                    squared[row, index[row, s]] = zero

    return _Kernels(njit(choose, nogil=True), njit(assign, nogil=True))
