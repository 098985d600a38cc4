"""What a classifier makes of its raw outputs: labels, probabilities, metrics, with scikit-learn's verbs. No torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PyramidError
from .batches import Encoded, check_texts
from .labels import Labels
from .metrics import metrics_of


@dataclass(frozen=True)
class Answers:
    """What a classifier predicts for n texts.

    Attributes:
        logits: (n, classes), of the dense run where a text was run again.
        radius: (n, layers) covering radius of the pyramid's pass, 0 where a layer drops nothing; None unless asked for.
        rerun: (n,) bool: which texts were run again; None without a fallback.
        chance: (n,) the chance that the pyramid's prediction is not the dense model's; None without a certificate.
    """

    logits: NDArray[Any]
    radius: NDArray[Any] | None = None
    rerun: NDArray[Any] | None = None
    chance: NDArray[Any] | None = None


class Predictor:
    """The verbs of a classifier that has `answers`.

    Attributes:
        labels: What the model predicts; None until it is known.
    """

    labels: Labels | None

    def answers(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = 32,
        progress: bool = False,
        radius: bool = False,
        fallback: float | None = None,
        score: str | None = None,
        streaming: bool = False,
    ) -> Answers:
        """The raw outputs and what is known about them: covering radii, which texts were run again, and why.

        Args:
            texts: Texts or pairs of texts, as `fit` takes them. They run sorted by length.
            batch_size: Texts at a time.
            progress: Show a progress bar.
            radius: Return the covering radius of each layer, 0 where it drops nothing. Only a core-set chosen step by
                step knows it anyway; every other selection computes it for this.
            fallback: The share of the texts that is run again with all tokens, the most doubtful first.
            score: Deprecated: confidence is the only score.
            streaming: Run again every text whose doubt reaches the threshold of the `certificate` for that share,
                whatever the other texts are.
        """
        raise NotImplementedError

    def predict(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = 32,
        progress: bool = False,
        fallback: float | None = None,
        score: str | None = None,
        streaming: bool = False,
        return_radius: bool = False,
    ) -> Any:
        """The predicted label of each text: (n,), or numbers for a regressor.

        The arguments are those of `answers`. With `return_radius` the covering radii (n, layers) are returned as well.
        """
        how: dict[str, Any] = {"fallback": fallback, "score": score, "streaming": streaming, "radius": return_radius}
        found = self.answers(texts, batch_size=batch_size, progress=progress, **how)
        labels = self.known_labels().decode(found.logits)
        return (labels, found.radius) if return_radius else labels

    def predict_proba(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = 32,
        progress: bool = False,
        fallback: float | None = None,
        score: str | None = None,
        streaming: bool = False,
        return_radius: bool = False,
    ) -> Any:
        """The probability of each class: (n, classes), columns as in `classes_`; takes what `predict` takes."""
        if self.known_labels().classes is None:
            raise PyramidError("a regressor has no probabilities; use predict")
        how: dict[str, Any] = {"fallback": fallback, "score": score, "streaming": streaming, "radius": return_radius}
        found = self.answers(texts, batch_size=batch_size, progress=progress, **how)
        chances = probabilities(found.logits)
        return (chances, found.radius) if return_radius else chances

    def predict_logits(
        self, texts: Iterable[Any], *, batch_size: int = 32, progress: bool = False, fallback: float | None = None
    ) -> NDArray[Any]:
        """The raw outputs of the model: (n, classes), in the order of the texts."""
        return self.answers(texts, batch_size=batch_size, progress=progress, fallback=fallback).logits

    def evaluate(
        self, texts: Iterable[Any], labels: Sequence[Any], *, batch_size: int = 32, progress: bool = False
    ) -> dict[str, float]:
        """Metrics by name: accuracy, f1 and matthews for classes; spearman, pearson and rmse for numbers."""
        known, texts = self.known_labels(), listed(texts)
        known.targets(labels, texts=len(texts))  # refuses unknown labels before any work
        return metrics_of(known, labels, self.predict_logits(texts, batch_size=batch_size, progress=progress))

    def score(self, texts: Iterable[Any], labels: Sequence[Any]) -> float:
        """The accuracy; for numbers Spearman's correlation. Training chooses the best weights by the same metric."""
        return next(iter(self.evaluate(texts, labels).values()))

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of the columns of `predict_proba`."""
        classes = self.known_labels().classes
        if classes is None:
            raise PyramidError("a regressor has no classes")
        return np.array(classes)

    def known_labels(self) -> Labels:
        """What the model predicts; raises when it has not learned anything yet."""
        if self.labels is None:
            raise PyramidError("this model has no trained classifier yet; call fit(texts, labels) first")
        return self.labels


def probabilities(logits: NDArray[Any]) -> NDArray[Any]:
    """The probability (n, classes) of each class.

    Example:
        >>> probabilities(np.array([[0.0, 0.0], [1e4, 0.0]])).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
    """
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: NDArray[Any] = powers / powers.sum(axis=1, keepdims=True)
    return found


def listed(texts: Iterable[Any]) -> list[Any]:
    """The texts as a list, or the encoded ones as they are."""
    is_encoded = isinstance(texts, list) and texts and isinstance(texts[0], Encoded)
    return texts if is_encoded else check_texts(texts)  # type: ignore[return-value]


def check_score(score: str | None) -> None:
    """Raises unless this is the one score that is left, and warns that the argument is deprecated."""
    if score is None:
        return
    if score != "confidence":
        raise PyramidError(
            f"the score must be 'confidence', got {score!r}; covering radii were removed as scores because they find "
            "flips no better than confidence (docs/theory.md); leave score out"
        )
    warnings.warn("score is deprecated: confidence is the only score; leave it out", DeprecationWarning, stacklevel=3)
