"""Fine-tuning on transformers' Trainer: batches by length, a teacher, early stopping, exact resume."""

from .data import Dev, TrainingData
from .settings import TrainSettings
from .trainer import finetune

__all__ = ["Dev", "TrainSettings", "TrainingData", "finetune"]
