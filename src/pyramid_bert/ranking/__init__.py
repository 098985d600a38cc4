"""Ranking: lists of documents for a query, how good their order is, and the files that hold them. No torch."""

from .files import Collection, GradedList, read_candidates, read_graded, read_qrels, read_texts
from .metrics import Comparison, Quality, compare, measure

__all__ = [
    "Collection",
    "Comparison",
    "GradedList",
    "Quality",
    "compare",
    "measure",
    "read_candidates",
    "read_graded",
    "read_qrels",
    "read_texts",
]
