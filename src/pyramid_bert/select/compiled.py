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

import numpy as np
import torch
from torch import Tensor

from .distance import Geometry, snap_limit

_Compiled = Callable[..., Any]
_Compiler = Callable[[_Compiled], _Compiled]


class _Kernels(NamedTuple):
    """The compiled functions: each works on some rows of the batch."""

    choose: _Compiled
    assign: _Compiled


def can_run(geometry: Geometry) -> bool:
    """Whether the compiled loops can take this geometry."""
    return geometry.grams[0].flat.device.type == "cpu" and available()


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
    for rows, gram in _parts(geometry):
        kernels.choose(*gram, *(x[rows].numpy() for x in (uncovered, count, index, squared)))
    return index, squared


def nearest_kept(geometry: Geometry, index: Tensor, kept: Tensor | None, *, skip_cls: bool) -> tuple[Tensor, Tensor]:
    """As `nearest.nearest_kept`."""
    kernels = _kernels()
    assert kernels is not None
    shape, dtype = (index.shape[0], geometry.grams[0].n), geometry.grams[0].flat.dtype
    slot, squared = torch.zeros(shape, dtype=torch.long), torch.full(shape, torch.inf, dtype=dtype)
    filled = torch.ones_like(index, dtype=torch.bool) if kept is None else kept
    first = 1 if skip_cls and index.shape[1] > 1 else 0
    for rows, gram in _parts(geometry):
        kernels.assign(*gram, first, *(x[rows].numpy() for x in (index, filled, slot, squared)))
    return slot, squared


def _parts(geometry: Geometry) -> Iterator[tuple[slice, tuple[Any, ...]]]:
    """The rows of each Gram matrix, and what the kernels need of it: strips, their height, squares, and constants."""
    done = 0
    for gram in geometry.grams:
        flat = gram.flat.numpy()
        constants = tuple(map(flat.dtype.type, (snap_limit(gram.flat.dtype), 0, -math.inf)))
        yield slice(done, done + gram.rows), (flat, gram.strip, gram.squares.numpy(), constants)
        done += gram.rows


@cache
def _kernels() -> _Kernels | None:
    """The compiled loops, or None when numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        return None
    compiled = njit(nogil=True)
    products = _products(compiled)
    return _Kernels(_choose(compiled, products), _assign(compiled, products))


def _products(compiled: _Compiler) -> _Compiled:
    @compiled
    def products(flat: Any, strip: int, row: int, rows: int, token: int, line: Any) -> Any:
        """The inner products of a token with all others: a part of `flat`, or put together in `line`."""
        n = line.shape[0]
        done = start = 0
        while True:
            height, width = min(strip, n - start), n - start
            base = done + row * height * width
            if token < start + height:
                own = base + (token - start) * width
                if start == 0:
                    return flat[own : own + width]
                line[start:] = flat[own : own + width]
                return line
            for i in range(height):  # down a column of an earlier strip
                line[start + i] = flat[base + i * width + token - start]
            done += rows * height * width
            start += strip

    return products


def _choose(compiled: _Compiler, products: _Compiled) -> _Compiled:
    @compiled
    def choose(
        flat: Any, strip: int, square: Any, constants: Any, uncovered: Any, counts: Any, index: Any, out: Any
    ) -> None:
        noise, zero, minus_infinity = constants
        rows, n = uncovered.shape
        line = np.empty(n, flat.dtype)
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
                own, inner = norm[token], products(flat, strip, row, rows, token, line)
                for i in range(n):
                    norms = own + norm[i]
                    distance = norms - (inner[i] + inner[i])
                    distance = zero if distance <= norms * noise else distance
                    left[i] = distance if distance < left[i] else left[i]
                farthest = minus_infinity
                for i in range(n):
                    farthest = left[i] if left[i] > farthest else farthest
            out[row] = farthest

    return choose


def _assign(compiled: _Compiler, products: _Compiled) -> _Compiled:
    @compiled
    def assign(
        flat: Any, strip: int, square: Any, constants: Any, first: int, index: Any, kept: Any, slot: Any, squared: Any
    ) -> None:
        noise, zero, _ = constants
        rows, slots = index.shape
        n = slot.shape[1]
        line = np.empty(n, flat.dtype)
        for row in range(rows):
            norm, nearest, home = square[row], squared[row], slot[row]
            for s in range(first, slots):
                if not kept[row, s]:
                    continue
                token = index[row, s]
                own, inner = norm[token], products(flat, strip, row, rows, token, line)
                for i in range(n):
                    norms = norm[i] + own
                    distance = norms - (inner[i] + inner[i])
                    distance = zero if distance <= norms * noise else distance
                    if distance < nearest[i]:  # the earlier of equal ones
                        nearest[i] = distance
                        home[i] = s
            for s in range(slots):  # a kept token is its own nearest, also when an equal one stands before it
                if kept[row, s]:
                    home[index[row, s]] = s
                    nearest[index[row, s]] = zero

    return assign
