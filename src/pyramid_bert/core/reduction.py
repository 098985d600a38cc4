"""What a decision does to per-token tensors: a `Reduction` is the decision as data, and `apply` carries it out.

One decision serves hidden states, sizes and the trace. Kept tokens stay in position order, which models with relative
positions need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .covering import nearest_kept
from .distances import Geometry


@dataclass(frozen=True)
class Reduction:
    """From N tokens to K.

    Attributes:
        index: (B, K) the kept positions, in position order; where groups are averaged, the first token of each.
        group: (B, N) the slot that each token went to, -1 for none; None when not needed.
        mask: (B, K) bool, False for slots that hold nothing; None when all slots are filled.
        share: (B, N) the weight of each token in the average of its slot; None when kept tokens are taken as they are.

    Example:
        >>> rank = torch.tensor([[0, 3, 1]])  # CLS, then token 3, then token 1
        >>> reduction = Reduction.from_index(rank, [3])
        >>> reduction.apply(torch.tensor([[10, 11, 12, 13]])).tolist()
        [[10, 11, 13]]
    """

    index: Tensor
    group: Tensor | None = None
    mask: Tensor | None = None
    share: Tensor | None = None

    @classmethod
    def from_index(cls, ranked: Tensor, counts: Sequence[int], mask: Tensor | None = None) -> Reduction:
        """Keeps the first `counts[b]` positions of each row of `ranked` (B, R); pads among them are not kept."""
        width = ranked.shape[1]
        if mask is None and min(counts) == width:
            return cls(index=ranked.sort(dim=1).values)
        count = torch.tensor(counts, device=ranked.device)[:, None]  # (B, 1)
        valid = torch.arange(width, device=ranked.device) < count
        if mask is not None:
            valid &= mask.gather(1, ranked)
        last = torch.iinfo(ranked.dtype).max  # what is not kept sorts behind what is
        index = ranked.masked_fill(~valid, last).sort(dim=1).values
        kept = index != last
        return cls(index=index.masked_fill(~kept, 0), mask=kept)

    @staticmethod
    def filled_slots(index: Tensor, counts: Sequence[int]) -> Tensor | None:
        """(B, K) bool: the first `counts[b]` slots of each row of `index` (B, K); None when all are filled."""
        slots = index.shape[1]
        if min(counts) == slots:
            return None
        return torch.arange(slots, device=index.device) < torch.tensor(counts, device=index.device)[:, None]

    @classmethod
    def keeping_all(cls, hidden: Tensor, mask: Tensor | None) -> Reduction:
        """Every token of `hidden` (B, N, D) in its own slot; a pad is in none."""
        rows, n, _ = hidden.shape
        position = torch.arange(n, device=hidden.device).expand(rows, n)
        return cls(index=position, group=position if mask is None else position.masked_fill(~mask, -1), mask=mask)

    @classmethod
    def from_group(cls, group: Tensor, slots: int, size: Tensor | None = None) -> Reduction:
        """Averages each group of tokens into its slot.

        Args:
            group: (B, N) slot of each token, -1 for tokens that are in none.
            slots: K.
            size: (B, N) weights of the tokens in the averages; all equal if None.
        """
        if size is None:
            size = torch.ones(group.shape, device=group.device)
        size = size.masked_fill(group < 0, 0)
        home = group.clamp(min=0)
        total = size.new_zeros(len(group), slots).scatter_add(1, home, size)  # (B, K)
        share = size / total.gather(1, home).clamp(min=1e-12)
        position = torch.arange(group.shape[1], device=group.device).expand_as(group)
        last = group.shape[1]
        first = torch.full((len(group), slots + 1), last, device=group.device)
        first = first.scatter_reduce(1, group.masked_fill(group < 0, slots), position, reduce="amin")[:, :slots]
        return cls(first.masked_fill(first == last, 0), group=group, mask=total > 0, share=share)

    def with_groups(
        self, geometry: Geometry, mask: Tensor | None, *, skip_cls: bool = False
    ) -> tuple[Reduction, Tensor]:
        """This reduction with every real token sent to its nearest kept one, and the squared distances (B, N) there.

        Args:
            geometry: Of the input's tokens.
            mask: (B, N) bool: the input's real tokens.
            skip_cls: Send no other token to CLS; where only CLS is kept, the others get -1.
        """
        slot, squared = nearest_kept(geometry, self.index, self.mask, skip_cls=skip_cls)
        gone = torch.zeros_like(slot, dtype=torch.bool) if mask is None else ~mask
        if skip_cls:  # tokens that could reach only CLS
            position = torch.arange(slot.shape[1], device=slot.device)
            gone = gone | ((slot == 0) & (position > 0))
        group = slot.masked_fill(gone, -1)
        return dataclasses.replace(self, group=group), squared.masked_fill(gone, 0)

    def merged(self, size: Tensor) -> Reduction:
        """This reduction with every token averaged into its group's slot, weighted by `size` (B, N)."""
        assert self.group is not None
        merged = Reduction.from_group(self.group, self.index.shape[1], size)
        return dataclasses.replace(self, share=merged.share)

    def apply(self, x: Tensor) -> Tensor:
        """`x` (B, N) or (B, N, D) reduced to K: gathered, or averaged where this reduction averages."""
        if x.dim() == 2:
            return self.apply(x[:, :, None])[:, :, 0]
        rows, n, _ = x.shape
        table = x.reshape(rows * n, -1)
        start = torch.arange(rows, device=x.device)[:, None] * n  # (B, 1): where each row begins in the table
        if self.share is None:
            picked = table.index_select(0, (self.index + start).flatten())  # faster than gather
            return picked.view(rows, -1, x.shape[2])
        order, begins, slots = self._by_slot()
        share = self.share.gather(1, order).to(x.dtype).flatten()
        bags = F.embedding_bag((order + start).flatten(), table, begins, mode="sum", per_sample_weights=share)
        return bags.view(rows, slots, -1)

    def _by_slot(self) -> tuple[Tensor, Tensor, int]:
        """The tokens of each row in the order of their slots (B, N), where slots begin (B·K,) in that list, and K."""
        assert self.group is not None
        home = self.group.clamp(min=0)  # a token in no group has weight 0 in slot 0
        slots = self.index.shape[1]
        count = home.new_zeros(len(home), slots).scatter_add(1, home, torch.ones_like(home)).flatten()
        return home.sort(dim=1, stable=True).indices, count.cumsum(0) - count, slots

    def sizes(self, size: Tensor, slots: int) -> Tensor:
        """Input tokens behind each slot (B, K), from those behind each token (B, N)."""
        assert self.group is not None
        home = self.group.masked_fill(self.group < 0, slots)
        return F.pad(torch.zeros_like(size[:, :slots]), (0, 1)).scatter_add(1, home, size)[:, :slots]

    def replaced(self, x: Tensor) -> Tensor:
        """`x` (B, N, D) with every token replaced by the kept one of its group; tokens in no group stay.

        Example:
            >>> reduction = Reduction(index=torch.tensor([[0, 2]]), group=torch.tensor([[0, 0, 1, -1]]))
            >>> reduction.replaced(torch.tensor([[[10], [11], [12], [13]]])).flatten().tolist()
            [10, 10, 12, 13]
        """
        return Reduction(self._stand_in()).apply(x)

    def stands_for_itself(self) -> Tensor:
        """(B, N) bool: the kept tokens."""
        stand_in = self._stand_in()
        assert self.group is not None
        return (stand_in == torch.arange(stand_in.shape[1], device=stand_in.device)) & (self.group >= 0)

    def _stand_in(self) -> Tensor:
        """The position (B, N) of the kept token of each token's group; its own for a token in no group."""
        assert self.group is not None
        own = torch.arange(self.group.shape[1], device=self.group.device).expand_as(self.group)
        return torch.where(self.group < 0, own, self.index.gather(1, self.group.clamp(min=0)))

    def then(self, other: Reduction) -> Reduction:
        """This reduction followed by `other`, as one. Neither may average."""
        assert self.group is not None
        return Reduction(self.index.gather(1, other.index), other.follow(self.group), other.mask)

    def follow(self, slot: Tensor) -> Tensor:
        """The new slots of tokens in slots `slot` (B, M); -1 stays -1. Composed over layers, this gives provenance."""
        assert self.group is not None
        return self.group.gather(1, slot.clamp(min=0)).masked_fill(slot < 0, -1)
