"""Rows of a public dataset from the hub, by the datasets library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import DataError, MissingExtraError


def fetch_rows(title: str, name: tuple[str, str | None], split: str, instead: str) -> Iterable[Mapping[str, Any]]:
    """The rows of one split of a dataset.

    Args:
        title: Its name in messages.
        name: Its repository and configuration on the hub.
        split: The hub's name of the split.
        instead: What to do without the hub, a sentence for the message.
    """
    repository, configuration = name
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtraError("datasets", "hub", f"fetching {title} from the hub") from error
    try:
        rows: Iterable[Mapping[str, Any]] = load_dataset(repository, configuration, split=split)
    except Exception as error:  # the clients below raise anything, from OSError to their own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"cannot fetch {title} from the hub ({repository}): {reason}. {instead}") from error
    return rows
