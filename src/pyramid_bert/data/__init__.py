"""Data in: tables of texts and labels, GLUE and Long Range Arena tasks, and batches by true length.

Only batches need torch; it is loaded when one of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .glue import TASKS, Task, load_task, sample_rows, shuffled, table_hash
from .lra import LRA_TASKS, LraData, LraTask, load_lra
from .stream import read_chunks, transform_file
from .tables import Table, Text, iterate_rows, read_table, text_in

if TYPE_CHECKING:
    from .batches import Encoded, collate, encode, sorted_batches

_NEED_TORCH = ("Encoded", "collate", "encode", "sorted_batches")

__all__ = [
    "LRA_TASKS",
    "TASKS",
    "Encoded",
    "LraData",
    "LraTask",
    "Table",
    "Task",
    "Text",
    "collate",
    "encode",
    "iterate_rows",
    "load_lra",
    "load_task",
    "read_chunks",
    "read_table",
    "sample_rows",
    "shuffled",
    "sorted_batches",
    "table_hash",
    "text_in",
    "transform_file",
]


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(".batches", __name__), name)
    globals()[name] = value
    return value
