"""What a schedule costs in accuracy, by the paper's Theorem 1, measured on a sample of texts.

The theorem bounds the change of the loss by a sum over layers of (N − l_j)·δ_j, each times constants of the layers
above. Here δ_j is measured for every number of kept tokens at once, and the constants by what a cut at layer j does to
the last layer's CLS vector.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.coreset import radius_curve
from ...core.reducer import project
from ...families import base_model, pyramid_encoder
from ...families.hub import pyramid_settings, pyramidize
from ...schedule.base import Schedule
from ...text.batches import Encoded, sorted_batches
from ...text.inference import collate
from .measure import HalfSteps, embedded, key_bias

_TEXTS, _FEW_TEXTS, _TOKENS = 64, 16, 6144  # most texts, fewest texts, and about how many tokens in all
_BATCH = 16
_KEEP = 0.5


@dataclass(frozen=True)
class RadiusCurves:
    """How well the first k tokens of the greedy order cover the others, by text and layer.

    Attributes:
        curves: For each text a (layers, n) array: entry [j, k − 1] is the covering radius that k tokens leave after
            the attention of layer j + 1 of the dense model.
        weights: What a unit of (N − l_j)·δ_j at each layer does to the last CLS vector.
    """

    curves: tuple[Any, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, dense: Any, pyramid: Any, items: Sequence[Encoded], pad_id: int = 0) -> RadiusCurves:
        """The curves of up to 64 of the texts, fewer of long ones.

        Args:
            dense: The dense model, in evaluation mode.
            pyramid: The same weights as a pyramid, whose selector and reduction are to be used; it is not changed.
            items: The texts.
            pad_id: The padding token.
        """
        encoder = pyramid_encoder(pyramid)
        assert encoder is not None
        mean = sum(len(item) for item in items) / len(items)
        texts = max(_FEW_TEXTS, min(_TEXTS, int(_TOKENS / mean)))
        chosen = list(items)[:: max(1, len(items) // texts)][:texts]
        curves: list[Any] = [None] * len(chosen)
        for rows in sorted_batches([len(item) for item in chosen], _BATCH):
            batch = {name: x.to(dense.device) for name, x in collate([chosen[i] for i in rows], pad_id).items()}
            real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
            with torch.inference_mode():
                hidden = embedded(pyramid, batch)
                states = HalfSteps(encoder).states(hidden, key_bias(real, hidden.dtype))[1::2]  # after attention
                if encoder.by_sensitivity:
                    states = list(map(project, states, base_model(pyramid).sensitivity))
                found = torch.stack([radius_curve(h, real, metric=encoder.reducer.space.metric) for h in states])
            for place, row in enumerate(rows):
                curves[row] = found[:, place, : len(chosen[row])].cpu().numpy()  # (layers, n)
        even = cls(tuple(curves), (1.0,) * len(curves[0]))
        return cls(even.curves, _layer_weights(dense, pyramid, chosen, pad_id, even))

    def bound(self, schedule: Schedule) -> float:
        """The mean over texts of the weighted sum over layers of (N − l_j)·δ_j."""
        return sum(weight * term for weight, term in zip(self.weights, self.terms(schedule), strict=True))

    def terms(self, schedule: Schedule) -> list[float]:
        """The mean over texts of (N − l_j)·δ_j, for each layer."""
        layers = len(self.weights)
        total = [0.0] * layers
        for curve in self.curves:
            n = curve.shape[1]
            for j, k in enumerate(schedule.lengths(n, layers)):
                total[j] += (n - k) * float(curve[j, k - 1]) / len(self.curves)
        return total


def _layer_weights(
    dense: Any, pyramid: Any, items: Sequence[Encoded], pad_id: int, even: RadiusCurves
) -> tuple[float, ...]:
    """By how much the last CLS vector moves for each unit of a layer's term.

    Keeping half of the tokens from layer j on moves it by e_j; what layer j adds to that is e_j − e_{j+1}.
    """
    layers = len(even.weights)
    whole = _cls(dense, items, pad_id)
    trial, settings = copy.deepcopy(pyramid), pyramid_settings(pyramid)
    assert settings is not None
    moved = []
    for first in range(1, layers + 1):
        schedule = Schedule.constant(_KEEP, first_layer=first)
        pyramidize(trial, config=settings.replace(schedule=schedule, rest_from=None))
        moved.append(float((_cls(trial, items, pad_id) - whole).norm(dim=1).mean()))
    terms = even.terms(Schedule.constant(_KEEP))
    added = [max(here - above, 0.0) for here, above in zip(moved, [*moved[1:], 0.0], strict=True)]
    return tuple(more / term if term else 0.0 for more, term in zip(added, terms, strict=True))


@torch.inference_mode()
def _cls(model: Any, items: Sequence[Encoded], pad_id: int) -> Tensor:
    """The last layer's CLS vectors (n, D), sorted by the lengths of the texts."""
    vectors = []
    for rows in sorted_batches([len(item) for item in items], _BATCH):
        batch = collate([items[i] for i in rows], pad_id)
        output = base_model(model)(**{name: tensor.to(model.device) for name, tensor in batch.items()})
        vectors.append(output[0][:, 0].float().cpu())
    return torch.cat(vectors)
