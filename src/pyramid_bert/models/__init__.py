"""Architectures that transformers lacks. Importing this makes them known to its Auto classes."""

from .favor import KERNELS, favor_attention, orthogonal_features
from .performer import PerformerConfig, PerformerForSequenceClassification, PerformerModel

__all__ = [
    "KERNELS",
    "PerformerConfig",
    "PerformerForSequenceClassification",
    "PerformerModel",
    "favor_attention",
    "orthogonal_features",
]
