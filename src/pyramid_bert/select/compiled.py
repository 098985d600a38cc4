"""The loops over tokens compiled for the CPU (numba, an optional extra). They choose the same tokens as the torch ones.

The torch loop in `coreset` launches four small operations a centre; at batch 1 that is most of what a selection costs.
Here the loop over centres is machine code, and reads distances out of the Gram matrix as it needs them. Arithmetic and
ties are the torch code's own, so the results are equal bit for bit; the torch code stays the reference, the fallback,
and the only one on accelerators.
"""

from __future__ import annotations

import math
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
    for rows, gram, square, numbers in _parts(geometry):
        of_rows = (x[rows].numpy() for x in (uncovered, count, index, squared))
        kernels.choose(gram, square, numbers, *of_rows)
    return index, squared


def nearest_kept(geometry: Geometry, index: Tensor, kept: Tensor | None, *, skip_cls: bool) -> tuple[Tensor, Tensor]:
    """As `nearest.nearest_kept`."""
    kernels = _kernels()
    assert kernels is not None
    shape, dtype = (index.shape[0], geometry.grams[0].shape[1]), geometry.grams[0].dtype
    slot, squared = torch.zeros(shape, dtype=torch.long), torch.full(shape, torch.inf, dtype=dtype)
    filled = torch.ones_like(index, dtype=torch.bool) if kept is None else kept
    first = 1 if skip_cls and index.shape[1] > 1 else 0
    for rows, gram, square, numbers in _parts(geometry):
        of_rows = (x[rows].numpy() for x in (index, filled, slot, squared))
        kernels.assign(gram, square, numbers, first, *of_rows)
    return slot, squared


def _parts(geometry: Geometry) -> Iterator[tuple[slice, Any, Any, tuple[Any, Any, Any]]]:
    """The rows of each Gram matrix, it and its diagonal as arrays, and (noise, 0, -infinity) in their precision."""
    done = 0
    for gram, square in zip(geometry.grams, geometry.squares, strict=True):
        array = gram.numpy()
        noise, zero, minus_infinity = map(array.dtype.type, (snap_limit(gram.dtype), 0, -math.inf))
        yield slice(done, done + len(gram)), array, square.numpy(), (noise, zero, minus_infinity)
        done += len(gram)


@cache
def _kernels() -> _Kernels | None:
    """The compiled loops, or None when numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        return None

    def choose(gram: Any, square: Any, numbers: Any, uncovered: Any, counts: Any, index: Any, out: Any) -> None:
        noise, zero, minus_infinity = numbers
        rows, n = uncovered.shape
        for row in range(rows):
            left, norm = uncovered[row], square[row]
            farthest = minus_infinity
            for i in range(n):
                farthest = left[i] if left[i] > farthest else farthest
            for rank in range(1, counts[row]):
                token = 0
                while left[token] < farthest and token < n - 1:  # the first of equal ones, as torch.max takes it
                    token += 1
                index[row, rank] = token
                left[token] = minus_infinity
                own, inner = norm[token], gram[row, token]
                for i in range(n):
                    norms = own + norm[i]
                    distance = norms - (inner[i] + inner[i])
                    distance = zero if distance <= norms * noise else distance
                    left[i] = distance if distance < left[i] else left[i]
                farthest = minus_infinity
                for i in range(n):
                    farthest = left[i] if left[i] > farthest else farthest
            out[row] = farthest

    def assign(
        gram: Any, square: Any, numbers: Any, first: int, index: Any, kept: Any, slot: Any, squared: Any
    ) -> None:
        noise, zero, _ = numbers
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
