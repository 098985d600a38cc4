"""The array operations of the method, for torch tensors and numpy arrays alike.

Models run in torch; exported models run without it. What is chosen must not depend on that, so the method is written
once, on operations that both have under one name (`+`, `@`, `x[rows]`, `swapaxes`, `reshape`, `clip`, `sum(1)`), and on
those below. This module does not import torch: a process that has no tensors never needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, TypeVar

import numpy as np

Array = Any  # a torch tensor or a numpy array
Function = TypeVar("Function", bound=Callable[..., Any])


def is_numpy(x: Array) -> bool:
    """Whether `x` is a numpy array."""
    return isinstance(x, np.ndarray)


def _torch() -> Any:
    """Torch, which is imported if there are tensors."""
    return sys.modules["torch"]


def without_gradients(function: Function) -> Function:
    """A decorator: no gradient is computed inside the function."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None:
            return function(*args, **kwargs)
        with torch.no_grad():
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]


def in_full_precision(x: Array) -> AbstractContextManager[Any]:
    """Inside the block, products are not computed in a lower precision, though the caller may have asked for it."""
    return nullcontext() if is_numpy(x) else _torch().autocast(x.device.type, enabled=False)


# ---- making ----


def detached(x: Array) -> Array:
    """`x` without its history of gradients."""
    return x if is_numpy(x) else x.detach()


def full_precision(x: Array) -> Array:
    """`x` in fp32, or in fp64 if it is."""
    if is_numpy(x):
        return x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
    torch = _torch()
    return x.to(torch.promote_types(x.dtype, torch.float32))


def as_fp32(x: Array) -> Array:
    """`x` in fp32."""
    return x.astype(np.float32) if is_numpy(x) else x.float()


def as_fp64(x: Array) -> Array:
    """`x` in fp64."""
    return x.astype(np.float64) if is_numpy(x) else x.double()


def as_type(x: Array, like: Array) -> Array:
    """`x` in the precision of `like`."""
    return x.astype(like.dtype, copy=False) if is_numpy(x) else x.to(like.dtype)


def whole_numbers(values: Sequence[Any], like: Array) -> Array:
    """Nested lists of ints as int64, on the device of `like`."""
    if is_numpy(like):
        return np.array(values, dtype=np.int64)
    torch = _torch()
    return torch.tensor(values, dtype=torch.long, device=like.device)


def positions(n: int, like: Array) -> Array:
    """0 to n - 1 as int64, on the device of `like`."""
    if is_numpy(like):
        return np.arange(n)
    return _torch().arange(n, device=like.device)


def filled(shape: Sequence[int], value: float, like: Array) -> Array:
    """An array of one value in the type and on the device of `like`."""
    if is_numpy(like):
        return np.full(tuple(shape), value, dtype=like.dtype)
    return like.new_full(tuple(shape), value)


def unset(shape: Sequence[int], like: Array) -> Array:
    """An array to be written to, in the type and on the device of `like`."""
    return np.empty(tuple(shape), dtype=like.dtype) if is_numpy(like) else like.new_empty(tuple(shape))


def all_true(shape: Sequence[int], like: Array) -> Array:
    """Bools, all True."""
    if is_numpy(like):
        return np.ones(tuple(shape), dtype=bool)
    return _torch().ones(tuple(shape), dtype=_torch().bool, device=like.device)


def copied(x: Array) -> Array:
    """A copy that can be overwritten."""
    return x.copy() if is_numpy(x) else x.clone()


def widened(x: Array) -> Array:
    """`x` (B, N) with a column of 0 behind it."""
    return np.pad(x, ((0, 0), (0, 1))) if is_numpy(x) else _torch().nn.functional.pad(x, (0, 1))


def repeated(x: Array, rows: int) -> Array:
    """`x` (N,) as (rows, N), to be overwritten by the caller."""
    return np.tile(x, (rows, 1)) if is_numpy(x) else x.repeat(rows, 1)


def multiply_into(out: Array, x: Array, y: Array) -> None:
    """Writes the products of matrices `x` (B, N, D) and `y` (B, D, M) to `out` (B, N, M)."""
    if is_numpy(out):
        np.matmul(x, y, out=out)
    else:
        _torch().bmm(x, y, out=out)


# ---- choosing elements ----


def masked(x: Array, mask: Array, value: float) -> Array:
    """`x` with `value` where `mask` is True."""
    if is_numpy(x):
        return np.where(mask, np.asarray(value, dtype=x.dtype), x)
    return x.masked_fill(mask, value)


def where(mask: Array, x: Array, y: Array) -> Array:
    """`x` where `mask` is True, else `y`."""
    return np.where(mask, x, y) if is_numpy(mask) else _torch().where(mask, x, y)


def gathered(x: Array, index: Array) -> Array:
    """`x` (B, N) at `index` (B, M)."""
    return np.take_along_axis(x, index, 1) if is_numpy(x) else x.gather(1, index)


def scattered(x: Array, index: Array, values: Array) -> Array:
    """A copy of `x` (B, N) with `values` (B, M) written at `index` (B, M)."""
    if not is_numpy(x):
        return x.scatter(1, index, values)
    x = x.copy()
    np.put_along_axis(x, index, values, 1)
    return x


def added_up(values: Array, index: Array, slots: int) -> Array:
    """(B, slots): the sum of `values` (B, N) with each `index` (B, N)."""
    if not is_numpy(values):
        return values.new_zeros(len(values), slots).scatter_add(1, index, values)
    found = np.zeros((len(values), slots), dtype=values.dtype)
    np.add.at(found, (np.arange(len(values))[:, None], index), values)
    return found


def first_with(index: Array, slots: int) -> Array:
    """(B, slots): the first position of each value in `index` (B, N); N for a value that is not there."""
    rows, n = index.shape
    if not is_numpy(index):
        place = positions(n, index).expand_as(index)
        return index.new_full((rows, slots), n).scatter_reduce(1, index, place, reduce="amin")
    found = np.full((rows, slots), n)
    np.minimum.at(found, (np.arange(rows)[:, None], index), np.broadcast_to(np.arange(n), index.shape))
    return found


def sorted_from(x: Array, *, descending: bool = False) -> Array:
    """The order (B, N) in which the rows of `x` (B, N) are sorted; equal values stay in their order."""
    if is_numpy(x):
        return np.argsort(-x if descending else x, axis=1, kind="stable")
    return x.sort(dim=1, descending=descending, stable=True).indices


def in_order(x: Array) -> Array:
    """The values of each row of `x` (B, N), sorted."""
    return np.sort(x, axis=1) if is_numpy(x) else x.sort(dim=1).values


def picked(x: Array, index: Array) -> Array:
    """(B, M, D): the rows of `x` (B, N, D), counted over the whole batch, at `index` (B, M)."""
    table = x.reshape(-1, x.shape[2])
    if is_numpy(x):
        return table[index]
    return table.index_select(0, index.flatten()).view(*index.shape, -1)  # faster than gather


def weighted_sums(x: Array, index: Array, begins: Array, weights: Array) -> Array:
    """(S, D): sums of the rows of `x` (B, N, D), counted over the whole batch, in bags.

    Args:
        x: (B, N, D).
        index: (B, M) the rows of all bags, one bag after another.
        begins: (S,) where each bag begins in that list.
        weights: (B, M).
    """
    table = x.reshape(-1, x.shape[2])
    if not is_numpy(x):
        bags = _torch().nn.functional.embedding_bag
        return bags(index.flatten(), table, begins, mode="sum", per_sample_weights=weights.flatten())
    parts = table[index.reshape(-1)] * weights.reshape(-1, 1)
    ends = np.append(begins[1:], len(parts))
    sums = np.add.reduceat(np.concatenate([parts, np.zeros_like(parts[:1])]), begins, axis=0)
    return np.where((ends > begins)[:, None], sums, 0).astype(x.dtype, copy=False)


# ---- over rows ----


def largest(x: Array) -> Array:
    """(B,): the largest value of each row of `x` (B, N)."""
    return x.max(axis=1) if is_numpy(x) else x.amax(dim=1)


def smallest(x: Array) -> tuple[Array, Array]:
    """The smallest values along the last axis, and where they stand; the first of equal ones."""
    if is_numpy(x):
        index = x.argmin(axis=-1)
        return np.take_along_axis(x, index[..., None], -1)[..., 0], index
    found = x.min(dim=-1)
    return found.values, found.indices


def norms(x: Array) -> Array:
    """(..., N): the lengths of vectors `x` (..., N, D)."""
    return np.sqrt(np.einsum("...d,...d->...", x, x)) if is_numpy(x) else x.norm(dim=-1)


def lesser(x: Array, y: Array) -> Array:
    """The lesser of both, element by element."""
    return np.minimum(x, y) if is_numpy(x) else _torch().minimum(x, y)


def is_finite(x: Array) -> Array:
    """Where `x` is neither infinite nor not a number."""
    return np.isfinite(x) if is_numpy(x) else x.isfinite()


def joined(parts: Sequence[Array]) -> Array:
    """Arrays one after another, along the first axis."""
    return np.concatenate(parts) if is_numpy(parts[0]) else _torch().cat(list(parts))


def side_by_side(parts: Sequence[Array], axis: int = 1) -> Array:
    """Arrays (B, ...) as one with a new axis."""
    return np.stack(parts, axis) if is_numpy(parts[0]) else _torch().stack(list(parts), axis)


def in_a_row(parts: Sequence[Array]) -> Array:
    """Arrays (B, ...) one after another, along the second axis."""
    return np.concatenate(parts, axis=1) if is_numpy(parts[0]) else _torch().cat(list(parts), dim=1)


def logarithm(x: Array) -> Array:
    """The natural logarithm."""
    return np.log(x) if is_numpy(x) else x.log()


def least(x: Array) -> float:
    """The most negative number in the precision of `x`."""
    return float(np.finfo(x.dtype).min) if is_numpy(x) else float(_torch().finfo(x.dtype).min)


def epsilon(x: Array) -> float:
    """The distance from 1 to the next number in the precision of `x`."""
    return float(np.finfo(x.dtype).eps) if is_numpy(x) else float(_torch().finfo(x.dtype).eps)


def as_numpy(x: Array) -> Any:
    """A numpy array on the memory of `x`, which is on the CPU."""
    return x if is_numpy(x) else x.numpy()


def as_given(x: Any, like: Array) -> Array:
    """A numpy array as what `like` is, on the same memory."""
    return x if is_numpy(like) else _torch().from_numpy(x)


def on_host(x: Array) -> Any:
    """`x` as a numpy array in fp32, fetched from its device."""
    return np.asarray(x, dtype=np.float32) if is_numpy(x) else x.float().cpu().numpy()


def is_plain(x: Array) -> bool:
    """Whether numpy can read `x` as it is, and no gradient is asked of it."""
    if is_numpy(x):
        return x.dtype in (np.float32, np.float64)
    return x.dtype in (_torch().float32, _torch().float64) and not x.requires_grad


def placed_like(x: Array, like: Array) -> Array:
    """`x` in the precision and on the device of `like`."""
    return x.astype(like.dtype, copy=False) if is_numpy(like) else x.to(like.device, like.dtype)


def on_cpu(x: Array) -> bool:
    """Whether `x` is in main memory."""
    return is_numpy(x) or x.device.type == "cpu"
