"""Covering radii of every layer on a sample of texts, for every number of kept tokens at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..data import Encoded, collate, sorted_batches
from ..schedule import Schedule
from ..select import radius_curve

_TEXTS = 64
_BATCH = 16


@dataclass(frozen=True)
class RadiusCurves:
    """How well the first k tokens of the greedy order cover the others, by text and layer.

    Attributes:
        curves: For each text a (layers, n) array: entry [j, k − 1] is the covering radius that k tokens leave after
            the attention of layer j + 1 of the dense model.
    """

    curves: tuple[Any, ...]

    @classmethod
    def of(cls, dense: Any, items: Sequence[Encoded]) -> RadiusCurves:
        """The curves of up to 64 of the texts under a dense model in evaluation mode."""
        chosen = list(items)[:: max(1, len(items) // _TEXTS)][:_TEXTS]
        curves: list[Any] = [None] * len(chosen)
        for rows in sorted_batches([len(item) for item in chosen], _BATCH):
            batch = collate([chosen[i] for i in rows], pad_id=0)
            mask = batch.get("attention_mask")
            with torch.inference_mode():
                states = _after_attention(dense, batch)
                found = torch.stack([radius_curve(h, None if mask is None else mask.bool()) for h in states])
            for place, row in enumerate(rows):
                curves[row] = found[:, place, : len(chosen[row])].numpy()  # (layers, n)
        return cls(tuple(curves))

    def bound(self, schedule: Schedule) -> float:
        """The mean over texts of the sum over layers of (N − l_j)·δ_j, what a schedule decides of Theorem 1."""
        total = 0.0
        for curve in self.curves:
            layers, n = curve.shape
            kept = schedule.lengths(n, layers)
            total += sum((n - k) * float(curve[j, k - 1]) for j, k in enumerate(kept))
        return total / len(self.curves)


def _after_attention(dense: Any, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The hidden states (B, N, D) after the attention of each layer, where a pyramid would choose."""
    seen: list[torch.Tensor] = []
    handles = [
        module.register_forward_hook(lambda _module, _given, output: seen.append(output[0]))
        for name, module in dense.named_modules()
        if name.endswith(".attention")
    ]
    try:
        dense(**batch)
    finally:
        for handle in handles:
            handle.remove()
    return seen
