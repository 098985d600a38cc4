"""Recorders of a pass: which tokens each layer keeps, where the others go, and the covering radius."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import arrays
from .arrays import Array
from .loop import Recorder, Step
from .reducer import Decision
from .reduction import Reduction
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
    kept: Array
    home: Array
    radius: Array


class Slots(Recorder):
    """Follows which slot represents each input token, through the last pass."""

    def __init__(self) -> None:
        self._slot: Array | None = None  # (B, N): the slot that represents each input token, -1 for none

    def start(self, tokens: Tokens, n: int) -> None:
        """Starts anew; every real token represents itself."""
        place = _places(tokens)
        real = _own_places(tokens) if tokens.mask is None else arrays.masked(_own_places(tokens), ~tokens.mask, -1)
        self._slot = arrays.scattered(arrays.filled((len(place), n), -1, place), place, real)

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """Follows a reduction. Where tokens are replaced by copies, each stays in its slot."""
        assert self._slot is not None
        if tokens.copies is None:
            self._slot = decision.grouped.follow(self._slot)

    def spread(self, hidden: Array) -> Array:
        """The vectors (B, K, D) that are left, for each input token (B, N, D); CLS's where none represents it."""
        assert self._slot is not None
        return Reduction(self._slot.clip(min=0)).apply(hidden)


class Trace(Slots):
    """All reductions of the last pass, in order, in `layers`.

    Record with `Pass(trace, whole=True)`: the last layer then reduces too, though a classifier reads only its CLS.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[LayerTrace] = []
        self._kept: Array | None = None  # (B, slots): the input position of the token in each slot

    def start(self, tokens: Tokens, n: int) -> None:
        """Starts anew."""
        super().start(tokens, n)
        self.layers.clear()
        self._kept = _places(tokens)

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """Adds a reduction."""
        assert self._slot is not None
        assert self._kept is not None
        reduction = decision.grouped
        self._slot = reduction.follow(self._slot)
        self._kept = arrays.gathered(self._kept, reduction.index)
        kept = self._kept if reduction.mask is None else arrays.masked(self._kept, ~reduction.mask, -1)
        home = arrays.masked(arrays.gathered(kept, self._slot.clip(min=0)), self._slot < 0, -1)
        self.layers.append(LayerTrace(step.number, kept, home, decision.radius))


def _own_places(tokens: Tokens) -> Array:
    """(B, N) the slot of each token."""
    return arrays.repeated(arrays.positions(tokens.hidden.shape[1], tokens.hidden), len(tokens.hidden))


def _places(tokens: Tokens) -> Array:
    """(B, N) the input position of each token."""
    return _own_places(tokens) if tokens.positions is None else tokens.positions


@dataclass(frozen=True)
class Coverage:
    """How well the kept tokens of each row cover the dropped ones, by layer.

    Attributes:
        radius: (B, L) the covering radius; 0 where a layer drops nothing. A selection at the input stands at layer 1.
        alone: (B, L) the covering radius of CLS without any other token; 0 where a layer drops nothing.
        kept: (B, L) the tokens that each layer keeps.
    """

    radius: NDArray[Any]
    alone: NDArray[Any]
    kept: NDArray[Any]

    @property
    def relative(self) -> NDArray[Any]:
        """(B, L) the radius as a share of `alone`, in 0-1."""
        share: NDArray[Any] = self.radius / self.alone.clip(min=1e-12)
        return share


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
    def kept(self) -> NDArray[Any]:
        """(B, L) the tokens that each layer kept."""
        kept = np.repeat(np.array(self._counts)[:, None], self.layers, axis=1)
        for layer, counts in sorted(self._found.items()):
            kept[:, layer - 1 :] = np.array(counts)[:, None]
        return kept


@dataclass
class Radii(Kept):
    """Records the covering radius of each layer as well. Cheaper than a `Trace`.

    For the core-set the radius is a by-product of the selection; other selectors need one Gram matrix per layer.
    """

    _radii: dict[int, tuple[Array, Array]] = field(default_factory=dict)

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
        """What the last pass recorded."""
        radius, alone = np.zeros((2, len(self._counts), self.layers), dtype=np.float32)
        for layer, found in self._radii.items():
            radius[:, layer - 1], alone[:, layer - 1] = (arrays.on_host(x) for x in found)
        return Coverage(radius, alone, self.kept)
