"""Data in: tables of texts and labels from files, and batches by true length."""

from .batches import Encoded, collate, encode, sorted_batches
from .tables import Table, Text, read_table

__all__ = ["Encoded", "Table", "Text", "collate", "encode", "read_table", "sorted_batches"]
