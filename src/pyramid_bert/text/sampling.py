"""Fixed samples of a table: the same on every machine."""

from __future__ import annotations

import hashlib
import json

from ..errors import DataError
from .tables import Table


def sample_rows(table: Table, rows: int, seed: int) -> Table:
    """A sample of `rows` rows in their original order; the whole table if it has no more.

    The choice depends only on the seed and the number of rows, not on the machine or the versions.

    Example:
        >>> sample_rows(Table(list("abcdef"), [0, 1, 0, 1, 0, 1]), 3, seed=0).texts
        ['c', 'd', 'e']
    """
    if rows < 1:
        raise DataError(f"a sample needs at least 1 row, got {rows}")
    if rows >= len(table.texts):
        return table
    keep = sorted(shuffled(len(table.texts), seed)[:rows])
    return Table(
        [table.texts[i] for i in keep],
        [table.labels[i] for i in keep] if table.labels else [],
        table.source,
        [table.numbers[i] if table.numbers else i + 1 for i in keep],
    )


def shuffled(rows: int, seed: int) -> list[int]:
    """The numbers below `rows` in an order that depends only on `rows` and the seed.

    Example:
        >>> shuffled(6, seed=0)
        [4, 3, 2, 0, 5, 1]
    """
    return sorted(range(rows), key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())


def table_hash(table: Table) -> str:
    """The sha256 of texts and labels, to record which rows a number was measured on.

    Example:
        >>> table_hash(Table(["a fine film"], [1]))[:12]
        '87b2eea1f0d6'
    """
    digest = hashlib.sha256()
    for row in (table.texts, table.labels):
        for value in row:
            digest.update(json.dumps(value).encode() + b"\n")
        digest.update(b"\n")
    return digest.hexdigest()
