"""Fine-tuning on transformers' Trainer: batches by length, a teacher, early stopping, exact resume."""

from .callbacks import LOG, log_text, quiet_transformers
from .data import Dev, LengthSampler, TrainingData
from .elastic import Levels
from .settings import TrainSettings
from .trainer import PyramidTrainer, finetune, weights_digest

__all__ = [
    "LOG",
    "Dev",
    "LengthSampler",
    "Levels",
    "PyramidTrainer",
    "TrainSettings",
    "TrainingData",
    "finetune",
    "log_text",
    "quiet_transformers",
    "weights_digest",
]
