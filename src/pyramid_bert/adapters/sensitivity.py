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
    base.register_buffer(_NAME, sensitivity, persistent=False)


def reserve_sensitivity(base: Any, settings: PyramidConfig) -> None:
    """Makes room for the sensitivity that a saved pyramid with these settings brings along."""
    if settings.metric == "sensitivity":
        width = base.config.hidden_size
        set_sensitivity(base, torch.zeros(base.config.num_hidden_layers, width, min(SENSITIVITY_RANK, width)))


def use_sensitivity(base: Any, settings: PyramidConfig) -> bool:
    """Whether a pyramid goes by sensitivity, which is saved with it then; raises if there is none to go by."""
    found, wanted = getattr(base, _NAME, None), settings.metric == "sensitivity"
    if wanted and found is None:
        raise PyramidError(
            "metric='sensitivity' goes by what the answers of this model depend on, which has not been measured: call "
            "measure_sensitivity(model, items) before, or use metric='euclidean' or 'cosine'"
        )
    if found is not None:
        base.register_buffer(_NAME, found, persistent=wanted)
    return wanted


def forget_sensitivity(base: Any) -> None:
    """Takes the sensitivity away, if there is one."""
    if hasattr(base, _NAME):
        delattr(base, _NAME)
