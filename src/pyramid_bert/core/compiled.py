"""Calls the compiled loops of `kernels` on numpy arrays, in threads where that pays. No torch."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..cores import cores

How = Literal["drop", "weigh", "merge"]
Result = TypeVar("Result")
_HOW: dict[How, int] = {"drop": 0, "weigh": 1, "merge": 2}  # as in `kernels`
SNAP = 16  # below this many rounding errors of ‖a‖² + ‖b‖², a squared distance counts as 0
_at_most: ContextVar[int | None] = ContextVar("_at_most", default=None)
_WORTH_THREADS = 1 << 20  # with fewer distances (about a millisecond of work), starting threads costs more


@cache
def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


class Part(NamedTuple):
    """The inner products of the tokens of consecutive rows: what `kernels` calls a source, and squares (b, N)."""

    source: Any
    squares: NDArray[Any]


Parts = Sequence[Part]


class Arrays(NamedTuple):
    """The results of a reduction, for B rows of N tokens that keep at most K.

    Attributes:
        kept: (B, K) the kept positions in position order, or the first token of each group; 0 past a row's end.
        group: (B, N) the slot of each token, -1 for none. Not filled when tokens are dropped.
        share: (B, N) the weight of each token in the average of its slot. Filled only when tokens are merged.
        size: (B, K) input tokens behind each slot. Not filled when tokens are dropped.
        hidden: (B, K, D) the reduced vectors.
        squared: (B,) the squared covering radius. Filled only by `reduce_coreset`.
    """

    kept: NDArray[Any]
    group: NDArray[Any]
    share: NDArray[Any]
    size: NDArray[Any]
    hidden: NDArray[Any]
    squared: NDArray[Any]

    @classmethod
    def empty(cls, parts: Sequence[Part], hidden: NDArray[Any], keep: Sequence[int]) -> Arrays:
        """Arrays to be filled."""
        (rows, n, width), slots = hidden.shape, max(keep)
        dtype = parts[0].squares.dtype
        return cls(
            np.zeros((rows, slots), dtype=np.int64),
            np.full((rows, n), -1, dtype=np.int64),
            np.zeros((rows, n), dtype=dtype),
            np.zeros((rows, slots), dtype=dtype),
            np.zeros((rows, slots, width), dtype=hidden.dtype),
            np.zeros(rows, dtype=dtype),
        )


def reduce_coreset(
    parts: Parts,
    left: NDArray[Any],
    hidden: NDArray[Any],
    keep: Sequence[int],
    steps: Sequence[int],
    real: Sequence[int],
    size: NDArray[Any],
    how: How,
) -> Arrays:
    """Chooses a core-set of each row and reduces `hidden` to it.

    Args:
        parts: The products of the tokens.
        left: (B, N) their squared distances to CLS; overwritten.
        hidden: (B, N, D) what is to be reduced; with D = 0 only the decision is made.
        keep: Tokens to keep, by row.
        steps: Centres per step, by row.
        real: Real tokens, by row; they stand on the left.
        size: (B, N) input tokens behind each token.
        how: What becomes of the other tokens.
    """
    out, numbers = Arrays.empty(parts, hidden, keep), _numbers(keep, steps, real)
    _run("reduce_coreset", parts, left, numbers, size, hidden, _HOW[how], out, n_kept=sum(keep))
    return out


def reduce_ranked(
    parts: Parts,
    hidden: NDArray[Any],
    ranked: NDArray[Any],
    keep: Sequence[int],
    real: Sequence[int],
    size: NDArray[Any],
    how: How,
) -> Arrays:
    """Reduces `hidden` to the first `keep` tokens of a ranking (B, R); see `reduce_coreset`."""
    out = Arrays.empty(parts, hidden, keep)
    out.kept[:] = ranked[:, : max(keep)]
    _run("settle", parts, _numbers(keep, keep, real), size, hidden, _HOW[how], out, n_kept=sum(keep))
    return out


def reduce_clusters(
    parts: Parts, hidden: NDArray[Any], keep: Sequence[int], real: Sequence[int], size: NDArray[Any], within: int | None
) -> Arrays:
    """Merges tokens into `keep` groups by Ward's clustering and averages `hidden`; see `reduce_coreset`."""
    out = Arrays.empty(parts, hidden, keep)
    numbers, n_pairs = _numbers(keep, keep, real), hidden.shape[1] * len(keep)
    _run("reduce_clusters", parts, numbers, size, hidden, within or 0, out, n_kept=n_pairs)
    return out


def ward_firsts(
    parts: Parts,
    keep: Sequence[int],
    real: Sequence[int],
    size: NDArray[Any],
    within: int | None,
    limit: NDArray[Any] | None,
) -> NDArray[Any]:
    """The first token (B, N) of the group that each token is in; see `cluster`."""
    first = np.zeros(size.shape, dtype=np.int64)
    limit = np.full(len(keep), math.inf) if limit is None else limit
    numbers = _numbers(keep, keep, real)
    _run("ward", parts, numbers, size, within or 0, limit.astype(size.dtype), first, n_kept=first.size)
    return first


def greedy(
    parts: Parts, left: NDArray[Any], keep: Sequence[int], steps: Sequence[int]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The core-set (B, K) of each row in rank order, 0 past its own end, and its squared covering radius (B,).

    Overwrites `left` (B, N): squared distances to CLS, -1 for pads, -inf for CLS.
    """
    index = np.zeros((len(keep), max(keep)), dtype=np.int64)
    squared = np.empty(len(keep), dtype=left.dtype)
    _run("greedy", parts, left, _numbers(keep, steps, keep), index, squared, n_kept=sum(keep))
    return index, squared


def nearest_kept(
    parts: Parts, index: NDArray[Any], kept: NDArray[Any] | None, *, skip_cls: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """As `covering.nearest_kept`."""
    squares = parts[0].squares
    slot = np.zeros((len(index), squares.shape[1]), dtype=np.int64)
    squared = np.empty(slot.shape, dtype=squares.dtype)
    filled = np.ones(index.shape, dtype=bool) if kept is None else kept
    first = 1 if skip_cls and index.shape[1] > 1 else 0
    _run("assign", parts, first, index, filled, slot, squared, n_kept=index.size)
    return slot, squared


def _numbers(keep: Sequence[int], steps: Sequence[int], real: Sequence[int]) -> NDArray[Any]:
    return np.array([keep, steps, real]).T.copy()  # (B, 3)


def _run(kernel: str, parts: Parts, *arguments: Any, n_kept: int) -> None:
    """Calls a kernel for the rows of each part, in threads if there are enough distances to compute."""
    from . import kernels

    calls, done = [], 0
    for source, squares in parts:
        rows, done = slice(done, done + len(squares)), done + len(squares)
        constants = tuple(map(squares.dtype.type, (SNAP * np.finfo(squares.dtype).eps, 0, -math.inf)))
        seen = (source, squares, constants)
        calls.append(partial(getattr(kernels, kernel), seen, *(_some_rows(x, rows) for x in arguments)))
    in_threads(calls, worth=n_kept * parts[0].squares.shape[1] >= _WORTH_THREADS)


def in_threads(calls: Sequence[Callable[[], Result]], *, worth: bool) -> list[Result]:
    """The results of the calls, made in threads if that is `worth` it and there are any."""
    threads = min(_threads_wanted(), len(calls))
    if threads > 1 and worth:
        return list(_threads(threads).map(lambda call: call(), calls))
    return [call() for call in calls]


def _some_rows(x: Any, rows: slice) -> Any:
    """The rows of an argument; a number is the same for all rows."""
    if isinstance(x, tuple):
        return tuple(_some_rows(part, rows) for part in x)
    return x[rows] if isinstance(x, np.ndarray) else x


@contextmanager
def threads_at_most(number: int | None) -> Iterator[None]:
    """Inside the block, the loops of this thread use so many threads; None leaves it at as many as torch would."""
    before = _at_most.set(number)
    try:
        yield
    finally:
        _at_most.reset(before)


def _threads_wanted() -> int:
    """As many threads as were allowed; else as torch uses, if it is there."""
    torch, allowed = sys.modules.get("torch"), _at_most.get()
    if allowed is not None:
        return allowed
    return cores() if torch is None else int(torch.get_num_threads())


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="pyramid-bert")


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child has no threads
