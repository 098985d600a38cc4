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
from ..text.batches import Encoded, sorted_batches
from ..text.inference import collate


class OutOfTimeError(Exception):
    """The time of a search is up, and what it was doing has no result. Never leaves a search."""


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
        dense: The dense model's logits (n, classes) or CLS vectors (n, D), as `outputs_for` gives them.
        items: The rows.
        pad_id: The padding token.
        batch_size: Rows a batch.
        head: Compare logits; else the last layer's CLS vectors, for a model whose head is missing or not trained.
        measure: A metric of the logits for the first rows, if there are labels; more is better.
        in_time: Whether there is time for another batch. If not, a trial raises `OutOfTimeError`; the first never does.

    Attributes:
        dense: What was given.
        trials: The trial on most rows of each candidate.
    """

    def __init__(
        self,
        model: Any,
        dense: Tensor,
        items: Sequence[Encoded],
        pad_id: int,
        batch_size: int,
        *,
        head: bool = True,
        measure: Callable[[Tensor], float] | None = None,
        in_time: Callable[[], bool] | None = None,
    ) -> None:
        self._model, self._items, self._head, self._measure = model, items, head, measure
        self._pad_id, self._batch_size, self._in_time = pad_id, batch_size, in_time
        self._outputs: dict[PyramidConfig, Tensor] = {}
        self.dense = dense
        self.trials: dict[PyramidConfig, Trial] = {}

    def __call__(self, settings: PyramidConfig, rows: int) -> Trial:
        """The trial of a candidate on the first `rows` rows."""
        known = self._outputs.get(settings, self.dense[:0])
        if len(known) < rows:
            pyramidize(self._model, config=settings)
            how: dict[str, Any] = {"head": self._head, "in_time": self._in_time if self.trials else None}
            more = self._items[len(known) : rows]
            known = torch.cat([known, outputs_for(self._model, more, self._pad_id, self._batch_size, **how)])
            self._outputs[settings] = known
        dense, other = self.dense[:rows], known[:rows]
        distances = divergences(dense, other, among=self.dense) if self._head else cls_distances(dense, other)
        trial = Trial(settings, rows, distances, None if self._measure is None else self._measure(other))
        if settings not in self.trials or self.trials[settings].rows <= rows:
            self.trials[settings] = trial
        return trial


@torch.inference_mode()
def outputs_for(
    model: Any,
    items: Sequence[Encoded],
    pad_id: int,
    batch_size: int,
    *,
    head: bool = True,
    in_time: Callable[[], bool] | None = None,
) -> Tensor:
    """What a model gives for rows: logits (n, classes), or without `head` the last layer's CLS vectors (n, D).

    Raises `OutOfTimeError` when `in_time` says that there is no time for another batch.
    """
    outputs = torch.zeros(len(items), model.config.num_labels if head else model.config.hidden_size)
    for rows in sorted_batches([len(item) for item in items], batch_size):
        if in_time is not None and not in_time():
            raise OutOfTimeError
        batch = collate([items[i] for i in rows], pad_id, device=model.device)
        found = model(**batch).logits if head else base_model(model)(**batch)[0][:, 0]
        outputs[rows] = found.float().cpu()
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


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Trials on equally many rows, nearest to the dense model first."""
    return sorted(trials, key=lambda trial: trial.divergence)


def winner(trials: Sequence[Trial]) -> Trial:
    """The best by the metric among trials as near to the dense model as the nearest; the nearest in a tie.

    The metric is the noisier of the two. It decides only among trials that, row by row, are farther than the nearest by
    no more than the standard error of that difference.
    """
    nearest = ranked(trials)[0]

    def as_near(trial: Trial) -> bool:
        farther = trial.divergences - nearest.divergences
        return bool(farther.mean() <= farther.std(unbiased=False) / math.sqrt(len(farther)))

    def worth(trial: Trial) -> float:  # the correlation of constant outputs is not a number: the worst
        metric = 0.0 if trial.metric is None else trial.metric
        return -math.inf if math.isnan(metric) else metric

    return min(filter(as_near, trials), key=lambda trial: (-worth(trial), trial.divergence))
