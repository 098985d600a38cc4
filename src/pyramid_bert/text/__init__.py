"""Texts to batches, and answers to labels: files, streams, tokenizing, labels, metrics."""

from .tables import Table, Text, read_table

__all__ = ["Table", "Text", "read_table"]
