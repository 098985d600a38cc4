"""Where a model keeps what `measure_sensitivity` found: one tensor (layers, D, R) beside its weights.

It is no parameter and is trained by nothing. It is saved with a model whose pyramid goes by it, and with no other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..config import SENSITIVITY_RANK, PyramidConfig
from ..errors import PyramidError

_NAME = "sensitivity"


def set_sensitivity(base: Any, sensitivity: Tensor) -> None:
    """Gives the encoder model `base` a sensitivity (layers, D, R), in place of one that it may have."""
    base.register_buffer(_NAME, sensitivity, persistent=getattr(base.encoder, "by_sensitivity", False))


def reserve_sensitivity(base: Any, settings: PyramidConfig) -> None:
    """Makes room for the sensitivity that a saved pyramid with these settings brings along."""
    if settings.metric == "sensitivity":
        width = base.config.hidden_size
        set_sensitivity(base, torch.zeros(base.config.num_hidden_layers, width, min(SENSITIVITY_RANK, width)))


def goes_by_sensitivity(base: Any, settings: PyramidConfig) -> bool:
    """Whether a pyramid with these settings goes by sensitivity; raises if there is none to go by."""
    wanted = settings.metric == "sensitivity"
    if wanted and not hasattr(base, _NAME):
        raise PyramidError(
            "metric='sensitivity' goes by what the answers of this model depend on, which has not been measured: call "
            "measure_sensitivity(model, items) before, or use metric='euclidean' or 'cosine'"
        )
    return wanted


def keep_sensitivity(base: Any) -> None:
    """Sees to it that the sensitivity is saved with a pyramid that goes by it, and with no other."""
    if hasattr(base, _NAME):
        set_sensitivity(base, base.sensitivity)


def forget_sensitivity(base: Any) -> None:
    """Takes the sensitivity away, if there is one."""
    if hasattr(base, _NAME):
        delattr(base, _NAME)
