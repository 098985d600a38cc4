"""What a pyramid's own pass says about how far to trust it: its doubt, and how well its kept tokens cover the others.

The doubt is read off the logits. A core-set chosen step by step knows its covering radius from choosing; one chosen all
at once (centers_per_step="all"), and any other selector, computes distances between tokens to measure it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .core.selectors import Ranker
from .errors import MissingExtraError, PyramidError, UnknownNameError
from .families import pyramid_encoder, sizes_of
from .families.hub import pyramid_settings
from .text.batches import Encoded
from .text.inference import Outputs, kept_of, outputs_of

Score = Literal["confidence", "radius", "both"]
Weights = tuple[float, float]
# The weights of doubt and radius in a score; those of "both" are fitted.
FIXED_WEIGHTS: dict[str, Weights] = {"confidence": (1.0, 0.0), "radius": (0.0, 1.0)}
SCORES: tuple[str, ...] = (*FIXED_WEIGHTS, "both")
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
FOLDS = 5


@dataclass(frozen=True)
class Evidence:
    """What is known of each text's answer without running it densely.

    Attributes:
        doubt: (n,) 1 minus the margin between the two likeliest classes, in 0-1.
        radius: (n,) the sum over layers of the covering radius; None when it was not measured.
    """

    doubt: NDArray[Any]
    radius: NDArray[Any] | None

    @classmethod
    def of(cls, outputs: Outputs) -> Evidence:
        """The evidence in the outputs of a classifier."""
        ranked = outputs.logits.softmax(dim=1).topk(2, dim=1).values
        radius = None if outputs.coverage is None else outputs.coverage.radius.sum(1).double().numpy()
        return cls((1 - (ranked[:, 0] - ranked[:, 1])).double().numpy(), radius)

    def score(self, weights: Weights) -> NDArray[Any]:
        """(n,) the higher, the sooner a text is to be run again."""
        doubt: NDArray[Any] = weights[0] * self.doubt
        return doubt if self.radius is None else doubt + weights[1] * self.radius

    def rows(self, chosen: NDArray[Any]) -> Evidence:
        """The evidence for some of the texts."""
        return Evidence(self.doubt[chosen], None if self.radius is None else self.radius[chosen])


@dataclass(frozen=True)
class Trial:
    """A pyramid and its dense self on the same texts.

    Attributes:
        evidence: What the pyramid's pass said.
        flips: (n,) bool: the prediction differs from the dense model's.
        macs: (n,) multiply-accumulates of the pyramid.
        dense_macs: (n,) those of the dense model.
        logits: (n, classes) the pyramid's.
        dense_logits: (n, classes) the dense model's.
    """

    evidence: Evidence
    flips: NDArray[Any]
    macs: NDArray[Any]
    dense_macs: NDArray[Any]
    logits: NDArray[Any]
    dense_logits: NDArray[Any]

    @classmethod
    def of(cls, model: Any, items: Sequence[Encoded], pad_id: int, *, batch_size: int, progress: bool = False) -> Trial:
        """Runs a pyramid on the texts twice: as it is, and keeping all tokens.

        One that makes new vectors of its tokens has no covering radius, and is judged by its confidence alone.
        """
        encoder, settings = pyramid_encoder(model), pyramid_settings(model)
        if encoder is None or settings is None:
            raise PyramidError("a dense model cannot differ from itself; pyramidize it first")
        title = ("the pyramid", "keeping all tokens") if progress else (None, None)
        measured = keeps_tokens(model)
        ours = outputs_of(model, items, pad_id, batch_size=batch_size, coverage=measured, title=title[0])
        dense = outputs_of(model, items, pad_id, batch_size=batch_size, dense=True, title=title[1])
        if ours.coverage is None:
            kept = kept_of(model, items, pad_id, batch_size=batch_size)
        else:
            kept = ours.coverage.kept.tolist()
        costs = [settings.cost(lengths, len(item), sizes_of(model)) for lengths, item in zip(kept, items, strict=True)]
        return cls(
            evidence=Evidence.of(ours),
            flips=(ours.logits.argmax(1) != dense.logits.argmax(1)).numpy(),
            macs=np.array([cost.macs for cost in costs]),
            dense_macs=np.array([cost.dense_macs for cost in costs]),
            logits=ours.logits.numpy(),
            dense_logits=dense.logits.numpy(),
        )

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores that can be made of the evidence."""
        return SCORES if self.evidence.radius is not None else ("confidence",)

    def weights(self, score: str, rows: NDArray[Any] | None = None) -> Weights:
        """The weights of a score, fitted on some of the rows (all if None) where they are not fixed."""
        chosen = np.arange(len(self.flips)) if rows is None else rows
        return fitted_weights(score, self.evidence.rows(chosen), self.flips[chosen])

    def speedup(self, rerun: NDArray[Any] | None = None) -> float:
        """The ideal speed-up over the dense model when the texts `rerun` (n,) bool are run densely as well."""
        again = 0 if rerun is None else self.dense_macs[rerun].sum()
        return float(self.dense_macs.sum() / (self.macs.sum() + again))


def keeps_tokens(model: Any) -> bool:
    """Whether the model is a pyramid that keeps some of its tokens, and not one that makes new vectors of all."""
    encoder = pyramid_encoder(model)
    return encoder is not None and isinstance(encoder.selector, Ranker)


def check_score(score: object) -> None:
    """Raises unless `score` is the name of one."""
    if score not in SCORES:
        raise UnknownNameError("score", score, SCORES)


def check_share(share: float) -> None:
    """Raises unless `share` can be a share of texts."""
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= share <= 1:
        raise PyramidError(f"fallback must be a share of the texts in 0-1, got {share!r}; 0.05 runs 5 % again, densely")


def worst(score: NDArray[Any], share: float) -> NDArray[Any]:
    """(n,) bool: the share of the rows with the highest scores, the first of equal ones.

    Example:
        >>> worst(np.array([0.1, 0.9, 0.5, 0.9]), 0.25).tolist()
        [False, True, False, False]
    """
    chosen = np.zeros(len(score), dtype=bool)
    chosen[_highest_first(score)[: _count(share, len(score))]] = True
    return chosen


def _highest_first(score: NDArray[Any]) -> NDArray[Any]:
    return np.argsort(-score, kind="stable")


def _count(share: float, rows: int) -> int:
    return int(share * rows + 0.5)


def fitted_weights(score: str, evidence: Evidence, flips: NDArray[Any]) -> Weights:
    """The weights of doubt and radius in a score: for "both", those of a logistic regression of the flips."""
    check_score(score)
    if score in FIXED_WEIGHTS:
        return FIXED_WEIGHTS[score]
    if flips.all() or not flips.any():  # nothing to learn from
        return FIXED_WEIGHTS["confidence"]
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "train", "fitting a certificate") from error
    assert evidence.radius is not None
    features = np.stack([evidence.doubt, evidence.radius], axis=1)
    scale = features.std(axis=0).clip(min=1e-12)
    found = LogisticRegression().fit(features / scale, flips).coef_[0] / scale
    return float(found[0]), float(found[1])


def removed_by_share(trial: Trial, shares: Sequence[float] = SHARES, *, seed: int = 0) -> list[dict[str, Any]]:
    """For each share of texts run again: the flips that each score removes, as a share of all flips, and the cost.

    Five folds: a text's score has only seen flips of texts in other folds. "random" is the mean of all choices of as
    many texts.

    Args:
        trial: A pyramid and its dense self.
        shares: Shares of the texts.
        seed: Of the folds.
    """
    n = len(trial.flips)
    fold = np.random.default_rng(seed).permutation(n) % FOLDS
    table = []
    for share in shares:
        count = _count(share, n)
        row: dict[str, Any] = {"share": share, "removed": {"random": count / n}, "ideal_speedup": {}}
        for score in trial.scores:
            rerun = np.zeros(n, dtype=bool)
            for number in range(FOLDS):
                here = np.flatnonzero(fold == number)
                weights = trial.weights(score, np.flatnonzero(fold != number))
                many = (number + 1) * count // FOLDS - number * count // FOLDS  # in all folds together `count`
                rerun[here[_highest_first(trial.evidence.rows(here).score(weights))[:many]]] = True
            row["removed"][score] = float((trial.flips & rerun).sum() / max(trial.flips.sum(), 1))
            row["ideal_speedup"][score] = trial.speedup(rerun)
        table.append(row)
    return table
