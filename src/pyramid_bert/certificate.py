"""A certificate: how likely a pyramid's answer differs from the dense model's, given what its own pass says."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import CheckpointError, DataError, MissingExtraError, PyramidError
from .evidence import Score, Trial, Weights, check_score, check_share, keeps_tokens
from .files import write_text
from .text.tables import Text

FILE = "certificate.json"
MIN_ROWS = 50
_FORMAT, _QUANTILES = 1, 200


@dataclass(frozen=True)
class Certificate:
    """Calibrated on texts, without labels: the chance that a pyramid's prediction is not the dense model's.

    Belongs to one model with one set of pyramid settings, and is saved beside it.

    Attributes:
        score: What the chance is read from: "confidence", the covering "radius", or "both".
        weights: Of doubt and radius in the score.
        knots: Scores, ascending, between which the chance is interpolated (isotonic regression).
        chances: The chance of a flip at each of the knots.
        quantiles: The scores of the calibration texts at equal steps from the lowest to the highest.
        rows: How many texts it was calibrated on.
        flips: For how many of them the prediction differed.
        settings: The pyramid's.

    Example:
        certificate = Certificate.fit(clf, texts)
        certificate.chance(certificate.quantiles[-1])  # for the most doubtful of the texts
    """

    score: str
    weights: Weights
    knots: tuple[float, ...]
    chances: tuple[float, ...]
    quantiles: tuple[float, ...]
    rows: int
    flips: int
    settings: dict[str, Any]

    @classmethod
    def fit(
        cls,
        classifier: Any,
        texts: Sequence[Text],
        *,
        score: Score = "confidence",
        batch_size: int = 32,
        progress: bool = False,
    ) -> Certificate:
        """Runs the texts as a pyramid and keeping all tokens, and learns where the two differ.

        Args:
            classifier: A `PyramidClassifier` that is a pyramid.
            texts: At least 50, unlike those that it was trained on; they need no labels.
            score: What to judge an answer by.
            batch_size: Texts at a time.
            progress: Show a bar.
        """
        trial = trial_of(classifier, texts, score=score, batch_size=batch_size, progress=progress)
        return cls.of(trial, score, classifier.settings.to_dict())

    @classmethod
    def of(cls, trial: Trial, score: str, settings: dict[str, Any]) -> Certificate:
        """The certificate that a trial gives."""
        weights = trial.weights(score)
        scores = trial.evidence.score(weights)
        line = _isotonic()(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(scores, trial.flips.astype(float))
        return cls(
            score=score,
            weights=weights,
            knots=tuple(map(float, line.X_thresholds_)),
            chances=tuple(map(float, line.y_thresholds_)),
            quantiles=tuple(map(float, np.quantile(scores, np.linspace(0, 1, _QUANTILES + 1)))),
            rows=len(scores),
            flips=int(trial.flips.sum()),
            settings=settings,
        )

    def chance(self, score: Any) -> NDArray[Any]:
        """The chance of a flip at a score, or at each of several."""
        return np.asarray(np.interp(score, self.knots, self.chances))

    def threshold(self, share: float) -> float:
        """The score that a share of the calibration texts reach; no text reaches that of 0, and every one that of 1."""
        check_share(share)
        if share in (0, 1):
            return float("-inf") if share else float("inf")
        return float(np.interp(1 - share, np.linspace(0, 1, len(self.quantiles)), self.quantiles))

    def check_fits(self, settings: dict[str, Any] | None) -> None:
        """Raises unless the certificate was made for a pyramid with these settings."""
        if settings != self.settings:
            raise PyramidError(
                "the certificate was calibrated for other pyramid settings than the model has now; "
                "calibrate again with Certificate.fit(clf, texts) or `pyramid-bert certify`"
            )

    # ---- as data ----

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict from which `from_dict` makes an equal certificate."""
        data = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"format": _FORMAT, **data}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Certificate:
        """The certificate that `to_dict` described."""
        fields: dict[str, Any] = dict(data)
        version = fields.pop("format", None)
        if not isinstance(version, int) or version > _FORMAT:
            raise CheckpointError(
                f"this certificate has format {version!r} and this release reads up to {_FORMAT}; "
                "upgrade with: pip install -U pyramid-bert"
            )
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        try:
            found = cls(**fields)
            found._check()
        except (TypeError, PyramidError) as error:
            raise CheckpointError(f"the certificate is damaged: {error}; remove it, and calibrate again") from error
        return found

    def _check(self) -> None:
        """Raises unless every field is what `of` makes."""
        check_score(self.score)
        for name in ("weights", "knots", "chances", "quantiles"):
            values = getattr(self, name)
            if not isinstance(values, tuple) or not values or not all(map(_is_number, values)):
                raise PyramidError(f"its {name} must be finite numbers, at least one, got {reprlib.repr(values)}")
        if len(self.knots) != len(self.chances) or list(self.knots) != sorted(self.knots) or len(self.weights) != 2:
            raise PyramidError("its numbers do not belong together")
        for name, kind in (("rows", int), ("flips", int), ("settings", dict)):
            if not isinstance(getattr(self, name), kind):
                raise PyramidError(f"its {name} must be of type {kind.__name__}, got {getattr(self, name)!r}")

    def save(self, folder: str | Path) -> None:
        """Writes the certificate beside a saved model."""
        write_text(Path(folder) / FILE, json.dumps(self.to_dict(), indent=1))

    @classmethod
    def load(cls, folder: str | Path) -> Certificate | None:
        """The certificate beside a saved model, or None when there is none."""
        path = Path(folder) / FILE
        if not path.is_file():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CheckpointError(f"{path} is damaged: {error}; remove it, and calibrate again") from error
        if not isinstance(data, dict):
            raise CheckpointError(f"{path} is damaged: it holds no certificate; remove it, and calibrate again")
        try:
            return cls.from_dict(data)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error


def trial_of(
    classifier: Any,
    texts: Sequence[Text],
    *,
    score: str = "confidence",
    batch_size: int = 32,
    progress: bool = False,
) -> Trial:
    """The trial that a certificate is made of; what cannot work is refused before any work.

    Args:
        classifier: A `PyramidClassifier` that is a pyramid.
        texts: At least 50.
        score: What answers are to be judged by.
        batch_size: Texts at a time.
        progress: Show a bar.
    """
    check_score(score)
    check_can_flip(classifier)
    if score != "confidence" and not keeps_tokens(classifier.model):
        raise PyramidError(
            f"the score {score!r} needs covering radii, and the selector {classifier.settings.selector!r} keeps no "
            "token that could cover others; use score='confidence'"
        )
    if len(texts) < MIN_ROWS:
        raise DataError(
            f"a certificate needs at least {MIN_ROWS} texts to be calibrated on, got {len(texts)}; "
            "they need no labels, so texts as the model will meet them do"
        )
    _isotonic()
    items = classifier.encode(texts)
    return Trial.of(
        classifier.model, items, classifier.tokenizer.pad_token_id, batch_size=batch_size, progress=progress
    )


def check_can_flip(classifier: Any) -> None:
    """Raises unless the classifier is a pyramid that predicts classes."""
    if classifier.known_labels().classes is None:
        raise PyramidError("this model predicts numbers, which do not flip; a certificate needs a classifier")
    if classifier.settings is None:
        raise PyramidError(
            "a dense model cannot differ from itself; give a pyramid, like those that pyramidize, `pyramid-bert train` "
            "and `pyramid-bert speedup` make"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _isotonic() -> Any:
    try:
        from sklearn.isotonic import IsotonicRegression
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "train", "fitting a certificate") from error
    return IsotonicRegression
