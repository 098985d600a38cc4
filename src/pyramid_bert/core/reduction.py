"""What a decision does to per-token tensors: a `Reduction` is the decision as data, and `apply` carries it out.

One decision serves hidden states, sizes and the trace. Kept tokens stay in position order, which models with relative
positions need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from . import arrays
from .arrays import Array
from .covering import nearest_kept
from .distances import Geometry

BEHIND = 2**31 - 1  # as a position, sorts behind all others


@dataclass(frozen=True)
class Reduction:
    """From N tokens to K.

    Attributes:
        index: (B, K) the kept positions, in position order; where groups are averaged, the first token of each.
        group: (B, N) the slot that each token went to, -1 for none; None when not needed.
        mask: (B, K) bool, False for slots that hold nothing; None when all slots are filled.
        share: (B, N) the weight of each token in the average of its slot; None when kept tokens are taken as they are.

    Example:
        >>> import numpy as np
        >>> rank = np.array([[0, 3, 1]])  # CLS, then token 3, then token 1
        >>> reduction = Reduction.from_index(rank, [3])
        >>> reduction.apply(np.array([[10, 11, 12, 13]])).tolist()
        [[10, 11, 13]]
    """

    index: Array
    group: Array | None = None
    mask: Array | None = None
    share: Array | None = None

    @classmethod
    def from_index(cls, ranked: Array, counts: Sequence[int], mask: Array | None = None) -> Reduction:
        """Keeps the first `counts[b]` positions of each row of `ranked` (B, R); pads among them are not kept."""
        width = ranked.shape[1]
        if mask is None and min(counts) == width:
            return cls(index=arrays.in_order(ranked))
        valid = arrays.positions(width, ranked) < arrays.whole_numbers(counts, ranked)[:, None]
        if mask is not None:
            valid = valid & arrays.gathered(mask, ranked)
        index = arrays.in_order(arrays.masked(ranked, ~valid, BEHIND))
        kept = index != BEHIND
        return cls(index=arrays.masked(index, ~kept, 0), mask=kept)

    @staticmethod
    def filled_slots(index: Array, counts: Sequence[int]) -> Array | None:
        """(B, K) bool: the first `counts[b]` slots of each row of `index` (B, K); None when all are filled."""
        slots = index.shape[1]
        if min(counts) == slots:
            return None
        return arrays.positions(slots, index) < arrays.whole_numbers(counts, index)[:, None]

    @classmethod
    def keeping_all(cls, hidden: Array, mask: Array | None) -> Reduction:
        """Every token of `hidden` (B, N, D) in its own slot; a pad is in none."""
        rows, n, _ = hidden.shape
        position = arrays.repeated(arrays.positions(n, hidden), rows)
        return cls(index=position, group=position if mask is None else arrays.masked(position, ~mask, -1), mask=mask)

    @classmethod
    def from_group(cls, group: Array, slots: int, size: Array | None = None) -> Reduction:
        """Averages each group of tokens into its slot.

        Args:
            group: (B, N) slot of each token, -1 for tokens that are in none.
            slots: K.
            size: (B, N) weights of the tokens in the averages; all equal if None.
        """
        size = arrays.as_fp32(group * 0 + 1) if size is None else size
        size = arrays.masked(size, group < 0, 0)
        home = group.clip(min=0)
        total = arrays.added_up(size, home, slots)  # (B, K)
        share = size / arrays.gathered(total, home).clip(min=1e-12)
        first = arrays.first_with(arrays.masked(group, group < 0, slots), slots + 1)[:, :slots]
        return cls(arrays.masked(first, first == group.shape[1], 0), group=group, mask=total > 0, share=share)

    def with_groups(self, geometry: Geometry, mask: Array | None, *, skip_cls: bool = False) -> tuple[Reduction, Array]:
        """This reduction with every real token sent to its nearest kept one, and the squared distances (B, N) there.

        Args:
            geometry: Of the input's tokens.
            mask: (B, N) bool: the input's real tokens.
            skip_cls: Send no other token to CLS; where only CLS is kept, the others get -1.
        """
        slot, squared = nearest_kept(geometry, self.index, self.mask, skip_cls=skip_cls)
        gone = slot < 0 if mask is None else ~mask
        if skip_cls:  # tokens that could reach only CLS
            gone = gone | ((slot == 0) & (arrays.positions(slot.shape[1], slot) > 0))
        return dataclasses.replace(self, group=arrays.masked(slot, gone, -1)), arrays.masked(squared, gone, 0)

    def merged(self, size: Array) -> Reduction:
        """This reduction with every token averaged into its group's slot, weighted by `size` (B, N)."""
        assert self.group is not None
        merged = Reduction.from_group(self.group, self.index.shape[1], size)
        return dataclasses.replace(self, share=merged.share)

    def apply(self, x: Array) -> Array:
        """`x` (B, N) or (B, N, D) reduced to K: gathered, or averaged where this reduction averages."""
        if x.ndim == 2:
            return self.apply(x[:, :, None])[:, :, 0]
        rows, n, _ = x.shape
        start = arrays.positions(rows, x)[:, None] * n  # (B, 1): where each row begins in the table
        if self.share is None:
            return arrays.picked(x, self.index + start)
        order, begins, slots = self._by_slot()
        share = arrays.as_type(arrays.gathered(self.share, order), x)
        return arrays.weighted_sums(x, order + start, begins, share).reshape(rows, slots, -1)

    def _by_slot(self) -> tuple[Array, Array, int]:
        """The tokens of each row in the order of their slots (B, N), where slots begin (B·K,) in that list, and K."""
        assert self.group is not None
        home = self.group.clip(min=0)  # a token in no group has weight 0 in slot 0
        slots = self.index.shape[1]
        count = arrays.added_up(home * 0 + 1, home, slots).reshape(-1)
        return arrays.sorted_from(home), count.cumsum(0) - count, slots

    def sizes(self, size: Array, slots: int) -> Array:
        """Input tokens behind each slot (B, K), from those behind each token (B, N)."""
        assert self.group is not None
        home = arrays.masked(self.group, self.group < 0, slots)
        return arrays.added_up(size, home, slots + 1)[:, :slots]

    def replaced(self, x: Array) -> Array:
        """`x` (B, N, D) with every token replaced by the kept one of its group; tokens in no group stay.

        Example:
            >>> import numpy as np
            >>> reduction = Reduction(index=np.array([[0, 2]]), group=np.array([[0, 0, 1, -1]]))
            >>> reduction.replaced(np.array([[[10], [11], [12], [13]]])).flatten().tolist()
            [10, 10, 12, 13]
        """
        return Reduction(self._stand_in()).apply(x)

    def stands_for_itself(self) -> Array:
        """(B, N) bool: the kept tokens."""
        stand_in = self._stand_in()
        assert self.group is not None
        return (stand_in == arrays.positions(stand_in.shape[1], stand_in)) & (self.group >= 0)

    def _stand_in(self) -> Array:
        """The position (B, N) of the kept token of each token's group; its own for a token in no group."""
        assert self.group is not None
        own = arrays.positions(self.group.shape[1], self.group)
        return arrays.where(self.group < 0, own, arrays.gathered(self.index, self.group.clip(min=0)))

    def then(self, other: Reduction) -> Reduction:
        """This reduction followed by `other`, as one. Neither may average."""
        assert self.group is not None
        return Reduction(arrays.gathered(self.index, other.index), other.follow(self.group), other.mask)

    def follow(self, slot: Array) -> Array:
        """The new slots of tokens in slots `slot` (B, M); -1 stays -1. Composed over layers, this gives provenance."""
        assert self.group is not None
        return arrays.masked(arrays.gathered(self.group, slot.clip(min=0)), slot < 0, -1)
