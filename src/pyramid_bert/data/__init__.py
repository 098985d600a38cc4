"""Data in: tables of texts and labels from files and GLUE tasks, and batches by true length."""

from .batches import Encoded, collate, encode, sorted_batches
from .glue import TASKS, Task, load_task, sample_rows, shuffled, table_hash
from .stream import read_chunks, transform_file
from .tables import Table, Text, iterate_rows, read_table, text_in

__all__ = [
    "TASKS",
    "Encoded",
    "Table",
    "Task",
    "Text",
    "collate",
    "encode",
    "iterate_rows",
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
