"""Answers of a pyramid, the most doubtful of which are run again with all tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .certificate import Certificate, check_can_flip
from .errors import PyramidError
from .evidence import FIXED_WEIGHTS, Evidence, Weights, check_score, check_share, worst
from .text.inference import outputs_of


@dataclass(frozen=True)
class Answers:
    """What a classifier says to n texts.

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


def answers(
    classifier: Any,
    texts: Iterable[Any],
    *,
    batch_size: int = 32,
    progress: bool = False,
    radius: bool = False,
    fallback: float | None = None,
    score: str | None = None,
    streaming: bool = False,
) -> Answers:
    """What `classifier` says to the texts; see `PyramidClassifier.answers`."""
    certificate: Certificate | None = None
    weights: Weights = FIXED_WEIGHTS["confidence"]
    if fallback is None:
        if score is not None or streaming:
            raise PyramidError("score and streaming say which texts fall back; give fallback as well, like 0.05")
        classifier.known_labels()
    else:
        check_share(fallback)
        check_can_flip(classifier)
        certificate = classifier.certificate
        if certificate is not None:
            certificate.check_fits(classifier.settings.to_dict())
        weights = _weights(certificate, score, streaming)
        if certificate is not None and weights != certificate.weights:
            certificate = None  # it speaks of another score
    items, pad_id = classifier.encode(texts), classifier.tokenizer.pad_token_id
    covers = radius or weights[1] != 0
    title = "predicting" if progress else None
    outputs = outputs_of(classifier.model, items, pad_id, batch_size=batch_size, coverage=covers, title=title)
    logits = outputs.logits.numpy()
    radii = outputs.coverage.radius.numpy() if radius and outputs.coverage is not None else None
    if fallback is None:
        return Answers(logits, radii)
    scores = Evidence.of(outputs).score(weights)
    again = worst(scores, fallback)
    if streaming:
        assert certificate is not None
        again = scores >= certificate.threshold(fallback)
    chosen = np.flatnonzero(again)
    if len(chosen):
        title = "keeping all tokens" if progress else None
        some = [items[i] for i in chosen]
        dense = outputs_of(classifier.model, some, pad_id, batch_size=batch_size, dense=True, title=title)
        logits[chosen] = dense.logits.numpy()
    return Answers(logits, radii, again, None if certificate is None else certificate.chance(scores))


def _weights(certificate: Certificate | None, score: str | None, streaming: bool) -> Weights:
    """The weights of a score by its name; None takes the certificate's own, or confidence."""
    if score is not None:
        check_score(score)
    if certificate is not None and score in (None, certificate.score):
        return certificate.weights
    if streaming or score == "both":
        has = "none" if certificate is None else f"one for {certificate.score!r}"
        what = "streaming" if streaming else "score='both'"
        raise PyramidError(
            f"{what} takes its numbers from a certificate, and the model has {has}; fit one with "
            f"clf.certificate = Certificate.fit(clf, texts, score={score or 'confidence'!r}) or `pyramid-bert certify`"
        )
    return FIXED_WEIGHTS[score or "confidence"]
