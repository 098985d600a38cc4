"""Architectures that transformers lacks. Importing this makes them known to its Auto classes."""

from . import adapter as _adapter  # noqa: F401 - adds the family
from .favor import KERNELS, favor_attention, orthogonal_features
from .model import PerformerConfig, PerformerForSequenceClassification, PerformerModel

__all__ = [
    "KERNELS",
    "PerformerConfig",
    "PerformerForSequenceClassification",
    "PerformerModel",
    "favor_attention",
    "orthogonal_features",
]
