"""The reduction of a batch in compiled loops: distances, choice, groups and averages, on plain arrays (numba).

This module does not import torch, so runtimes without torch can call it. Functions are compiled at the first call for a
type and cached on disk; later processes load them. The torch code is the reference: from a Gram matrix both choose the
same tokens, with the same ties.

A kernel works on some rows of a batch. Its arguments, where a row has N tokens and keeps K:

- `seen`: the tokens as a tuple (source, square, constants):
  `source`: their inner products, a Gram matrix (B, N, N) or the tables of `tables.Sums`;
  `square` (B, N): each token's product with itself;
  `constants`: (noise, 0, -inf) in the type of `square`, so that no sum is computed in another precision;
- `numbers` (B, 3): for each row the tokens to keep, the centres per step, and the real tokens;
- `size` (B, N): input tokens behind each token;
- `hidden` (B, N, D): the vectors to reduce;
- `out`: the arrays to fill, see `compiled.Arrays`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

DROP, MERGE = 0, 2  # what becomes of the tokens that are not kept; 1 weighs the kept ones

_LANES = 64  # tokens are taken in lanes, each with its own maximum, so that the loop can be vectorised
_TOO_FAR = 100  # cost of a pair that is farther apart than `within`, in units of the largest distance in its row
_LEAST = 1e-12

_compiled = njit(nogil=True, cache=True)


def line_of(source: Any, row: int, token: int, line: Any) -> Any:
    """The inner products (N,) of a token with all others, possibly written into `line`."""
    raise NotImplementedError  # replaced by the overload below when compiled


@overload(line_of)
def _line_of(source: Any, row: int, token: int, line: Any) -> Any:
    if isinstance(source, types.Array):

        def of_gram(source: Any, row: int, token: int, line: Any) -> Any:
            return source[row, token]

        return of_gram

    def of_tables(source: Any, row: int, token: int, line: Any) -> Any:
        ids, of_values, crossed, by_value, of_positions, scale = source
        own, value, scales = ids[row], ids[row, token], scale[row]
        with_values = of_values[value] + crossed[token]  # (V,): its value's and its position's product with each value
        first, second, factor = by_value[value], of_positions[token], scales[token]  # and with each position
        for i in range(line.shape[0]):
            line[i] = with_values[own[i]]
        for i in range(line.shape[0]):
            line[i] = (line[i] + (first[i] + second[i])) * (factor * scales[i])
        return line

    return of_tables


# ---- choosing a core-set ----


@_compiled
def _cover(left: Any, norm: Any, inner: Any, own: Any, constants: Any, top: Any) -> None:
    """Updates `left`, squared distances to the nearest centre, for one more centre; `top` gets each lane's maximum."""
    noise, zero, minus_infinity = constants
    lanes, n = top.shape[0], left.shape[0]
    top[:] = minus_infinity
    for start in range(0, n, lanes):
        part, norms, products = left[start : start + lanes], norm[start : start + lanes], inner[start : start + lanes]
        for i in range(part.shape[0]):
            both = own + norms[i]
            distance = both - (products[i] + products[i])
            distance = zero if distance <= both * noise else distance
            nearer = distance if distance < part[i] else part[i]
            part[i] = nearer
            top[i] = nearer if nearer > top[i] else top[i]


@_compiled
def _first_of(left: Any, top: Any) -> Any:
    """The first token that is as far as any; `top` has the maximum of each lane."""
    farthest, lanes, n = top.max(), top.shape[0], left.shape[0]
    first = n
    for lane in range(lanes):
        if top[lane] == farthest:
            token = lane
            while token < first and left[token] < farthest:
                token += lanes
            first = min(first, token)
    return min(first, n - 1)


@_compiled
def _greedy_row(seen: Any, row: int, left: Any, keep: int, step: int, line: Any, top: Any, index: Any) -> Any:
    """Fills `index` with the core-set of a row in rank order, and returns its squared covering radius."""
    source, square, constants = seen
    norm, minus_infinity, n = square[row], constants[2], left.shape[0]
    if step == 1:
        top[:] = minus_infinity
        for i in range(n):
            top[i % _LANES] = max(top[i % _LANES], left[i])
        for rank in range(1, keep):
            token = _first_of(left, top)
            index[rank] = token
            left[token] = minus_infinity
            _cover(left, norm, line_of(source, row, token, line), norm[token], constants, top)
        return top.max()
    for taken in range(1, keep, step):
        farthest = np.argsort(-left, kind="mergesort")[: min(step, keep - taken)]  # ties: the first
        index[taken : taken + len(farthest)] = farthest
        left[farthest] = minus_infinity
        for token in farthest:
            _cover(left, norm, line_of(source, row, token, line), norm[token], constants, top)
    return left.max()


@_compiled
def greedy(seen: Any, left: Any, numbers: Any, index: Any, radius: Any) -> None:
    """The core-set (B, K) of each row in rank order, and its squared covering radius (B,). Overwrites `left`.

    `left` (B, N) has each token's squared distance to CLS, -1 for pads, and -inf for CLS, which is taken.
    """
    rows, n = left.shape
    line, top = np.empty(n, left.dtype), np.empty(min(n, _LANES), left.dtype)
    for row in range(rows):
        keep, step, _real = numbers[row]
        radius[row] = _greedy_row(seen, row, left[row], keep, step, line, top, index[row])


@_compiled
def reduce_coreset(seen: Any, left: Any, numbers: Any, size: Any, hidden: Any, how: int, out: Any) -> None:
    """Chooses a core-set of each row and reduces `hidden` to it. Overwrites `left`, squared distances to CLS (B, N)."""
    for row in range(left.shape[0]):
        left[row, numbers[row, 2] :] = -1.0  # pads are below every real token
        left[row, 0] = seen[2][2]
    greedy(seen, left, numbers, out[0], out[5])
    settle(seen, numbers, size, hidden, how, out)


# ---- what a choice does to the other tokens ----


@_compiled
def _nearest_row(
    seen: Any, row: int, index: Any, kept: Any, first: int, real: int, line: Any, nearest: Any, home: Any
) -> None:
    """The slot of the kept token nearest to each of the `real` tokens, from slot `first` on; see `assign`."""
    source, square, (noise, zero, _) = seen
    norm = square[row]
    nearest[:] = np.inf
    for s in range(first, index.shape[0]):
        if not kept[s]:
            continue
        own, inner = norm[index[s]], line_of(source, row, index[s], line)
        for i in range(real):
            norms = norm[i] + own
            distance = norms - (inner[i] + inner[i])
            distance = zero if distance <= norms * noise else distance
            if distance < nearest[i]:  # the earlier of equal ones
                nearest[i] = distance
                home[i] = s
    for s in range(index.shape[0]):  # a kept token is its own nearest, even when an equal one stands before it
        if kept[s]:
            home[index[s]] = s
            nearest[index[s]] = zero


@_compiled
def assign(seen: Any, first: int, index: Any, kept: Any, slot: Any, squared: Any) -> None:
    """The slot (B, N) of the kept token nearest to each token, from slot `first` on, and its squared distance."""
    rows, n = slot.shape
    line = np.empty(n, squared.dtype)
    for row in range(rows):
        _nearest_row(seen, row, index[row], kept[row], first, n, line, squared[row], slot[row])


@_compiled
def _settle_row(hidden: Any, size: Any, slots: int, how: int, out: Any, row: int) -> None:
    """Fills sizes, shares and vectors of a row whose groups are known."""
    all_index, all_group, share, new_size, new_hidden, _squared = out
    n, width = hidden.shape[1], hidden.shape[2]
    index, group, totals = all_index[row], all_group[row], new_size[row]
    for i in range(n):
        if group[i] >= 0:
            totals[group[i]] += size[row, i]
    if how != MERGE:
        for s in range(slots):
            new_hidden[row, s, :] = hidden[row, index[s], :]
        return
    for i in range(n):
        s = group[i]
        if s >= 0:
            part = size[row, i] / max(totals[s], totals.dtype.type(_LEAST))
            share[row, i] = part
            mean, vector = new_hidden[row, s], hidden[row, i]
            for d in range(width):
                mean[d] += part * vector[d]


@_compiled
def settle(seen: Any, numbers: Any, size: Any, hidden: Any, how: int, out: Any) -> None:
    """Carries out a choice: the rank order in `out`'s index becomes position order, and the rest of `out` is filled."""
    index, group, square = out[0], out[1], seen[1]
    rows, n = square.shape
    line, nearest = np.empty(n, square.dtype), np.empty(n, square.dtype)
    all_kept = np.ones(index.shape[1], np.bool_)
    first = 1 if how == MERGE else 0  # nothing is merged into CLS
    for row in range(rows):
        keep, _step, real = numbers[row]
        chosen = index[row, :keep]
        chosen[:] = np.sort(chosen)
        if how != DROP:
            _nearest_row(seen, row, chosen, all_kept, first, real, line, nearest, group[row])
        _settle_row(hidden, size, keep, how, out, row)


# ---- clusters ----


@_compiled
def _nearest_partner(cost: Any, i: int, n: int) -> int:
    best = i
    for j in range(i + 1, n):
        if cost[i, j] < cost[i, best]:
            best = j
    return best


@_compiled
def _pair_costs(seen: Any, row: int, weight: Any, within: int, line: Any, cost: Any) -> None:
    """What merging each pair of real tokens costs, into `cost` (n, n); infinite for CLS and on the diagonal."""
    source, square, (noise, zero, _) = seen
    norm, n, largest = square[row], weight.shape[0], zero
    for i in range(1, n):
        inner = line_of(source, row, i, line)
        for j in range(1, n):
            both = norm[i] + norm[j]
            distance = both - (inner[j] + inner[j])
            distance = zero if distance <= both * noise else distance
            cost[i, j] = distance
            if i != j and distance > largest:
                largest = distance
    far = largest * norm.dtype.type(_TOO_FAR)
    least = norm.dtype.type(_LEAST)
    for i in range(1, n):
        for j in range(1, n):
            distance = cost[i, j] + far if within > 0 and abs(i - j) > within else cost[i, j]
            cost[i, j] = distance * (weight[i] * weight[j] / max(weight[i] + weight[j], least))
        cost[i, i] = np.inf
    cost[0, :n] = np.inf
    cost[:n, 0] = np.inf


@_compiled
def _ward_row(cost: Any, weight: Any, goal: int, limit: Any, first: Any) -> None:
    """Merges the cheapest pairs until `goal` groups are left or none costs at most `limit`; `first` names groups."""
    n = weight.shape[0]
    partner = [_nearest_partner(cost, i, n) for i in range(n)]
    for i in range(first.shape[0]):
        first[i] = i
    for _ in range(n - goal):
        i = 1
        for t in range(2, n):
            if cost[t, partner[t]] < cost[i, partner[i]]:
                i = t
        j, least = partner[i], cost[i, partner[i]]
        if not least < np.inf or least > limit:
            break
        a, b = weight[i], weight[j]
        for t in range(1, n):
            w = weight[t]
            of_both = (w + a) * cost[i, t] + (w + b) * cost[j, t] - w * least
            merged = np.inf if t in (i, j) else of_both / (w + a + b)
            cost[i, t] = cost[t, i] = merged if merged < np.inf else np.inf
            cost[j, t] = cost[t, j] = np.inf
        weight[i] = a + b
        partner[j] = j
        for t in range(1, j):  # those whose partner may have changed
            near = partner[t]
            if t == i or near in (i, j):
                partner[t] = _nearest_partner(cost, t, n)
            elif t < i and (cost[t, i] < cost[t, near] or (cost[t, i] == cost[t, near] and i < near)):
                partner[t] = i
        for t in range(n):
            if first[t] == j:
                first[t] = i


@_compiled
def ward(seen: Any, numbers: Any, size: Any, within: int, limit: Any, first: Any) -> None:
    """The first token (B, N) of the group that each token is in. `within` is 0 for any distance between places."""
    rows, n = first.shape
    line, costs = np.empty(n, size.dtype), np.empty((n, n), size.dtype)
    for row in range(rows):
        keep, _step, real = numbers[row]
        weight = size[row, :real].copy()
        _pair_costs(seen, row, weight, within, line, costs)
        _ward_row(costs, weight, max(keep, 2), limit[row], first[row])


@_compiled
def reduce_clusters(seen: Any, numbers: Any, size: Any, hidden: Any, within: int, out: Any) -> None:
    """Merges tokens into groups and averages them into slots, in the order of the first tokens of the groups."""
    index, group = out[0], out[1]
    rows, n = group.shape
    first, slot_of = np.empty((rows, n), np.int64), np.empty(n, np.int64)
    ward(seen, numbers, size, within, np.full(rows, np.inf, size.dtype), first)
    for row in range(rows):
        keep, _step, real = numbers[row]
        slot = 0
        for i in range(real):
            if first[row, i] == i:
                slot_of[i] = slot
                if slot < keep:
                    index[row, slot] = i
                slot += 1
            if slot_of[first[row, i]] < keep:  # with one slot only CLS is left
                group[row, i] = slot_of[first[row, i]]
        _settle_row(hidden, size, keep, MERGE, out, row)
