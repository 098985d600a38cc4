"""What kind of texts a model was trained on: single texts or pairs, and how long. So that others are noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ..checks import check_choice, check_flag, check_kind, check_number

if TYPE_CHECKING:
    from .batches import Encoded

_FAR = 4  # times as long, or as short; sentences are twice to three times as long as phrases


@dataclass(frozen=True)
class TextKind:
    """What some texts are like.

    Attributes:
        pairs: Whether they are pairs of texts; None if their tokens do not tell.
        tokens: The median of their numbers of tokens.
    """

    pairs: bool | None
    tokens: int

    @classmethod
    def of(cls, items: Sequence[Encoded], sep_id: int | None) -> TextKind:
        """The kind of these texts; `sep_id` is the token that ends a text, and stands twice or more in a pair.

        Example:
            >>> from pyramid_bert.text.batches import Encoded
            >>> TextKind.of([Encoded([2, 7, 8, 3]), Encoded([2, 7, 3])], sep_id=3)
            TextKind(pairs=False, tokens=3)
        """
        pairs = None if sep_id is None else 2 * sum(item.input_ids.count(sep_id) > 1 for item in items) > len(items)
        return cls(pairs, int(median(map(len, items))))

    @classmethod
    def from_dict(cls, data: Any) -> TextKind:
        """The kind that `asdict` described; raises for what is none."""
        check_kind("texts", data, dict, "train the model again")
        for name in data:
            check_choice("field of texts", name, cls.__dataclass_fields__)
        if data.get("pairs") is not None:
            check_flag("pairs", data["pairs"])
        check_number("tokens", data.get("tokens"), 1, whole=True)
        return cls(data.get("pairs"), data["tokens"])

    @property
    def words(self) -> str:
        """Pairs or single texts, for messages."""
        return "pairs of texts" if self.pairs else "single texts"

    def is_other_than(self, known: TextKind) -> bool:
        """Whether one is of pairs, and the other of single texts."""
        return None not in (self.pairs, known.pairs) and self.pairs != known.pairs

    def is_far_from(self, known: TextKind) -> bool:
        """Whether the lengths have little in common.

        Example:
            >>> phrases, sentences, reviews = (TextKind(False, n) for n in (11, 25, 230))
            >>> sentences.is_far_from(phrases), reviews.is_far_from(phrases)
            (False, True)
        """
        return max(self.tokens, known.tokens) > _FAR * min(self.tokens, known.tokens)
