"""The record of a run: which token survived to which layer, where the dropped ones went, and how far away that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .reduction import Reduction


@dataclass(frozen=True)
class LayerTrace:
    """The tokens after one reduction. Positions are those of the input.

    Attributes:
        layer: The layer that reduced, from 1; 0 for a selection at the input.
        kept: (B, K) input position of the token in each slot, -1 for empty slots. A slot made by pooling is named
            after the first token in it.
        home: (B, N) input position of the token that now stands for each input token; -1 for pads and tokens that
            nothing stands for.
        radius: (B,) covering radius of this reduction, in the metric of the selection.
    """

    layer: int
    kept: Tensor
    home: Tensor
    radius: Tensor


@dataclass(frozen=True)
class Covers:
    """How well the kept tokens of each row cover the dropped ones, by layer.

    Attributes:
        radius: (B, L) the covering radius; 0 where a layer drops nothing. A selection at the input stands at layer 1.
        alone: (B, L) the radius that CLS alone would leave there: what `radius` is to be compared with. 0 likewise.
        kept: (B, L) the tokens that each layer keeps.
    """

    radius: Tensor
    alone: Tensor
    kept: Tensor

    @property
    def relative(self) -> Tensor:
        """(B, L) the radius as a share of what CLS alone would leave, in 0-1."""
        return self.radius / self.alone.clamp(min=1e-12)


@dataclass
class Radii:
    """The covers of one forward pass, filled while it runs; much lighter than a `Trace`."""

    layers: int
    _counts: list[int] = field(default_factory=list)
    _found: dict[int, tuple[Tensor, Tensor, list[int]]] = field(default_factory=dict)

    def start(self, counts: Sequence[int]) -> None:
        """Forgets what was recorded; row b has `counts[b]` tokens."""
        self._counts = list(counts)
        self._found.clear()

    def record(self, layer: int, radius: Tensor, alone: Tensor, keep: Sequence[int]) -> None:
        """Adds what a layer did (0: the input): its radius (B,), that of CLS alone, and the tokens kept."""
        self._found[max(layer, 1)] = radius, alone, list(keep)

    @property
    def covers(self) -> Covers:
        """What the last pass recorded, in float32 on the CPU."""
        rows = len(self._counts)
        radius, alone = torch.zeros(2, rows, self.layers)
        kept = torch.tensor(self._counts)[:, None].repeat(1, self.layers)
        for layer, (radius_here, alone_here, keep) in sorted(self._found.items()):
            radius[:, layer - 1], alone[:, layer - 1] = radius_here.float().cpu(), alone_here.float().cpu()
            kept[:, layer - 1 :] = torch.tensor(keep)[:, None]
        return Covers(radius, alone, kept)


@dataclass
class Trace:
    """All reductions of one forward pass, in order; filled while it runs."""

    layers: list[LayerTrace] = field(default_factory=list)
    _slot: Tensor | None = None  # (B, N): the slot in which each input token stands now
    _position: Tensor | None = None  # (B, N): the input position of the token in each slot, before any reduction

    def start(self, mask: Tensor | None, hidden: Tensor) -> None:
        """Forgets what was recorded; every real token of `hidden` (B, N, D) stands for itself."""
        self.layers.clear()
        rows, n, _ = hidden.shape
        if mask is None:
            self._slot = self._position = torch.arange(n, device=hidden.device).expand(rows, n)
        else:  # the encoder pushes real tokens to the left
            self._slot = (mask.cumsum(1) - 1).masked_fill(~mask, -1)
            self._position = mask.long().sort(dim=1, descending=True, stable=True).indices

    def record(self, layer: int, reduction: Reduction, radius: Tensor, slots: int) -> None:
        """Adds a reduction whose groups are known."""
        assert self._slot is not None
        assert self._position is not None
        self._slot = reduction.follow(self._slot)
        rows, n = self._slot.shape
        previous = self.layers[-1].kept if self.layers else self._position  # (B, slots before)
        if reduction.index is not None:
            kept = previous.gather(1, reduction.index)
        else:  # the first token of each group
            group = reduction.group
            assert group is not None
            at = torch.where(group < 0, slots, group)
            first = torch.full((rows, slots + 1), n, device=group.device)
            kept = first.scatter_reduce(1, at, previous[:, : at.shape[1]], reduce="amin")[:, :slots]
        if reduction.mask is not None:
            kept = kept.masked_fill(~reduction.mask, -1)
        home = kept.gather(1, self._slot.clamp(min=0)).masked_fill(self._slot < 0, -1)
        self.layers.append(LayerTrace(layer, kept, home, radius))
