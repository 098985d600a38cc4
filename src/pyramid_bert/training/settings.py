"""The settings of a fine-tuning run, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from ..checks import check_choice, check_flag, check_kind, check_number
from ..errors import PyramidError
from ..text.metrics import CLASSIFICATION, REGRESSION

# Setting -> the least and the most that is allowed.
_LIMITS: dict[str, tuple[float, float]] = {
    "learning_rate": (1e-12, 1),
    "epochs": (1e-6, 10_000),
    "batch_size": (1, 1_000_000),
    "eval_batch_size": (1, 1_000_000),
    "warmup_ratio": (0, 1),
    "weight_decay": (0, 1),
    "seed": (0, 2**32 - 1),
    "dropout": (0, 0.99),
    "checkpoints_per_epoch": (1, 1_000_000),
    "patience": (1, 1_000_000),
    "temperature": (1e-2, 1_000),
    "distill_weight": (0, 1),
    "hidden_weight": (0, 1_000_000),
}
_WHOLE = ("batch_size", "eval_batch_size", "seed", "checkpoints_per_epoch", "patience")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How to fine-tune. All defaults except the batch size are the paper's for GLUE.

    Attributes:
        learning_rate: Peak learning rate; it falls linearly to 0.
        epochs: Passes over the data.
        batch_size: Texts per step, over all processes.
        eval_batch_size: Texts per batch on the dev data, and for the teacher.
        warmup_ratio: Share of the steps over which the learning rate rises.
        weight_decay: Decoupled weight decay.
        seed: Seed of everything random.
        dropout: Dropout probability while training; None keeps the model's.
        bf16: Mixed precision: matrix products in bfloat16, weights and distances between tokens in float32. Faster on
            processors with bfloat16 instructions. A teacher answers in it too. Evaluation is always in full precision.
        checkpoints_per_epoch: How often the state is saved, when there is an output folder.
        patience: Stop after this many evaluations on the dev data without improvement, and restore the best weights;
            None trains to the end and keeps the last weights.
        dev_metric: The metric that has to improve; None is accuracy, or spearman for regression.
        temperature: With a teacher: softens its distribution and the model's.
        distill_weight: With a teacher: its share of the loss, 0-1; the rest comes from the labels.
        hidden_weight: With a teacher: weight of the squared difference of the last layer's CLS vectors.
    """

    learning_rate: float = 2e-5
    epochs: float = 3
    batch_size: int = 32
    eval_batch_size: int = 32
    warmup_ratio: float = 0.0
    weight_decay: float = 0.0
    seed: int = 0
    dropout: float | None = None
    bf16: bool = False
    checkpoints_per_epoch: int = 2
    patience: int | None = None
    dev_metric: str | None = None
    temperature: float = 2.0
    distill_weight: float = 0.5
    hidden_weight: float = 0.0

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            if getattr(self, name) is not None or name not in ("dropout", "patience"):
                check_number(name, getattr(self, name), low, high, whole=name in _WHOLE)
        check_flag("bf16", self.bf16)
        if self.dev_metric is not None:
            check_choice("dev_metric", self.dev_metric, (*CLASSIFICATION, *REGRESSION))

    def metric_for(self, regression: bool) -> str:
        """The metric by which the best weights are chosen; raises when it does not fit the labels."""
        known = REGRESSION if regression else CLASSIFICATION
        metric = self.dev_metric or known[0]
        check_choice(f"dev_metric for {'numbers' if regression else 'classes'}", metric, known)
        return metric


def settings_for(given: Any, default: TrainSettings, changes: dict[str, Any]) -> TrainSettings:
    """The settings of a run: those given, or the default with some fields changed.

    Example:
        >>> settings_for(None, TrainSettings(), {"epochs": 1}).epochs
        1
    """
    if given is not None and changes:
        raise PyramidError("give fit either settings or single fields of TrainSettings, not both")
    for name in changes:
        check_choice("setting", name, [field.name for field in fields(TrainSettings)])
    settings = replace(default, **changes) if given is None else given
    check_kind("settings", settings, TrainSettings, "give TrainSettings(epochs=3), or epochs=3")
    return settings
