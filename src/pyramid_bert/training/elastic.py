"""Elastic training: pyramids of several speeds learn together in one model.

In each step the full model learns from the labels and the teacher; the fastest pyramid and two drawn at random learn
from the full model's outputs. The rule is that of slimmable networks (Yu and Huang 2019: sandwich, in-place
distillation); LengthDrop (Kim and Cho 2021) was the first to draw lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..config import PyramidConfig
from ..core.loop import Pass, Plan
from ..families import plan_of
from ..text.inference import call
from .distillation import soft_loss

Levels = Sequence[Sequence[PyramidConfig]]
_DRAWN = 2


class Elastic:
    """Draws the pyramids of a step, and adds up their losses.

    Args:
        model: A pyramid whose selection they share.
        levels: For each speed, the slowest first, the pyramids that have it.
        seed: The draw of a step depends only on it and the step's number, so a resumed run draws the same.
    """

    def __init__(self, model: Any, levels: Levels, seed: int) -> None:
        self._plans: list[list[Plan]] = [[plan_of(model, settings) for settings in level] for level in levels]
        self._seed = seed

    def draw(self, step: int) -> list[Plan]:
        """One of the fastest pyramids, and two of any speed."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)

        def one(of: Sequence[Any]) -> Any:
            return of[int(torch.randint(len(of), (), generator=generator))]

        return [one(self._plans[-1]), *(one(one(self._plans)) for _ in range(_DRAWN))]

    def loss(
        self, model: Any, inputs: Mapping[str, Tensor], full: Tensor, step: int, temperature: float
    ) -> Tensor | float:
        """The sum of how far the pyramids of a step are from the full model's logits `full` (B, C)."""
        texts = {name: value for name, value in inputs.items() if name != "labels"}
        outputs = (call(model, texts, Pass(plan=plan))[0] for plan in self.draw(step))
        return sum(soft_loss(output.logits, full.detach().float(), temperature) for output in outputs)
