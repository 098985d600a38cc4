"""Fine-tuning on transformers' Trainer: batches by length, a teacher, early stopping, a resume that changes nothing."""

from .data import Dev, TrainingData
from .settings import TrainSettings
from .trainer import finetune

__all__ = ["Dev", "TrainSettings", "TrainingData", "finetune"]
