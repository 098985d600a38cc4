"""Tokens that stay whatever a selector says: those of the query, and separators.

Such tokens step aside while the others are reduced, and come back in their places. So they are neither dropped nor
merged with others, whatever the selector and the reduction. CLS takes part as always: it is never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import arrays
from .arrays import Array
from .loop import Covering, Exactly, Keep
from .reduction import BEHIND, Reduction
from .tokens import Tokens

if TYPE_CHECKING:
    from .reducer import Decision

PROTECTED = ("query", "separators")


@dataclass(frozen=True)
class Protection:
    """Which tokens of a pair of texts are protected.

    Attributes:
        parts: "query", the first text with the separator behind it; "separators", all of them.
        separator: The id of the separator, by which the sides are told apart; None to do so by token types, where the
            last token of each side is its separator.
    """

    parts: tuple[str, ...]
    separator: int | None = None

    def of(self, ids: Array | None, types: Array | None, real: Array | None) -> Array | None:
        """(B, N) bool: the protected tokens; None if that cannot be told. A text without a second one has none.

        Args:
            ids: (B, N) token ids.
            types: (B, N) token types.
            real: (B, N) bool, True for real tokens; None when all are.
        """
        known = types if self.separator is None else ids
        if known is None:
            return None
        real = arrays.all_true(known.shape, known) if real is None else real
        place = arrays.positions(known.shape[1], known)
        if self.separator is None:
            first, second = real & (known == 0), real & (known != 0)
            ends = (place == first.sum(1)[:, None] - 1) | (place == real.sum(1)[:, None] - 1)
        else:
            ends = real & (known == self.separator)
            first = place <= (ends * 1).argmax(1)[:, None]
            second = real & ~first & ~ends
        found = ends & False
        for part, tokens in zip(PROTECTED, (first, ends), strict=True):
            found = found | tokens if part in self.parts else found
        return found & real & second.any(1)[:, None]


class Aside:
    """The tokens of a batch without the protected ones, and the way back."""

    def __init__(self, tokens: Tokens) -> None:
        assert tokens.protected is not None
        self._tokens, (self._apart, self._more) = tokens, tokens.protected
        rows, n, _ = tokens.hidden.shape
        self._place = arrays.repeated(arrays.positions(n, tokens.hidden), rows)  # (B, N)
        stays = ~self._apart if tokens.mask is None else tokens.mask & ~self._apart
        self._counts = [count - more for count, more in zip(tokens.counts, self._more, strict=True)]
        self._index = arrays.in_order(arrays.masked(self._place, ~stays, BEHIND))[:, : max(self._counts)]  # (B, M)
        self._filled = Reduction.filled_slots(self._index, self._counts)
        self._index = arrays.masked(self._index, self._index == BEHIND, 0)

    @property
    def others(self) -> Tokens:
        """The tokens that are not protected."""
        size, received = (
            None if x is None else arrays.gathered(x, self._index) for x in (self._tokens.size, self._tokens.received)
        )
        hidden, compared = (
            None if x is None else Reduction(self._index).apply(x) for x in (self._tokens.hidden, self._tokens.compared)
        )
        return Tokens(hidden, self._counts, self._filled, size=size, received=received, compared=compared)

    def keep(self, keep: Keep, window: int | None) -> Keep:
        """How many of the others stay, so that as many tokens stay in all; CLS always does.

        Args:
            keep: How many tokens stay in all.
            window: Of neighbours that are averaged, where that decides how many stay.
        """
        if isinstance(keep, Covering):
            options = (self._less(row, more) for row, more in zip(keep.options, self._more, strict=True))
            return Covering(tuple(options), keep.radius, keep.relative)
        if window is not None:
            return Exactly(tuple(1 - (1 - count) // window for count in self._counts))
        kept = (
            min(self._less((count,), more)[0], others)
            for count, more, others in zip(keep.counts, self._more, self._counts, strict=True)
        )
        return Exactly(tuple(kept))

    @staticmethod
    def _less(counts: Sequence[int], more: int) -> tuple[int, ...]:
        return tuple(max(count - more, 1) for count in counts)

    def returned(self, decision: Decision) -> tuple[list[int], Reduction]:
        """A decision about the others as one about all tokens: the counts, and the reduction."""
        made, n = decision.reduction, self._place.shape[1]
        kept = arrays.gathered(self._index, made.index)  # (B, K): an empty slot stands for CLS, which is kept anyway
        kept = kept if made.mask is None else arrays.masked(kept, ~made.mask, 0)
        stays = arrays.scattered(arrays.copied(self._apart), kept, kept >= 0)
        counts = [count + more for count, more in zip(decision.counts, self._more, strict=True)]
        index = arrays.in_order(arrays.masked(self._place, ~stays, BEHIND))[:, : max(counts)]
        mask = Reduction.filled_slots(index, counts)
        index = arrays.masked(index, index == BEHIND, 0)
        if made.group is None:
            return counts, Reduction(index, mask=mask)
        slot = (stays * 1).cumsum(1) - 1  # (B, N)
        # What is not there is written to a column that is cut off again.
        target = self._index if self._filled is None else arrays.masked(self._index, ~self._filled, n)
        home = arrays.gathered(slot, arrays.gathered(kept, made.group.clip(min=0)))
        home = arrays.masked(home, made.group < 0, -1)
        own = arrays.masked(slot, ~self._apart, -1)
        group = arrays.scattered(arrays.widened(own), target, home)[:, :n]
        share = None
        if made.share is not None:
            whole = arrays.as_type(self._apart * 1, made.share)
            share = arrays.scattered(arrays.widened(whole), target, made.share)[:, :n]
        return counts, Reduction(index, group, mask, share)
