"""Runs the compiled loops of `kernels` on tensors: in threads where that pays, and not at all where they cannot run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor

from .distances import Geometry, Products, snap_limit

How = Literal["drop", "weigh", "merge"]
_HOW: dict[How, int] = {"drop": 0, "weigh": 1, "merge": 2}  # as `kernels` counts them
# Below so many distances, about a millisecond, other threads are not worth waking.
_WORTH_THREADS = 1 << 20


@cache
def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def can_run(geometry: Geometry) -> bool:
    """Whether the compiled loops can take this geometry."""
    return geometry.parts[0].squares.device.type == "cpu" and available()


@dataclass(eq=False)
class Arrays:
    """What a reduction fills in for B rows of N tokens that keep at most K.

    Attributes:
        index: (B, K) the kept positions in position order, or the first token of each group; 0 past a row's end.
        group: (B, N) the slot of each token, -1 for none. Not filled where tokens are dropped.
        share: (B, N) the weight of each token in the average of its slot; only where tokens are merged.
        size: (B, K) input tokens behind each slot. Not filled where tokens are dropped.
        hidden: (B, K, D) the reduced vectors.
        squared: (B,) the squared covering radius, where choosing gives it.
    """

    index: Any
    group: Any
    share: Any
    size: Any
    hidden: Any
    squared: Any

    @classmethod
    def empty(cls, geometry: Geometry, hidden: Tensor, keep: Sequence[int]) -> Arrays:
        """Room for the results."""
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
    """Chooses a core-set of each row and reduces `hidden` to it, in one go.

    Args:
        geometry: Of the tokens.
        hidden: (B, N, D) what is to be reduced; with D = 0 only the decision is made.
        keep: Tokens to keep, by row.
        steps: Centres a step, by row.
        real: Real tokens, by row; they stand on the left.
        size: (B, N) input tokens behind each token.
        how: What becomes of the others.
    """
    from . import kernels

    out = Arrays.empty(geometry, hidden, keep)

    def run(part: _Part, numbers: Any, size: Any, hidden: Any, out: Arrays) -> None:
        left = part.to_cls()
        kernels.open_rows(left, part.constants, numbers)
        kernels.greedy(part.source, part.square, left, part.constants, numbers, out.index, out.squared)
        _settle(part, numbers, size, hidden, out, how)

    _over_parts(geometry, run, (_numbers(keep, steps, real), size, hidden, out), n_kept=sum(keep))
    return out


def reduce_ranked(
    geometry: Geometry, hidden: Tensor, ranked: Tensor, keep: Sequence[int], real: Sequence[int], size: Tensor, how: How
) -> Arrays:
    """Reduces `hidden` to the first `keep` tokens of a ranking (B, R); see `reduce_coreset`."""
    out = Arrays.empty(geometry, hidden, keep)
    out.index[:] = ranked[:, : max(keep)]

    def run(part: _Part, numbers: Any, size: Any, hidden: Any, out: Arrays) -> None:
        _settle(part, numbers, size, hidden, out, how)

    _over_parts(geometry, run, (_numbers(keep, keep, real), size, hidden, out), n_kept=sum(keep))
    return out


def reduce_clusters(
    geometry: Geometry, hidden: Tensor, keep: Sequence[int], real: Sequence[int], size: Tensor, within: int | None
) -> Arrays:
    """Merges tokens into `keep` groups by Ward's clustering and averages `hidden`; see `reduce_coreset`."""
    from . import kernels

    out = Arrays.empty(geometry, hidden, keep)
    numbers = _numbers(keep, keep, real)
    first = ward_firsts(geometry, keep, real, size, within, None)

    def run(part: _Part, numbers: Any, size: Any, hidden: Any, first: Any, out: Arrays) -> None:
        kernels.settle_groups(hidden, numbers, size, first, out.index, out.group, (out.share, out.size, out.hidden))

    _over_parts(geometry, run, (numbers, size, hidden, first, out), n_kept=0)
    return out


def ward_firsts(
    geometry: Geometry, keep: Sequence[int], real: Sequence[int], size: Tensor, within: int | None, limit: Tensor | None
) -> Tensor:
    """The first token (B, N) of the group that each token is in; see `cluster`."""
    from . import kernels

    square = geometry.parts[0].squares
    first = torch.zeros(len(keep), square.shape[1], dtype=torch.long)
    limit = torch.full((len(keep),), math.inf) if limit is None else limit

    def run(part: _Part, numbers: Any, size: Any, limit: Any, first: Any) -> None:
        kernels.ward(part.source, part.square, part.constants, numbers, size, within or 0, limit, first)

    arrays = (_numbers(keep, keep, real), size, limit.to(square.dtype), first)
    _over_parts(geometry, run, arrays, n_kept=first.shape[1] * len(keep))
    return first


def greedy(geometry: Geometry, left: Tensor, keep: Sequence[int], steps: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The core-set (B, K) of each row in rank order, 0 past its own end, and its squared covering radius (B,).

    Overwrites `left` (B, N): squared distances to CLS, -1 for pads, -inf for CLS.
    """
    from . import kernels

    index = torch.zeros(len(keep), max(keep), dtype=torch.long)
    squared = torch.empty(len(keep), dtype=left.dtype)

    def run(part: _Part, numbers: Any, left: Any, index: Any, squared: Any) -> None:
        kernels.greedy(part.source, part.square, left, part.constants, numbers, index, squared)

    _over_parts(geometry, run, (_numbers(keep, steps, keep), left, index, squared), n_kept=sum(keep))
    return index, squared


def nearest_kept(geometry: Geometry, index: Tensor, kept: Tensor | None, *, skip_cls: bool) -> tuple[Tensor, Tensor]:
    """As `reduction.nearest_kept`."""
    from . import kernels

    squares = geometry.parts[0].squares
    slot = torch.zeros(len(index), squares.shape[1], dtype=torch.long)
    squared = torch.empty(slot.shape, dtype=squares.dtype)
    filled = torch.ones_like(index, dtype=torch.bool) if kept is None else kept
    first = 1 if skip_cls and index.shape[1] > 1 else 0

    def run(part: _Part, index: Any, filled: Any, slot: Any, squared: Any) -> None:
        kernels.assign(part.source, part.square, part.constants, first, index, filled, slot, squared)

    _over_parts(geometry, run, (index, filled, slot, squared), n_kept=slot.shape[0] * index.shape[1])
    return slot, squared


class _Part:
    """What a kernel needs of the geometry of some rows."""

    def __init__(self, products: Products) -> None:
        self._products = products
        self.source, self.square = products.source, products.squares.numpy()
        numbers = (snap_limit(products.squares.dtype), 0, -math.inf)
        self.constants = tuple(map(self.square.dtype.type, numbers))

    def to_cls(self) -> Any:
        """(b, N): squared distances to CLS, to be overwritten."""
        return self._products.to_cls.numpy()


def _settle(part: _Part, numbers: Any, size: Any, hidden: Any, out: Arrays, how: How) -> None:
    from . import kernels

    filled = (out.share, out.size, out.hidden)
    kernels.settle(
        part.source, part.square, part.constants, hidden, numbers, _HOW[how], size, out.index, out.group, filled
    )


def _numbers(keep: Sequence[int], steps: Sequence[int], real: Sequence[int]) -> Tensor:
    return torch.tensor([keep, steps, real]).T.contiguous()  # (B, 3)


def _over_parts(geometry: Geometry, run: Callable[..., None], tensors: Sequence[Any], *, n_kept: int) -> None:
    """Calls `run` for the rows of each part of the geometry, in threads if there are enough distances to compute."""
    calls, done = [], 0
    for part in geometry.parts:
        rows = slice(done, done + part.rows)
        calls.append(partial(run, _Part(part), *(_some_rows(x, rows) for x in tensors)))
        done += part.rows
    threads = min(torch.get_num_threads(), len(calls))
    if threads > 1 and n_kept * geometry.parts[0].squares.shape[1] >= _WORTH_THREADS:
        list(_threads(threads).map(lambda call: call(), calls))
    else:
        for call in calls:
            call()


def _some_rows(x: Any, rows: slice) -> Any:
    """The arrays of some rows."""
    if isinstance(x, Arrays):
        return Arrays(*(_some_rows(getattr(x, field.name), rows) for field in fields(x)))
    return x.numpy()[rows]


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="pyramid-bert")


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads stay behind in the parent
