"""Texts to batches: encoded once without padding, sorted by true length, padded only to the longest of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..boundary import translating
from ..checks import check_number
from ..errors import CheckpointError, DataError, shown
from .labels import Where
from .tables import Text

_LABELS = {"label", "labels", "target", "class", "prediction"}  # columns that are not the second text of a pair
CUT = "pass max_length={positions} to cut long texts"


@dataclass(frozen=True)
class Encoded:
    """One text as the model reads it."""

    input_ids: list[int]
    token_type_ids: list[int] | None = None

    def __len__(self) -> int:
        return len(self.input_ids)


def encode(
    tokenizer: Any,
    texts: Iterable[Any],
    *,
    positions: int,
    max_length: int | None = None,
    where: Where | None = None,
    remedy: str = CUT,
) -> list[Encoded]:
    """The texts as token ids, at their true lengths.

    Args:
        tokenizer: A transformers tokenizer.
        texts: Texts, or pairs of texts.
        positions: The most tokens that the model can read.
        max_length: Cut longer texts to this many tokens. Without it a text that is too long for the model is an error.
        where: Names the place of a text in that error, like `Table.where`; without it the error says "text 3".
        remedy: What that error tells the user to do.
    """
    texts = check_texts(texts)
    if max_length is not None:
        hint = f"the model reads {positions} tokens"
        check_number("max_length", max_length, 2, positions, hint, whole=True, error=DataError)
    first = [text if isinstance(text, str) else text[0] for text in texts]
    second = None if isinstance(texts[0], str) else [text[1] for text in texts]
    cut = {"truncation": max_length is not None, "max_length": max_length}
    with translating(CheckpointError, "the tokenizer of this model fails", "save the one that it was trained with"):
        batch = tokenizer(first, second, **cut, verbose=False, return_attention_mask=False)
        types = batch.get("token_type_ids") or [None] * len(texts)
        encoded = [Encoded(ids, kinds) for ids, kinds in zip(batch["input_ids"], types, strict=True)]
    for number, item in enumerate(encoded):
        if len(item) > positions:
            named = f"text {number}" if where is None else f"{where(number)}: the text"
            limit = f"has {len(item)} tokens and the model reads at most {positions}"
            raise DataError(f"{named} {limit}; {remedy.format(positions=positions)}")
    return encoded


def check_texts(texts: Iterable[Any]) -> list[Text]:
    """The texts as a list; raises unless they are non-empty texts, or pairs of them.

    Args:
        texts: A list, a numpy array or a pandas column. An array or a data frame of two columns holds pairs.

    Example:
        >>> check_texts(np.array([["is it good?", "it is"], ["is it dull?", "no"]]))
        [('is it good?', 'it is'), ('is it dull?', 'no')]
    """
    if isinstance(texts, str):
        raise DataError("expected a list of texts, got one text; put it into a list: [text]")
    if isinstance(texts, bytes | Mapping | Set) or not isinstance(texts, Iterable):
        raise DataError(f"expected a list of texts, got {type(texts).__name__}; give a list or a column of texts")
    if hasattr(texts, "shape"):  # numpy or pandas: (n,), (n, 1) or (n, 2)
        _check_columns(texts)
        texts = np.asarray(texts).tolist()
        texts = [(row[0] if len(row) == 1 else tuple(row)) if isinstance(row, list) else row for row in texts]
    checked = list(texts)
    if not checked:
        raise DataError("no texts given; at least one is needed")
    pairs = isinstance(checked[0], tuple | list)
    for number, text in enumerate(checked):
        parts = text if isinstance(text, tuple | list) else (text,)
        if len(parts) != (2 if pairs else 1) or not all(isinstance(part, str) for part in parts):
            wanted = "a pair of texts, like the first one" if pairs else "a text"
            raise DataError(f"text {number} should be {wanted}, got {shown(text)}")
        if not all(part.strip() for part in parts):
            raise DataError(f"text {number} is empty; remove it or fill it in")
        if not all(part.isascii() or is_unicode(part) for part in parts):
            raise DataError(f"text {number} holds half of a character, {shown(text)}; read its file as UTF-8")
    return checked


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate, which no tokenizer takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _check_columns(texts: Any) -> None:
    """Raises unless an array or a data frame holds texts in its only column, or pairs in its two columns."""
    columns = [str(name) for name in getattr(texts, "columns", ())]
    width = len(columns) or (texts.shape[1] if len(texts.shape) > 1 else 1)
    if width not in (1, 2) or len(texts.shape) not in (1, 2) or _LABELS & {name.lower() for name in columns}:
        named = f": {', '.join(map(repr, columns[:10]))}" if columns else f" of shape {tuple(texts.shape)}"
        raise DataError(
            f"which columns are the texts? got {type(texts).__name__} with {width} columns{named}; name the column of "
            'the texts, as in frame["text"], or the two columns of pairs'
        )


def sorted_batches(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """The indices of the texts in batches of similar length, longest first (memory runs out at once or never).

    Example:
        >>> sorted_batches([3, 9, 4, 8], batch_size=2)
        [[1, 3], [2, 0]]
    """
    check_number("batch_size", batch_size, 1, whole=True, error=DataError)
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def padded(items: Sequence[Encoded], pad_id: int, length: int | None = None) -> dict[str, NDArray[np.int64]]:
    """A batch as arrays (B, N), padded on the right to the longest text or to `length`.

    Without padding there is no attention mask: attention then runs on its fastest path.
    """
    width = length or max(map(len, items))
    rows = {"input_ids": [[*item.input_ids, *[pad_id] * (width - len(item))] for item in items]}
    if items[0].token_type_ids is not None:
        rows["token_type_ids"] = [[*(item.token_type_ids or ()), *[0] * (width - len(item))] for item in items]
    if min(map(len, items)) < width:
        rows["attention_mask"] = [[1] * len(item) + [0] * (width - len(item)) for item in items]
    return {name: np.array(values, dtype=np.int64) for name, values in rows.items()}
