"""Rows of a public dataset from the hub, read with the datasets library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import DataError, MissingExtraError


def fetch_rows(title: str, name: Sequence[str], split: str, instead: str) -> Iterable[Mapping[str, Any]]:
    """The rows of one split of a dataset.

    Args:
        title: Its name in messages.
        name: Its repository and, if it has several, its configuration on the hub.
        split: The hub's name of the split.
        instead: What to do without the hub, a sentence for the message.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtraError("datasets", "hub", f"fetching {title} from the hub") from error
    try:
        rows: Iterable[Mapping[str, Any]] = load_dataset(*name, split=split)
    except Exception as error:  # the client libraries raise many kinds of errors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"cannot fetch {title} from the hub ({name[0]}): {reason}. {instead}") from error
    return rows
