"""Data in: tables of texts and labels from files, and batches by true length."""

from .batches import Encoded, collate, encode, sorted_batches
from .stream import read_chunks, transform_file
from .tables import Table, Text, iterate_rows, read_table, text_in

__all__ = [
    "Encoded",
    "Table",
    "Text",
    "collate",
    "encode",
    "iterate_rows",
    "read_chunks",
    "read_table",
    "sorted_batches",
    "text_in",
    "transform_file",
]
