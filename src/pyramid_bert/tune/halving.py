"""Successive halving: all candidates on few rows, the better half on twice as many, and so on.

What is judged is how far a candidate's outputs are from the dense model's. That is smoother than any metric, so that a
few dozen rows can tell good from bad; a metric, if there are labels, has its say among the last.

Half as many candidates on twice as many rows, half of which they know, take half as long as the first round and as long
as any later one. So the first round has two parts of the time and every other one. What a round has no time for falls
out: in the first, whatever comes last in a mixed order; later, what was farthest from the dense
model. So a short search looks at fewer candidates, but still judges the last ones on all rows.
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
from ..families.hub import pyramidize
from ..text.batches import Encoded
from ..text.inference import outputs_of
from .deadline import Budget

FIRST_ROWS = 16
FINALISTS = 8

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
        """How far its outputs are from the dense model's, on average."""
        return float(self.divergences.mean())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {
            "settings": self.settings.to_dict(),
            "rows": self.rows,
            "divergence": self.divergence,
            "metric": self.metric,
        }


class Judge:
    """Runs candidates on the first rows and compares them with the dense model. Rows are run once a candidate."""

    def __init__(
        self,
        model: Any,
        items: Sequence[Encoded],
        dense: Tensor,
        pad_id: int,
        *,
        batch_size: int,
        measure: Measure | None,
    ) -> None:
        self._model = model
        self._items, self._dense = items, dense
        self._pad_id, self._batch_size = pad_id, batch_size
        self._measure = measure
        self._outputs: dict[PyramidConfig, Tensor] = {}
        self.trials: dict[PyramidConfig, Trial] = {}

    def __call__(self, settings: PyramidConfig, rows: int) -> Trial:
        """The trial of a candidate on the first `rows` rows."""
        known = self._outputs.get(settings, self._dense[:0])
        if len(known) < rows:
            pyramidize(self._model, config=settings)
            new = self._items[len(known) : rows]
            more = outputs_of(self._model, new, self._pad_id, batch_size=self._batch_size).logits
            known = self._outputs[settings] = torch.cat([known, more])
        metric = None if self._measure is None else self._measure(known[:rows])
        trial = Trial(settings, rows, divergences(self._dense[:rows], known[:rows], among=self._dense), metric)
        self.trials[settings] = trial
        return trial


def divergences(dense: Tensor, other: Tensor, *, among: Tensor | None = None) -> Tensor:
    """How far outputs (n, classes) are from the dense model's, (n,): the KL divergence of the classes' probabilities.

    For a regressor, (n, 1), the squared difference as a share of the variance of the dense outputs, or of all of those
    `among` which these are a part.

    Example:
        >>> divergences(torch.tensor([[2.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
        tensor([0.])
    """
    if dense.shape[1] == 1:
        variance = (dense if among is None else among).var(unbiased=False)
        return ((dense - other).square() / variance.clamp(min=1e-12))[:, 0]
    return F.kl_div(other.log_softmax(1), dense.log_softmax(1), log_target=True, reduction="none").sum(1)


def agreement(dense: Tensor, other: Tensor) -> float:
    """The share of rows to which both give the same label; the correlation of their outputs for a regressor.

    Example:
        >>> agreement(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        0.5
    """
    if dense.shape[1] == 1:
        return float(torch.corrcoef(torch.cat([dense, other], 1).T.double())[0, 1])
    return float((dense.argmax(1) == other.argmax(1)).double().mean())


def rungs(rows: int) -> list[int]:
    """How many rows candidates are judged on, round by round.

    Example:
        >>> rungs(200)
        [16, 32, 64, 128, 200]
    """
    steps = [FIRST_ROWS]
    while steps[-1] * 2 < rows:
        steps.append(steps[-1] * 2)
    return [step for step in steps if step < rows] + [rows]


def runs_of(candidates: int, rows: int) -> int:
    """How many trials `halve` makes."""
    total, pool = 0, candidates
    for _ in rungs(rows):
        total += pool
        pool = _survivors(pool)
    return total


def halve(
    judge: Judge, candidates: Sequence[PyramidConfig], rows: int, budget: Budget, step: Callable[[], None]
) -> list[Trial]:
    """The trials of the last round, nearest to the dense model first.

    Args:
        judge: Makes the trials.
        candidates: At least one.
        rows: Of the last round.
        budget: Of which one part is left for what comes after.
        step: Called after each trial.
    """
    pool, best, rounds = list(candidates), list[Trial](), rungs(rows)
    for number, count in enumerate(rounds):
        part = budget.part(len(rounds) - number + 1 if number else (len(rounds) + 2) / 2)
        best = ranked(try_all(judge, pool, count, part, step)) or best
        pool = [trial.settings for trial in best[: _survivors(len(best))]]
    return best


def try_all(
    judge: Judge, pool: Iterable[PyramidConfig], rows: int, budget: Budget, step: Callable[[], None]
) -> list[Trial]:
    """A trial of each candidate, until time is up; one at least if nothing has been tried yet."""
    trials: list[Trial] = []
    for settings in pool:
        if judge.trials and not budget.in_time():
            break
        trials.append(judge(settings, rows))
        step()
    return trials


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Trials on equally many rows, nearest to the dense model first."""
    return sorted(trials, key=lambda trial: trial.divergence)


def winner(trials: Sequence[Trial]) -> Trial:
    """The best by the metric among those that cannot be told from the nearest to the dense model; that one in a tie.

    The metric is the noisier of the two, so it decides only where divergence does not: where, row by row, a trial is
    farther than the nearest by no more than the standard error of that difference.
    """
    nearest, *others = ranked(trials)
    last = [nearest, *(trial for trial in others if _as_near(trial, nearest))]
    return min(last, key=lambda trial: (-_worth(trial.metric), trial.divergence))


def _as_near(trial: Trial, nearest: Trial) -> bool:
    farther = trial.divergences - nearest.divergences
    return bool(farther.mean() <= farther.std(unbiased=False) / math.sqrt(len(farther)))


def _worth(metric: float | None) -> float:
    """The metric as a number that can be compared; the correlation of outputs that are all equal is none."""
    if metric is None:
        return 0.0
    return -math.inf if math.isnan(metric) else metric


def _survivors(pool: int) -> int:
    return max(min(pool, FINALISTS), (pool + 1) // 2)
