"""What a benchmark runs on: texts of a file at their true lengths, or made-up rows of given lengths."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.loop import Pass, Recorder
from ..errors import DataError
from ..runtimes.devices import wait_for
from ..text.batches import Encoded, encode, sorted_batches
from ..text.inference import collate
from ..text.tables import Text


@dataclass(frozen=True)
class Workload:
    """Rows to run a model on.

    Attributes:
        items: The rows.
        padded_length: The N of the padded baseline.
        source: Where the rows come from, for the record.
        pad_id: The padding token.
    """

    items: list[Encoded]
    padded_length: int
    source: str
    pad_id: int = 0

    @classmethod
    def from_texts(
        cls, tokenizer: Any, texts: Sequence[Text], *, positions: int, max_length: int | None, source: str, **told: Any
    ) -> Workload:
        """The texts as the model reads them; N is `max_length`, or the longest text. `told`: see `encode`."""
        items = encode(tokenizer, texts, positions=positions, max_length=max_length, **told)
        padded = max_length or max(map(len, items))
        return cls(items, padded, source, tokenizer.pad_token_id)

    @classmethod
    def synthetic(cls, lengths: Sequence[int], *, vocabulary: int = 30_000, seed: int = 0) -> Workload:
        """Random tokens in rows of the given lengths; N is the longest.

        Example:
            >>> [len(item) for item in Workload.synthetic([4, 6]).items]
            [4, 6]
        """
        if not lengths or min(lengths) < 1:
            raise DataError(f"a workload needs rows of at least one token, got lengths {list(lengths)[:5]}")
        draw = random.Random(seed)
        rows = [Encoded([draw.randrange(vocabulary // 2, vocabulary) for _ in range(n)]) for n in lengths]
        return cls(rows, max(lengths), f"{len(rows)} random rows of {min(lengths)}-{max(lengths)} tokens")

    @property
    def lengths(self) -> list[int]:
        """The true length of each row."""
        return [len(item) for item in self.items]

    def as_they_come(self, batch_size: int) -> list[list[int]]:
        """Batches of row numbers in the order of the rows."""
        rows = list(range(len(self.items)))
        return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]

    def by_length(self, batch_size: int) -> list[list[int]]:
        """Batches of row numbers of similar length."""
        return sorted_batches(self.lengths, batch_size)

    def as_served(self, batch_size: int) -> list[list[int]]:
        """Batches sorted by length; single rows in their order, like requests.

        Example:
            >>> rows = Workload.synthetic([9, 3, 5])
            >>> rows.as_served(1), rows.as_served(2)
            ([[0], [1], [2]], [[0, 2], [1]])
        """
        return self.as_they_come(1) if batch_size == 1 else self.by_length(batch_size)

    def tensors(
        self, batches: list[list[int]], length: int | None = None, device: torch.device | None = None
    ) -> list[dict[str, Tensor]]:
        """The batches on `device` (the CPU if None), padded to `length` or to the longest row of each."""
        return [collate([self.items[i] for i in rows], self.pad_id, length, device) for rows in batches]


@torch.inference_mode()
def forward_all(model: Any, batches: Sequence[dict[str, Tensor]], record: Recorder | None = None) -> None:
    """Runs the model on each of the batches, and returns when its device has finished; passes may be recorded."""
    asked = {} if record is None else {"pyramid_pass": Pass(record)}
    for batch in batches:
        model(**{name: tensor.to(model.device) for name, tensor in batch.items()}, **asked)
    wait_for(model.device)
