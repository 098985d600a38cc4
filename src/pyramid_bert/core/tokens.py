"""The tokens of a batch between two steps of the loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import PyramidError
from . import arrays
from .arrays import Array
from .reduction import Reduction

if TYPE_CHECKING:
    from .reducer import Decision
    from .tables import Summands


class Protected(NamedTuple):
    """The tokens (B, N) bool that are neither dropped nor merged, without CLS, and how many each row has."""

    mask: Array
    counts: list[int]

    @classmethod
    def of(cls, mask: Array | None) -> Protected | None:
        """Those in `mask` (B, N), without CLS; None if there are none. Reads their number from the device."""
        if mask is None:
            return None
        mask = mask & (arrays.positions(mask.shape[1], mask) > 0)
        counts = mask.sum(1).tolist()
        return cls(mask, counts) if any(counts) else None

    def at(self, index: Array) -> Protected:
        """These tokens after a reduction that keeps `index` (B, K)."""
        return Protected(arrays.gathered(self.mask, index), self.counts)


@dataclass(eq=False)
class Tokens:
    """The tokens of a batch between two steps of the loop. CLS stands first, pads at the end.

    Attributes:
        hidden: (B, N, D). Inside a layer that computes only CLS: (B, 1, D).
        counts: Real tokens of each row, kept on the host so that nothing is read back from the device.
        mask: (B, N) bool; None when no row has pads.
        size: (B, N) input tokens behind each token; None when that is 1 or attention is not weighted.
        positions: (B, N) the input position of each token; None while every token stands at its own, 0 to N - 1. A copy
            has the position of its original.
        received: (B, N) the attention that each token received in this layer, if the selector needs it.
        compared: (B, N, D) the vectors that selectors compare, if these are not the hidden states themselves.
        resting: (B, N - 1, D) the other tokens, inside a layer that computes only CLS.
        copies: With "replace": the original of each token; `counts` then counts originals.
        tables: The summands of the embeddings, before the first layer and if known.
        bias: (B, 1, 1, N) the bias of keys, if it is given instead of `mask` and `size`, as exported graphs do.
        masks: What the family's attention needs for this `mask`, `size` and `positions`.
        owner: The model that runs: families look up there what depends on positions.
        given: The input of the current layer, if it has forward hooks.
        protected: The tokens that reductions leave as they are, beside CLS; None if there are none.
    """

    hidden: Array
    counts: list[int]
    mask: Array | None = None
    size: Array | None = None
    positions: Array | None = None
    received: Array | None = None
    compared: Array | None = None
    resting: Array | None = None
    copies: Reduction | None = None
    tables: Summands | None = None
    bias: Array | None = None
    masks: Any = None
    owner: Any = None
    given: Array | None = None
    protected: Protected | None = None

    @classmethod
    def of(
        cls,
        hidden: Array,
        mask: Array | None,
        *,
        replaces: bool = False,
        owner: Any = None,
        protected: Array | None = None,
    ) -> Tokens:
        """The tokens at the start of a pass: real tokens moved to the left, padding cut off.

        Reads the true lengths from the device, once per pass.

        Args:
            hidden: (B, N, D) embeddings, CLS first.
            mask: (B, N) bool, True for real tokens; None when all are.
            replaces: Reductions overwrite tokens with copies instead of removing them.
            owner: The model that runs.
            protected: (B, N) bool, True for tokens that no reduction may drop or merge.
        """
        rows, n, _ = hidden.shape
        counts, tables, positions = [n] * rows, _summands_of(hidden), None
        if mask is not None:
            contiguous = (mask[:, 1:] <= mask[:, :-1]).all()
            *counts, cls_is_real, contiguous = arrays.joined(
                [mask.sum(1), mask[:, 0].all()[None] * 1, contiguous[None] * 1]
            ).tolist()
            if not cls_is_real:
                row = mask[:, 0].tolist().index(False)
                raise PyramidError(
                    f"row {row} masks its first token, but CLS is read there; pad on the right "
                    "(tokenizer.padding_side = 'right') and give every row at least one token"
                )
            widest = max(counts)
            if not contiguous:
                positions = arrays.sorted_from(mask * 1, descending=True)[:, :widest]
                protected = None if protected is None else arrays.gathered(protected, positions)
                hidden, mask, tables = Reduction(positions).apply(hidden), arrays.gathered(mask, positions), None
            hidden, mask = hidden[:, :widest], mask[:, :widest]
            protected = None if protected is None else protected[:, :widest] & mask
            tables = None if tables is None else tables.cut(widest)
        mask = None if min(counts) == hidden.shape[1] else mask
        copies = Reduction.keeping_all(hidden, mask) if replaces else None
        how: dict[str, Any] = {"positions": positions, "copies": copies, "tables": tables, "owner": owner}
        return cls(hidden, counts, mask, protected=Protected.of(protected), **how)

    @property
    def sizes(self) -> Array:
        """The sizes (B, N), in the precision of distances: fp32, or fp64 for an fp64 model."""
        if self.size is not None:
            return self.size
        return arrays.filled(self.hidden.shape[:2], 1, arrays.full_precision(self.hidden[:0]))

    def places(self) -> Array:
        """The input position (B, N) of each token, or (1, N) if all rows have the same."""
        if self.positions is not None:
            return self.positions
        return arrays.positions(self.hidden.shape[1], self.hidden)[None]

    def key_bias(self) -> Array | None:
        """The bias (B, 1, 1, N) of attention scores: log(size) for real keys, a large negative number for pads.

        A key with a bias of log(s) weighs as much as s copies of it (the paper's Remark 1).
        """
        if self.bias is not None or (self.mask is None and self.size is None):
            return self.bias
        if self.size is None:
            bias = arrays.filled(self.hidden.shape[:2], 0, self.hidden)
        else:
            bias = arrays.as_type(arrays.logarithm(self.size.clip(min=1e-6)), self.hidden)
        if self.mask is not None:
            bias = arrays.masked(bias, ~self.mask, arrays.least(bias))
        return bias[:, None, None, :]

    def originals(self) -> Tokens:
        """The tokens that are not copies; `self` unless reductions replace."""
        if self.copies is None:
            return self
        hidden = self.copies.apply(self.hidden)  # (B, K, D)
        different = hidden.shape[1]
        mask = None if min(self.counts) == different else self.copies.mask
        compared = None if self.compared is None else self.copies.apply(self.compared)
        received = self.received
        if received is not None:  # an original receives what its copies do
            received = self.copies.sizes(received, different)
        protected = None if self.protected is None else self.protected.at(self.copies.index)
        seen: dict[str, Any] = {"received": received, "compared": compared, "protected": protected}
        return Tokens(hidden, self.counts, mask, tables=self.tables, **seen)

    def reduced(self, decision: Decision) -> Tokens:
        """The tokens after a decision."""
        handed_on: dict[str, Any] = {"owner": self.owner, "given": self.given}
        if self.copies is not None:
            # A copy follows its original. Equal vectors may differ by rounding, which must not decide where it goes.
            copies = self.copies.then(decision.reduction)
            start = arrays.repeated(arrays.positions(self.hidden.shape[1], self.hidden), len(self.hidden))
            places = copies.replaced(start if self.positions is None else self.positions)
            hidden = copies.replaced(self.hidden)
            return replace(
                Tokens(hidden, decision.counts, self.mask, positions=places, copies=copies, **handed_on),
                protected=self.protected,
            )
        reduction, slots = decision.reduction, max(decision.counts)
        before = self.positions
        return Tokens(
            hidden=reduction.apply(self.hidden) if decision.hidden is None else decision.hidden,
            counts=decision.counts,
            mask=None if min(decision.counts) == slots else reduction.mask,
            size=decision.size,
            positions=reduction.index if before is None else arrays.gathered(before, reduction.index),
            protected=None if self.protected is None else self.protected.at(reduction.index),
            **handed_on,
        )

    def rejoined(self) -> Tokens:
        """The tokens after a layer that computed only CLS, with the resting ones behind it."""
        assert self.resting is not None
        hidden = arrays.in_a_row([self.hidden, self.resting])
        if self.copies is not None:  # copies of CLS change with it
            hidden = self.copies.replaced(hidden)
        return replace(self, hidden=hidden, resting=None)


def _summands_of(hidden: Array) -> Summands | None:
    """The summands that embeddings left with `hidden`; see `tables`."""
    if arrays.is_numpy(hidden):
        return None
    from .tables import Summands

    return Summands.taken_from(hidden)
