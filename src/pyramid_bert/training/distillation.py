"""Distillation: a loss that compares outputs with a teacher's, which are computed once for every training text.

Hinton et al. 2015: KL divergence of the student's distribution from the teacher's, both softened by a temperature T; a
factor T² keeps the size of the gradient. Optionally also the squared difference of the last layer's CLS vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import DataError, PyramidError
from ..families import positions_of
from ..text.labels import Labels


@dataclass(frozen=True)
class Distillation:
    """How much of the loss comes from the teacher.

    Attributes:
        temperature: Softens both distributions.
        weight: Share of the teacher's logits in the loss; the rest is that of the labels.
        hidden_weight: Weight of the CLS vectors' mean squared difference, added to it.
    """

    temperature: float
    weight: float
    hidden_weight: float

    def loss(self, hard: Tensor, logits: Tensor, cls: Tensor | None, taught: dict[str, Tensor]) -> Tensor:
        """The loss of a batch.

        Args:
            hard: The loss against the labels.
            logits: The student's (B, C).
            cls: The student's CLS vectors (B, D), when they are matched.
            taught: The teacher's, under "teacher_logits" and "teacher_cls".
        """
        soft = soft_loss(logits, taught["teacher_logits"], self.temperature)
        loss = (1 - self.weight) * hard + self.weight * soft
        if cls is not None:
            loss = loss + self.hidden_weight * functional.mse_loss(cls.float(), taught["teacher_cls"])
        return loss


def soft_loss(logits: Tensor, target: Tensor, temperature: float) -> Tensor:
    """How far logits (B, C) are from the teacher's: KL at a temperature, times T²; for regression the squared error.

    Example:
        >>> soft_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 1.0]]), temperature=2.0).item()
        0.0
    """
    if logits.shape[1] == 1:
        return functional.mse_loss(logits.float(), target)
    student, teacher = (torch.log_softmax(values.float() / temperature, dim=1) for values in (logits, target))
    return functional.kl_div(student, teacher, reduction="batchmean", log_target=True) * temperature**2


def check_teacher(teacher: Any, student: Any, labels: Labels, *, hidden: bool) -> None:
    """Raises unless the teacher reads the same tokens and names the same labels as the student.

    Args:
        teacher: A `PyramidClassifier` that is trained.
        student: The one that is going to learn.
        labels: What the student is going to predict.
        hidden: Whether CLS vectors are matched.
    """
    if teacher.model is student.model:
        raise PyramidError("the teacher is the model that is to be trained; load it a second time")
    theirs = teacher.known_labels()
    if theirs != labels:
        raise DataError(
            f"the teacher predicts {_said(theirs)}, the model {_said(labels)}; train the teacher on the same labels"
        )
    if teacher.tokenizer.get_vocab() != student.tokenizer.get_vocab():
        raise PyramidError("the teacher has another vocabulary than the model; use a teacher with the same tokenizer")
    mine, its = student.model.config, teacher.model.config
    longest, most = student.max_length or positions_of(mine), positions_of(its)
    if most < longest:
        raise PyramidError(
            f"the teacher reads {most} tokens at most and the model {longest}; give the model max_length={most}"
        )
    if hidden and its.hidden_size != mine.hidden_size:
        raise PyramidError(
            f"hidden_weight matches CLS vectors, but the teacher's have {its.hidden_size} numbers and the model's "
            f"{mine.hidden_size}; use hidden_weight=0"
        )


def _said(labels: Labels) -> str:
    return "a number" if labels.classes is None else ", ".join(map(repr, labels.classes))
