"""The Performer, which transformers lacks. Importing this adds it to the Auto classes and the table of families."""

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
