"""Distillation: a loss that compares outputs with a teacher's. The teacher runs once on every training text.

Hinton et al. 2015: KL divergence of the student's distribution from the teacher's, both softened by a temperature T; a
factor T² keeps the size of the gradient. Optionally also the squared difference of the last layer's CLS vectors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import DataError, PyramidError
from ..families import positions_of
from ..text.labels import Labels
from .settings import TrainSettings


def distilled_loss(
    hard: Tensor, logits: Tensor, cls: Tensor, taught: dict[str, Tensor], settings: TrainSettings
) -> Tensor:
    """The loss of a batch, mixed from that of the labels and the teacher's.

    Args:
        hard: The loss against the labels.
        logits: The student's (B, C).
        cls: The student's CLS vectors (B, D); not read unless the teacher's are given.
        taught: The teacher's, under "teacher_logits" and perhaps "teacher_cls".
        settings: The weights of the parts, and the temperature.
    """
    soft = soft_loss(logits, taught["teacher_logits"], settings.temperature)
    loss = (1 - settings.distill_weight) * hard + settings.distill_weight * soft
    if "teacher_cls" in taught:
        loss = loss + settings.hidden_weight * functional.mse_loss(cls.float(), taught["teacher_cls"])
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


def taught_labels(teacher: Any) -> Labels:
    """The labels of a teacher; raises unless it is a trained classifier."""
    if not callable(getattr(teacher, "known_labels", None)):
        raise PyramidError(
            f"teacher must be a PyramidClassifier, got {type(teacher).__name__}; load one with "
            "PyramidClassifier.load(folder)"
        )
    found: Labels = teacher.known_labels()
    return found


def check_teacher(teacher: Any, student: Any, labels: Labels, *, hidden: bool) -> None:
    """Raises unless `teacher` reads the same tokens as `student` and predicts `labels`, as the student will.

    Both are `PyramidClassifier`s. With `hidden` the CLS vectors are matched and must have the same size.
    """
    if teacher.model is student.model:
        raise PyramidError("the teacher is the model that is to be trained; load it a second time")
    theirs = teacher.known_labels()
    if theirs != labels:
        its, own = ("a number" if x.classes is None else ", ".join(map(repr, x.classes)) for x in (theirs, labels))
        raise DataError(f"the teacher predicts {its}, the model {own}; train the teacher on the same labels")
    if teacher.tokenizer.get_vocab() != student.tokenizer.get_vocab():
        raise PyramidError("the teacher has another vocabulary than the model; use a teacher with the same tokenizer")
    longest, most = student.max_length or positions_of(student.model), positions_of(teacher.model)
    if most < longest:
        raise PyramidError(
            f"the teacher reads {most} tokens at most and the model {longest}; give the model max_length={most}"
        )
    taught, learned = teacher.model.config.hidden_size, student.model.config.hidden_size
    if hidden and taught != learned:
        raise PyramidError(
            f"hidden_weight matches CLS vectors, but the teacher's have {taught} numbers and the model's {learned}; "
            "use hidden_weight=0"
        )
