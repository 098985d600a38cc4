"""A tokenizer without transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..boundary import translating
from ..errors import CheckpointError, MissingExtraError
from .record import AGAIN


class Words:
    """The tokenizer in a file of the package `tokenizers`, called like one of transformers."""

    model_input_names = ("input_ids", "token_type_ids")  # graphs that read no types are not given them

    def __init__(self, file: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("tokenizers", "openvino", "an exported model") from error
        with translating(CheckpointError, f"{file} is damaged", AGAIN):
            self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()

    @property
    def backend_tokenizer(self) -> Any:
        """The tokenizer itself, under the name that transformers has for it."""
        return self._tokenizer

    def __call__(
        self,
        first: Sequence[str],
        second: Sequence[str] | None = None,
        *,
        truncation: bool = False,
        max_length: int | None = None,
        **_: Any,
    ) -> Mapping[str, Any]:
        """The ids and types of texts, or of pairs of texts."""
        if truncation and max_length is not None:
            self._tokenizer.enable_truncation(max_length)
        else:
            self._tokenizer.no_truncation()
        found = self._tokenizer.encode_batch(list(first if second is None else zip(first, second, strict=True)))
        return {"input_ids": [one.ids for one in found], "token_type_ids": [one.type_ids for one in found]}

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """The tokens with these ids."""
        return [self._tokenizer.id_to_token(number) or "" for number in ids]
