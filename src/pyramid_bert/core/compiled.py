"""Calls the compiled loops of `kernels` on tensors, in threads where that pays."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .distances import Geometry, snap_limit

How = Literal["drop", "weigh", "merge"]
_HOW: dict[How, int] = {"drop": 0, "weigh": 1, "merge": 2}  # as in `kernels`
_WORTH_THREADS = 1 << 20  # with fewer distances (about a millisecond of work), starting threads costs more


@cache
def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def can_run(geometry: Geometry) -> bool:
    """Whether the compiled loops can take this geometry."""
    return geometry.parts[0].squares.device.type == "cpu" and available()


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

    kept: Tensor
    group: Tensor
    share: Tensor
    size: Tensor
    hidden: Tensor
    squared: Tensor

    @classmethod
    def empty(cls, geometry: Geometry, hidden: Tensor, keep: Sequence[int]) -> Arrays:
        """Arrays to be filled."""
        (rows, n, width), slots = hidden.shape, max(keep)
        dtype = geometry.parts[0].squares.dtype
        return cls(
            torch.zeros(rows, slots, dtype=torch.long),
            torch.full((rows, n), -1, dtype=torch.long),
            torch.zeros(rows, n, dtype=dtype),
            torch.zeros(rows, slots, dtype=dtype),
            torch.zeros(rows, slots, width, dtype=hidden.dtype),
            torch.zeros(rows, dtype=dtype),
        )


def reduce_coreset(
    geometry: Geometry, hidden: Tensor, keep: Sequence[int], steps: Sequence[int], real: Sequence[int], size: Tensor,
    how: How,
) -> Arrays:  # fmt: skip
    """Chooses a core-set of each row and reduces `hidden` to it.

    Args:
        geometry: Distances between the tokens.
        hidden: (B, N, D) what is to be reduced; with D = 0 only the decision is made.
        keep: Tokens to keep, by row.
        steps: Centres per step, by row.
        real: Real tokens, by row; they stand on the left.
        size: (B, N) input tokens behind each token.
        how: What becomes of the other tokens.
    """
    out, numbers = Arrays.empty(geometry, hidden, keep), _numbers(keep, steps, real)
    _run("reduce_coreset", geometry, geometry.to_cls, numbers, size, hidden, _HOW[how], out, n_kept=sum(keep))
    return out


def reduce_ranked(
    geometry: Geometry, hidden: Tensor, ranked: Tensor, keep: Sequence[int], real: Sequence[int], size: Tensor, how: How
) -> Arrays:
    """Reduces `hidden` to the first `keep` tokens of a ranking (B, R); see `reduce_coreset`."""
    out = Arrays.empty(geometry, hidden, keep)
    out.kept[:] = ranked[:, : max(keep)]
    _run("settle", geometry, _numbers(keep, keep, real), size, hidden, _HOW[how], out, n_kept=sum(keep))
    return out


def reduce_clusters(
    geometry: Geometry, hidden: Tensor, keep: Sequence[int], real: Sequence[int], size: Tensor, within: int | None
) -> Arrays:
    """Merges tokens into `keep` groups by Ward's clustering and averages `hidden`; see `reduce_coreset`."""
    out = Arrays.empty(geometry, hidden, keep)
    numbers, n_pairs = _numbers(keep, keep, real), hidden.shape[1] * len(keep)
    _run("reduce_clusters", geometry, numbers, size, hidden, within or 0, out, n_kept=n_pairs)
    return out


def ward_firsts(
    geometry: Geometry, keep: Sequence[int], real: Sequence[int], size: Tensor, within: int | None, limit: Tensor | None
) -> Tensor:
    """The first token (B, N) of the group that each token is in; see `cluster`."""
    first = torch.zeros(size.shape, dtype=torch.long)
    limit = torch.full((len(keep),), math.inf) if limit is None else limit
    numbers = _numbers(keep, keep, real)
    _run("ward", geometry, numbers, size, within or 0, limit.to(size.dtype), first, n_kept=first.numel())
    return first


def greedy(geometry: Geometry, left: Tensor, keep: Sequence[int], steps: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The core-set (B, K) of each row in rank order, 0 past its own end, and its squared covering radius (B,).

    Overwrites `left` (B, N): squared distances to CLS, -1 for pads, -inf for CLS.
    """
    index = torch.zeros(len(keep), max(keep), dtype=torch.long)
    squared = torch.empty(len(keep), dtype=left.dtype)
    _run("greedy", geometry, left, _numbers(keep, steps, keep), index, squared, n_kept=sum(keep))
    return index, squared


def nearest_kept(geometry: Geometry, index: Tensor, kept: Tensor | None, *, skip_cls: bool) -> tuple[Tensor, Tensor]:
    """As `covering.nearest_kept`."""
    squares = geometry.parts[0].squares
    slot = torch.zeros(len(index), squares.shape[1], dtype=torch.long)
    squared = torch.empty(slot.shape, dtype=squares.dtype)
    filled = torch.ones_like(index, dtype=torch.bool) if kept is None else kept
    first = 1 if skip_cls and index.shape[1] > 1 else 0
    _run("assign", geometry, first, index, filled, slot, squared, n_kept=index.numel())
    return slot, squared


def _numbers(keep: Sequence[int], steps: Sequence[int], real: Sequence[int]) -> Tensor:
    return torch.tensor([keep, steps, real]).T.contiguous()  # (B, 3)


def _run(kernel: str, geometry: Geometry, *arguments: Any, n_kept: int) -> None:
    """Calls a kernel for the rows of each part of the geometry, in threads if there are enough distances to compute."""
    from . import kernels

    calls, done = [], 0
    for part in geometry.parts:
        squares = part.squares.numpy()
        rows, done = slice(done, done + len(squares)), done + len(squares)
        constants = tuple(map(squares.dtype.type, (snap_limit(part.squares.dtype), 0, -math.inf)))
        seen = (part.source, squares, constants)
        calls.append(partial(getattr(kernels, kernel), seen, *(_some_rows(x, rows) for x in arguments)))
    threads = min(torch.get_num_threads(), len(calls))
    if threads > 1 and n_kept * geometry.parts[0].squares.shape[1] >= _WORTH_THREADS:
        list(_threads(threads).map(lambda call: call(), calls))
    else:
        for call in calls:
            call()


def _some_rows(x: Any, rows: slice) -> Any:
    """The rows of an argument as an array; a number is the same for all rows."""
    if isinstance(x, tuple):
        return tuple(_some_rows(part, rows) for part in x)
    return x.numpy()[rows] if isinstance(x, Tensor) else x


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="pyramid-bert")


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child has no threads
