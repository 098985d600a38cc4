"""Covering: the nearest kept token of each token, and the fewest tokens that cover a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from . import arrays, compiled
from .arrays import Array
from .distances import Geometry


@arrays.without_gradients
def nearest_kept(
    geometry: Geometry, index: Array, kept: Array | None, *, skip_cls: bool = False
) -> tuple[Array, Array]:
    """The slot (B, N) of the kept token nearest to each token, and its squared distance (B, N).

    Args:
        geometry: Distances between the tokens.
        index: (B, K) kept positions, in position order: ties go to the earlier one.
        kept: (B, K) bool, False for empty slots; None when all are filled.
        skip_cls: Leave slot 0 out, so that no other token goes to CLS.
    """
    if geometry.runs_compiled:
        filled = None if kept is None else arrays.as_numpy(kept)
        found = compiled.nearest_kept(geometry.for_loops, arrays.as_numpy(index), filled, skip_cls=skip_cls)
        return arrays.as_given(found[0], index), arrays.as_given(found[1], index)
    n, place = geometry.distances.shape[1], arrays.positions(len(index), index)[:, None]
    to_kept = geometry.distances[place, index].swapaxes(1, 2)  # (B, N, K)
    if kept is not None:
        to_kept = arrays.masked(to_kept, ~kept[:, None, :], math.inf)
    if skip_cls and index.shape[1] > 1:
        to_kept[:, :, 0] = math.inf
    squared, slot = arrays.smallest(to_kept)
    # A kept token is its own nearest, even when an equal one stands before it or CLS was left out.
    own = arrays.repeated(arrays.positions(index.shape[1], index), len(index))
    if kept is not None:  # empty slots write to a column that is cut off again
        index = arrays.masked(index, ~kept, n)
    slot = arrays.scattered(arrays.widened(slot), index, own)[:, :n]
    squared = arrays.scattered(arrays.widened(squared), index, arrays.filled(index.shape, 0, squared))[:, :n]
    return slot, squared


@arrays.without_gradients
def shortest_cover(
    geometry: Geometry,
    ranked: Array,
    mask: Array | None,
    options: Sequence[Sequence[int]],
    limit: Array,
) -> tuple[list[int], Array]:
    """The fewest tokens of each row, among its options, that cover the row within `limit`; and their radius (B,).

    Reads the numbers back from the device, once.

    Args:
        geometry: Distances between the tokens.
        ranked: (B, R) positions in rank order, as a selector gives them.
        mask: (B, N) bool, True for real tokens; pads need no cover. None when all are real.
        options: For each row the same number of options, ascending. The last is taken when no other covers.
        limit: (B,) the largest radius allowed.

    Example:
        >>> import numpy as np
        >>> tokens = np.array([[[0.0], [1.0], [9.0], [10.0]]])
        >>> geometry, ranked = Geometry.of(tokens), np.array([[0, 3, 1, 2]])
        >>> keep, radius = shortest_cover(geometry, ranked, None, [(1, 2, 3, 4)], np.array([1.0]))
        >>> keep, radius.tolist()
        ([2], [1.0])
    """
    last = ranked.shape[1] - 1
    counts = arrays.whole_numbers(options, ranked)  # (B, S)
    start = counts[:, :1] * 0  # (B, 1)
    reach: Array | None = None  # (B, N) squared distance to the nearest of the tokens taken so far
    radii, before = [], [0] * len(options)
    for step in range(counts.shape[1]):
        end = counts[:, step : step + 1]
        widest = max(row[step] - done for row, done in zip(options, before, strict=True))
        if widest > 0 or reach is None:
            place = start + arrays.positions(max(widest, 1), ranked)  # (B, W)
            _, squared = nearest_kept(geometry, arrays.gathered(ranked, place.clip(max=last)), place < end)
            if mask is not None:
                squared = arrays.masked(squared, ~mask, 0)
            reach = squared if reach is None else arrays.lesser(reach, squared)
        radii.append(geometry.radius(arrays.largest(reach)))
        start, before = end, [row[step] for row in options]
    radius = arrays.side_by_side(radii)  # (B, S)
    enough = radius <= limit[:, None]
    enough[:, -1] = True
    _, chosen = arrays.smallest(~enough * counts[:, -1:])  # the first that is enough
    chosen = chosen[:, None]
    return arrays.gathered(counts, chosen)[:, 0].tolist(), arrays.gathered(radius, chosen)[:, 0]
