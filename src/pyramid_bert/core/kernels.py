"""The loops over tokens compiled for the CPU (numba, an optional extra). They choose the same tokens as the torch ones.

The torch loop in `coreset` launches four small operations a centre; at batch 1 that is most of what a selection costs.
Here the loop over centres is machine code, and reads distances out of the Gram matrix (or the tables of `summed`) as it
needs them. Arithmetic and ties are the torch code's own, so for a Gram matrix the results are equal bit for bit; the
torch code stays the reference, the fallback, and the only one on accelerators.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .distances import Geometry, snap_limit

_Compiled = Callable[..., Any]
_Compiler = Callable[[_Compiled], _Compiled]

# Tokens are taken side by side in so many lanes, each with a maximum of its own, so that processors can as well.
_LANES = 64
# Below so many distances, about a millisecond, other threads are not worth waking.
_WORTH_THREADS = 1 << 20


class _Kernels(NamedTuple):
    """The compiled functions: each works on some rows of the batch."""

    choose: _Compiled
    choose_many: _Compiled
    assign: _Compiled


def can_run(geometry: Geometry) -> bool:
    """Whether the compiled loops can take this geometry."""
    return geometry.grams[0].squares.device.type == "cpu" and available()


def available() -> bool:
    """Whether numba is installed."""
    return _compiler() is not None


def greedy(geometry: Geometry, uncovered: Tensor, counts: list[int], steps: list[int]) -> tuple[Tensor, Tensor]:
    """As `coreset._one_at_a_time` and `coreset._in_batches`, but entries of a row past its own count are 0.

    Overwrites `uncovered`.
    """
    index = torch.zeros(len(counts), max(counts), dtype=torch.long)
    squared = torch.empty(len(counts), dtype=uncovered.dtype)
    numbers = torch.tensor([counts, steps]).T.contiguous()  # (B, 2)
    arrays = [x.numpy() for x in (uncovered, numbers, index, squared)]
    one = all(step == 1 for step in steps)
    calls = [
        partial(kernels.choose if one else kernels.choose_many, *products, *(x[rows] for x in arrays))
        for kernels, rows, products in _parts(geometry)
    ]
    _run(calls, distances=uncovered.shape[1] * sum(counts))
    return index, squared


def nearest_kept(geometry: Geometry, index: Tensor, kept: Tensor | None, *, skip_cls: bool) -> tuple[Tensor, Tensor]:
    """As `nearest.nearest_kept`."""
    squares = geometry.grams[0].squares
    shape, dtype = (index.shape[0], squares.shape[1]), squares.dtype
    slot, squared = torch.zeros(shape, dtype=torch.long), torch.full(shape, torch.inf, dtype=dtype)
    filled = torch.ones_like(index, dtype=torch.bool) if kept is None else kept
    first = 1 if skip_cls and index.shape[1] > 1 else 0
    arrays = [x.numpy() for x in (index, filled, slot, squared)]
    calls = [
        partial(kernels.assign, *products, first, *(x[rows] for x in arrays))
        for kernels, rows, products in _parts(geometry)
    ]
    _run(calls, distances=slot.numel() * index.shape[1])
    return slot, squared


def _run(calls: list[partial[None]], *, distances: int) -> None:
    """Makes the calls: in as many threads as torch takes, if there are enough distances to compute."""
    threads = min(torch.get_num_threads(), len(calls))
    if threads > 1 and distances >= _WORTH_THREADS:
        list(_threads(threads).map(lambda call: call(), calls))
    else:
        for call in calls:
            call()


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="pyramid-bert")


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads stay behind in the parent


def _parts(geometry: Geometry) -> Iterator[tuple[_Kernels, slice, tuple[Any, ...]]]:
    """The kernels for some rows, which rows, and what they need of them: a source, squares and constants."""
    done = 0
    for gram in geometry.grams:
        square = gram.squares.numpy()
        constants = tuple(map(square.dtype.type, (snap_limit(gram.squares.dtype), 0, -math.inf)))
        yield _kernels(gram.kind), slice(done, done + gram.rows), (gram.source, square, constants)
        done += gram.rows


@cache
def _compiler() -> _Compiler | None:
    """What compiles a function, or None when numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        return None
    compiled: _Compiler = njit(nogil=True)
    return compiled


@cache
def _kernels(kind: Literal["gram", "sums"]) -> _Kernels:
    """The loops over products from a source of this kind."""
    compiler = _compiler()
    assert compiler is not None
    products = {"gram": _gram_products, "sums": _sums_products}[kind](compiler)
    cover = _cover(compiler)
    return _Kernels(
        _choose(compiler, products, cover), _choose_many(compiler, products, cover), _assign(compiler, products)
    )


def _gram_products(compiled: _Compiler) -> _Compiled:
    @compiled
    def products(source: Any, row: int, token: int, line: Any) -> Any:
        """The inner products of a token with all others: a part of `flat`, or put together in `line`."""
        flat, strip, rows = source
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


def _sums_products(compiled: _Compiler) -> _Compiled:
    @compiled
    def products(source: Any, row: int, token: int, line: Any) -> Any:
        """As above, out of the tables of `summed.Sums`."""
        ids, of_values, crossed, by_value, of_positions, scale = source
        own, value, scales = ids[row], ids[row, token], scale[row]
        with_values = of_values[value] + crossed[token]  # (V,): its value's and its position's product with each value
        first, second, factor = by_value[value], of_positions[token], scales[token]  # and with each position
        for i in range(line.shape[0]):
            line[i] = with_values[own[i]]
        for i in range(line.shape[0]):
            line[i] = (line[i] + (first[i] + second[i])) * (factor * scales[i])
        return line

    return products


def _choose(compiled: _Compiler, products: _Compiled, cover: _Compiled) -> _Compiled:
    first_of = _first_of(compiled)

    @compiled
    def choose(source: Any, square: Any, constants: Any, uncovered: Any, numbers: Any, index: Any, out: Any) -> None:
        """One centre at a time: the maximum that the next one is chosen by is found while distances are updated."""
        minus_infinity = constants[2]
        rows, n = uncovered.shape
        line, top = np.empty(n, square.dtype), np.empty(min(n, _LANES), square.dtype)
        for row in range(rows):
            left, norm = uncovered[row], square[row]
            top[:] = minus_infinity
            for i in range(n):
                top[i % _LANES] = max(top[i % _LANES], left[i])
            for rank in range(1, numbers[row, 0]):
                token = first_of(left, top)
                index[row, rank] = token
                left[token] = minus_infinity
                cover(left, norm, products(source, row, token, line), norm[token], constants, top)
            out[row] = top.max()

    return choose


def _choose_many(compiled: _Compiler, products: _Compiled, cover: _Compiled) -> _Compiled:
    @compiled
    def choose_many(
        source: Any, square: Any, constants: Any, uncovered: Any, numbers: Any, index: Any, out: Any
    ) -> None:
        """Several centres at a time, each row with its own number of them: a sort a round."""
        minus_infinity = constants[2]
        rows, n = uncovered.shape
        line, top = np.empty(n, square.dtype), np.empty(min(n, _LANES), square.dtype)
        for row in range(rows):
            left, norm = uncovered[row], square[row]
            count, step = numbers[row]
            for taken in range(1, count, step):
                farthest = np.argsort(-left, kind="mergesort")[: min(step, count - taken)]  # the first of equal ones
                index[row, taken : taken + len(farthest)] = farthest
                left[farthest] = minus_infinity
                for token in farthest:
                    cover(left, norm, products(source, row, token, line), norm[token], constants, top)
            out[row] = left.max()

    return choose_many


def _first_of(compiled: _Compiler) -> _Compiled:
    @compiled
    def first_of(left: Any, top: Any) -> Any:
        """The first token that is as far as any, as torch.max takes it; `top` has the maximum of each lane."""
        farthest, lanes, n = top.max(), top.shape[0], left.shape[0]
        first = n
        for lane in range(lanes):
            if top[lane] == farthest:
                token = lane
                while token < first and left[token] < farthest:
                    token += lanes
                first = min(first, token)
        return min(first, n - 1)

    return first_of


def _cover(compiled: _Compiler) -> _Compiled:
    @compiled
    def cover(left: Any, norm: Any, inner: Any, own: Any, constants: Any, top: Any) -> None:
        """Brings `left`, squared distances to the nearest centre, up to date with one more; `top` is made anew."""
        noise, zero, minus_infinity = constants
        lanes, n = top.shape[0], left.shape[0]
        top[:] = minus_infinity
        for start in range(0, n, lanes):
            part, norms, products = (
                left[start : start + lanes],
                norm[start : start + lanes],
                inner[start : start + lanes],
            )
            for i in range(part.shape[0]):
                both = own + norms[i]
                distance = both - (products[i] + products[i])
                distance = zero if distance <= both * noise else distance
                nearer = distance if distance < part[i] else part[i]
                part[i] = nearer
                top[i] = nearer if nearer > top[i] else top[i]

    return cover


def _assign(compiled: _Compiler, products: _Compiled) -> _Compiled:
    @compiled
    def assign(
        source: Any, square: Any, constants: Any, first: int, index: Any, kept: Any, slot: Any, squared: Any
    ) -> None:
        noise, zero, _ = constants
        rows, slots = index.shape
        n = slot.shape[1]
        line = np.empty(n, square.dtype)
        for row in range(rows):
            norm, nearest, home = square[row], squared[row], slot[row]
            for s in range(first, slots):
                if not kept[row, s]:
                    continue
                token = index[row, s]
                own, inner = norm[token], products(source, row, token, line)
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
