"""A query and its documents as pairs of token ids. The query is tokenized once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..boundary import translating
from ..errors import CheckpointError
from .batches import Encoded


class Pairs:
    """Makes pairs of a query with each of its documents, as the model's tokenizer would.

    Too long pairs are cut from their longer side. Threads may share it.

    Args:
        backend: A tokenizer of the package `tokenizers`; it is copied.
        longest: The most tokens of a pair, special tokens included.
        types: Whether the model reads token types.
    """

    def __init__(self, backend: Any, longest: int, *, types: bool) -> None:
        # Which side of a pair is cut depends on both whole sides, so a second copy joins them.
        self._tokenizer, self._joining = (type(backend).from_str(backend.to_str()) for _ in range(2))
        for copy in (self._tokenizer, self._joining):
            copy.no_padding()
        self._tokenizer.no_truncation()
        self._joining.enable_truncation(longest)
        self._types = types

    def __call__(self, query: str, documents: Sequence[str]) -> list[Encoded]:
        """The pairs, in the order of the documents."""
        tokenizer = self._tokenizer
        with translating(CheckpointError, "the tokenizer of this model fails", "save the one that it was trained with"):
            asked = tokenizer.encode(query, add_special_tokens=False)
            texts = tokenizer.encode_batch(list(documents), add_special_tokens=False)
            pairs = [self._joining.post_process(asked, text) for text in texts]
        return [Encoded(pair.ids, pair.type_ids if self._types else None) for pair in pairs]
