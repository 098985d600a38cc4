"""The calibration rows: a fixed part to search on, and the rest, whose answers no choice depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..bench.workload import Workload
from ..text.batches import Encoded, sorted_batches
from ..text.sampling import shuffled

_TOKENS_TO_TIME = 16_384


@dataclass(frozen=True)
class Rows:
    """Texts in a fixed mixed order: those to search on, then those held out.

    Attributes:
        items: All of them, as the model reads them.
        labels: One a text; None without labels.
        search: How many of them are searched on.
        pad_id: The padding token.
    """

    items: list[Encoded]
    labels: list[Any] | None
    search: int
    pad_id: int

    @classmethod
    def of(cls, items: Sequence[Encoded], labels: Sequence[Any] | None, pad_id: int, held_out: float) -> Rows:
        """The rows of a calibration set, mixed and divided: the share `held_out` is not searched on."""
        order = shuffled(len(items), 0)
        mixed = None if labels is None else [labels[i] for i in order]
        return cls([items[i] for i in order], mixed, len(items) - held_out_rows(held_out, len(items)), pad_id)

    @property
    def lengths(self) -> list[int]:
        """The true length of each row."""
        return [len(item) for item in self.items]

    def to_time(self, batch_size: int, *, held_out: bool) -> Workload:
        """Some of the rows to search on, or of those held out: whole batches of the sorted rows, evenly chosen."""
        items = self.items[self.search :] if held_out else self.items[: self.search]
        batches = sorted_batches([len(item) for item in items], batch_size)
        wanted = max(3, int(len(batches) * _TOKENS_TO_TIME / sum(map(len, items))))
        step = max(1, len(batches) // wanted)
        some = [items[i] for batch in batches[(step - 1) // 2 :: step] for i in batch]
        return Workload(some, max(map(len, some)), "rows of the calibration set", self.pad_id)


def held_out_rows(share: float, rows: int) -> int:
    """How many of the rows a share of them is, in whole rows.

    Example:
        >>> held_out_rows(0.5, 59), held_out_rows(0.29, 100)
        (29, 29)
    """
    return int(share * rows + 1e-9)  # 0.29 * 100 is 28.999...
