"""The one judge: how far the outputs of a pyramid are from those of the dense model with the same weights.

The distance is smoother than any metric, so a few dozen rows tell good candidates from bad ones. A metric, if there are
labels, decides only among candidates that the distance cannot tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import PyramidConfig
from ..families import base_model, pyramidize
from ..text.batches import Encoded, collate, sorted_batches
from ..text.inference import outputs_of

Outputs = Callable[[Any, Sequence[Encoded]], Tensor]  # of a model for rows: logits (n, classes) or CLS vectors (n, D)
Measure = Callable[[Tensor], float]  # of the outputs for the first rows; more is better


@dataclass(frozen=True)
class Trial:
    """What a candidate did on the first rows of the search.

    Attributes:
        settings: The candidate.
        rows: How many rows it was judged on.
        divergences: From the dense model's outputs, row by row; see `divergences`.
        metric: The metric on these rows; None without labels.
    """

    settings: PyramidConfig
    rows: int
    divergences: Tensor = field(compare=False, repr=False)
    metric: float | None

    @property
    def divergence(self) -> float:
        """The mean divergence."""
        return float(self.divergences.mean())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        about = {"rows": self.rows, "divergence": self.divergence, "metric": self.metric}
        return {"settings": self.settings.to_dict(), **about}


class Judge:
    """Runs candidates on the first rows and compares them with the dense model. No row is run twice for a candidate.

    Args:
        model: A copy of the model, which becomes one candidate after the other.
        items: The rows.
        dense: What the dense model gives for them.
        outputs: Gives the same of a model: `logits_of` or `cls_of`.
        distances: Row by row, between the outputs of the dense model and of a candidate.
        measure: A metric, if there are labels.
    """

    def __init__(
        self,
        model: Any,
        items: Sequence[Encoded],
        dense: Tensor,
        outputs: Outputs,
        *,
        distances: Callable[[Tensor, Tensor], Tensor],
        measure: Measure | None = None,
    ) -> None:
        self._model, self._items, self._dense = model, items, dense
        self._outputs_of, self._distances, self._measure = outputs, distances, measure
        self._outputs: dict[PyramidConfig, Tensor] = {}
        self.trials: dict[PyramidConfig, Trial] = {}

    def __call__(self, settings: PyramidConfig, rows: int) -> Trial:
        """The trial of a candidate on the first `rows` rows."""
        known = self._outputs.get(settings, self._dense[:0])
        if len(known) < rows:
            pyramidize(self._model, config=settings)
            known = torch.cat([known, self._outputs_of(self._model, self._items[len(known) : rows])])
            self._outputs[settings] = known
        metric = None if self._measure is None else self._measure(known[:rows])
        trial = Trial(settings, rows, self._distances(self._dense[:rows], known[:rows]), metric)
        if settings not in self.trials or self.trials[settings].rows <= rows:
            self.trials[settings] = trial
        return trial


def logits_of(pad_id: int, batch_size: int) -> Outputs:
    """Gives the logits (n, classes) of a model for rows."""
    return lambda model, items: outputs_of(model, items, pad_id, batch_size=batch_size).logits


def cls_of(pad_id: int, batch_size: int) -> Outputs:
    """Gives the last layer's CLS vectors (n, D) of a model, with or without a head, for rows."""

    @torch.inference_mode()
    def outputs(model: Any, items: Sequence[Encoded]) -> Tensor:
        vectors = torch.zeros(len(items), model.config.hidden_size)
        for rows in sorted_batches([len(item) for item in items], batch_size):
            batch = collate([items[i] for i in rows], pad_id)
            output = base_model(model)(**{name: tensor.to(model.device) for name, tensor in batch.items()})
            vectors[rows] = output[0][:, 0].float().cpu()
        return vectors

    return outputs


def divergences(dense: Tensor, other: Tensor, *, among: Tensor | None = None) -> Tensor:
    """How far outputs (n, classes) are from the dense model's, (n,): the KL divergence of the classes' probabilities.

    For a regressor, (n, 1), the squared difference as a share of the variance of the dense outputs, or of all those
    `among` which these are a part.

    Example:
        >>> divergences(torch.tensor([[2.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
        tensor([0.])
    """
    if dense.shape[1] == 1:
        variance = (dense if among is None else among).var(unbiased=False)
        return ((dense - other).square() / variance.clamp(min=1e-12))[:, 0]
    return F.kl_div(other.log_softmax(1), dense.log_softmax(1), log_target=True, reduction="none").sum(1)


def cls_distances(dense: Tensor, other: Tensor) -> Tensor:
    """How far CLS vectors (n, D) are from the dense model's, (n,): 1 minus the cosine, for models without a head.

    Example:
        >>> cls_distances(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]]))
        tensor([1.])
    """
    return 1 - F.cosine_similarity(dense, other, dim=1)


def agreement(dense: Tensor, other: Tensor) -> float:
    """The share of rows to which both give the same label; the correlation of their outputs for a regressor.

    Example:
        >>> agreement(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        0.5
    """
    if dense.shape[1] == 1:
        return float(torch.corrcoef(torch.cat([dense, other], 1).T.double())[0, 1])
    return float((dense.argmax(1) == other.argmax(1)).double().mean())


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Trials on equally many rows, nearest to the dense model first."""
    return sorted(trials, key=lambda trial: trial.divergence)


def winner(trials: Sequence[Trial]) -> Trial:
    """The best by the metric among those that cannot be told from the nearest to the dense model; that one in a tie.

    The metric is the noisier of the two. It decides only among trials that, row by row, are farther than the nearest by
    no more than the standard error of that difference.
    """
    nearest, *others = ranked(trials)
    last = [nearest, *(trial for trial in others if _as_near(trial, nearest))]
    return min(last, key=lambda trial: (-_worth(trial.metric), trial.divergence))


def _as_near(trial: Trial, nearest: Trial) -> bool:
    farther = trial.divergences - nearest.divergences
    return bool(farther.mean() <= farther.std(unbiased=False) / math.sqrt(len(farther)))


def _worth(metric: float | None) -> float:
    """The metric as a number that can be compared: a correlation of constant outputs is not a number."""
    if metric is None:
        return 0.0
    return -math.inf if math.isnan(metric) else metric
