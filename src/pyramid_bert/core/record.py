"""Recorders of a pass: which tokens each layer keeps, where the others go, and the covering radius."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .loop import Recorder, Step
from .reducer import Decision
from .tokens import Tokens


@dataclass(frozen=True)
class LayerTrace:
    """The tokens after one reduction. Positions are those of the input.

    Attributes:
        layer: The layer that reduced, from 1; 0 for a selection at the input.
        kept: (B, K) input position of the token in each slot, -1 for empty slots. The mean of a group has the position
            of the first token of the group.
        home: (B, N) input position of the token that now represents each input token; -1 for pads and for tokens that
            none represents.
        radius: (B,) covering radius of this reduction, in the metric of the selection.
    """

    layer: int
    kept: Tensor
    home: Tensor
    radius: Tensor


class Trace(Recorder):
    """All reductions of the last pass, in order, in `layers`.

    Record with `Pass(trace, whole=True)`: the last layer then reduces too, though a classifier reads only its CLS.
    """

    def __init__(self) -> None:
        self.layers: list[LayerTrace] = []
        self._slot: Tensor | None = None  # (B, N): the slot that represents each input token
        self._kept: Tensor | None = None  # (B, slots): the input position of the token in each slot

    def start(self, tokens: Tokens, n: int) -> None:
        """Starts anew; every real token represents itself."""
        self.layers.clear()
        rows, widest = tokens.hidden.shape[:2]
        place = torch.arange(widest, device=tokens.hidden.device).expand(rows, widest)
        self._kept = place if tokens.positions is None else tokens.positions
        slot = torch.full((rows, n), -1, device=place.device)
        real = place if tokens.mask is None else place.masked_fill(~tokens.mask, -1)
        self._slot = slot.scatter(1, self._kept, real)

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """Adds a reduction."""
        assert self._slot is not None
        assert self._kept is not None
        reduction = decision.grouped
        self._slot = reduction.follow(self._slot)
        self._kept = self._kept.gather(1, reduction.index)
        kept = self._kept if reduction.mask is None else self._kept.masked_fill(~reduction.mask, -1)
        home = kept.gather(1, self._slot.clamp(min=0)).masked_fill(self._slot < 0, -1)
        self.layers.append(LayerTrace(step.number, kept, home, decision.radius))


@dataclass(frozen=True)
class Coverage:
    """How well the kept tokens of each row cover the dropped ones, by layer.

    Attributes:
        radius: (B, L) the covering radius; 0 where a layer drops nothing. A selection at the input stands at layer 1.
        alone: (B, L) the covering radius of CLS without any other token; 0 where a layer drops nothing.
        kept: (B, L) the tokens that each layer keeps.
    """

    radius: Tensor
    alone: Tensor
    kept: Tensor

    @property
    def relative(self) -> Tensor:
        """(B, L) the radius as a share of `alone`, in 0-1."""
        return self.radius / self.alone.clamp(min=1e-12)


@dataclass
class Kept(Recorder):
    """Records how many tokens each layer keeps in the last pass, in a model of `layers` layers."""

    layers: int
    _counts: list[int] = field(default_factory=list)
    _found: dict[int, list[int]] = field(default_factory=dict)

    def start(self, tokens: Tokens, n: int) -> None:
        """Starts anew."""
        self._counts = list(tokens.counts)
        self._found.clear()

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """Adds what a layer kept."""
        self._found[max(step.number, 1)] = list(decision.counts)

    @property
    def kept(self) -> Tensor:
        """(B, L) the tokens that each layer kept."""
        kept = torch.tensor(self._counts)[:, None].repeat(1, self.layers)
        for layer, counts in sorted(self._found.items()):
            kept[:, layer - 1 :] = torch.tensor(counts)[:, None]
        return kept


@dataclass
class Radii(Kept):
    """Records the covering radius of each layer as well. Cheaper than a `Trace`.

    For the core-set the radius is a by-product of the selection; other selectors need one Gram matrix per layer.
    """

    _radii: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def start(self, tokens: Tokens, n: int) -> None:
        """Starts anew."""
        super().start(tokens, n)
        self._radii.clear()

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """Adds what a layer did."""
        super().reduced(step, decision, tokens)
        self._radii[max(step.number, 1)] = decision.radius, decision.candidates.cls_radius()

    @property
    def coverage(self) -> Coverage:
        """What the last pass recorded, in float32 on the CPU."""
        radius, alone = torch.zeros(2, len(self._counts), self.layers)
        for layer, found in self._radii.items():
            radius[:, layer - 1], alone[:, layer - 1] = (x.float().cpu() for x in found)
        return Coverage(radius, alone, self.kept)
