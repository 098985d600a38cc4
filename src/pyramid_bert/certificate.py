"""Certificates: how likely a pyramid's answer differs from the dense model's, and running doubtful answers again.

The doubt about an answer is 1 minus the margin between its two likeliest classes. A certificate learns from unlabelled
texts how often answers of a given doubt flip. Covering radii were measured too, and predict flips no better
(docs/theory.md).
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .boundary import read_object
from .checks import check_number
from .errors import CheckpointError, DataError, MissingExtraError, PyramidError, shown
from .families import sizes_of
from .files import write_text
from .text.inference import kept_of, outputs_of
from .text.kind import TextKind
from .text.predicting import Answers, check_score
from .text.tables import Text

FILE = "certificate.json"
MIN_ROWS = 50
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
_FORMAT, _QUANTILES = 2, 200
_DOUBT = 1.000001  # the largest doubt, with what rounding in float32 adds
_REMEDY = "remove it, and calibrate again"
_AGAIN = "calibrate again with Certificate.fit(clf, texts) or `pyramid-bert certify`"


@dataclass(frozen=True)
class Certificate:
    """The chance that a pyramid's prediction is not the dense model's, by the doubt about it.

    Belongs to one model with one set of pyramid settings, and is saved beside it.

    Attributes:
        knots: Doubts, ascending, between which the chance is interpolated (isotonic regression).
        chances: The chance of a flip at each of the knots.
        quantiles: The doubts of the calibration texts at equal steps from the lowest to the highest.
        rows: How many texts it was calibrated on.
        flips: For how many of them the prediction differed.
        settings: The pyramid's.
        texts: The kind of the calibration texts; None if it is not known.

    Example:
        certificate = Certificate.fit(clf, texts)
        certificate.chance(certificate.quantiles[-1])  # for the most doubtful of the texts
    """

    knots: tuple[float, ...]
    chances: tuple[float, ...]
    quantiles: tuple[float, ...]
    rows: int
    flips: int
    settings: dict[str, Any]
    texts: TextKind | None = None

    @classmethod
    def fit(
        cls,
        classifier: Any,
        texts: Sequence[Text],
        *,
        score: str | None = None,
        batch_size: int = 32,
        progress: bool = False,
    ) -> Certificate:
        """Runs a `PyramidClassifier` as a pyramid and keeping all tokens, and learns where the two differ.

        Takes at least 50 texts that it was not trained on, without labels. `score` is deprecated.
        """
        check_score(score)
        return cls.of(compare_with_dense(classifier, texts, batch_size=batch_size, progress=progress))

    @classmethod
    def of(cls, comparison: Comparison) -> Certificate:
        """The certificate of a comparison."""
        doubt, flips = comparison.doubt, comparison.flips
        line = _isotonic()(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(doubt, flips.astype(float))
        return cls(
            knots=tuple(map(float, line.X_thresholds_)),
            chances=tuple(map(float, line.y_thresholds_)),
            quantiles=tuple(map(float, np.quantile(doubt, np.linspace(0, 1, _QUANTILES + 1)))),
            rows=len(doubt),
            flips=int(flips.sum()),
            settings=comparison.settings,
            texts=comparison.texts,
        )

    def chance(self, doubt: Any) -> NDArray[Any]:
        """The chance of a flip at a doubt, or at each of several."""
        return np.asarray(np.interp(doubt, self.knots, self.chances))

    def threshold(self, share: float) -> float:
        """The doubt that this share of the calibration texts reaches: infinity for 0, minus infinity for 1."""
        _check_share(share)
        if share in (0, 1):
            return -math.inf if share else math.inf
        return float(np.interp(1 - share, np.linspace(0, 1, len(self.quantiles)), self.quantiles))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict from which `from_dict` makes an equal certificate."""
        data = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"format": _FORMAT, **data}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Certificate:
        """The certificate that `to_dict` described, or version 0.1.0 wrote for the score "confidence"."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        version = fields.pop("format", None)
        if type(version) is not int or version < 1:
            raise CheckpointError(f"the certificate is damaged: its format is {reprlib.repr(version)}; {_REMEDY}")
        if version > _FORMAT:
            raise CheckpointError(
                f"this certificate has format {version} and this release reads up to {_FORMAT}; "
                "upgrade with: pip install -U pyramid-bert"
            )
        if version == 1:
            fields.pop("weights", None)
            if (score := fields.pop("score", None)) != "confidence":
                shown = reprlib.repr(score)
                raise CheckpointError(f"this certificate uses the score {shown}, which was removed; {_AGAIN}")
        texts = fields.pop("texts", None)
        names = set(cls.__dataclass_fields__) - {"texts"}
        if unlike := sorted(names ^ set(fields)):
            why = "it lacks" if unlike[0] in names else "it has an unknown field"
            raise CheckpointError(f"the certificate is damaged: {why} {reprlib.repr(unlike[0])}; {_REMEDY}")
        try:
            return cls(**fields, texts=None if texts is None else TextKind.from_dict(texts))
        except PyramidError as error:
            raise CheckpointError(f"the certificate is damaged: {error}; {_REMEDY}") from error

    def __post_init__(self) -> None:
        for name, most in (("knots", _DOUBT), ("chances", 1.0), ("quantiles", _DOUBT)):
            values = getattr(self, name)
            numbers = isinstance(values, tuple) and all(type(value) in (int, float) for value in values)
            if not numbers or not values or not all(1 - most <= value <= most for value in values):
                raise PyramidError(f"{name} must be numbers in 0-1, at least one, got {reprlib.repr(values)}")
            if list(values) != sorted(values):
                raise PyramidError(f"{name} must be ascending, got {reprlib.repr(values)}")
        if len(self.knots) != len(self.chances):
            raise PyramidError(f"each of {len(self.knots)} knots must have one chance, got {len(self.chances)}")
        check_number("rows", self.rows, 1, whole=True)
        check_number("flips", self.flips, 0, self.rows, whole=True)
        if not isinstance(self.settings, dict):
            raise PyramidError(f"settings must be those of a pyramid, got {reprlib.repr(self.settings)}")

    def save(self, folder: str | Path) -> None:
        """Writes the certificate beside a saved model."""
        write_text(Path(folder) / FILE, json.dumps(self.to_dict(), indent=1))

    @classmethod
    def load(cls, folder: str | Path) -> Certificate | None:
        """The certificate beside a saved model, or None when there is none."""
        path = Path(folder) / FILE
        if not path.is_file():
            return None
        data = read_object(path, CheckpointError, _REMEDY)
        try:
            return cls.from_dict(data)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error


@dataclass(frozen=True)
class Comparison:
    """A pyramid and the dense model with its weights on the same texts.

    Attributes:
        doubt: (n,) about the pyramid's answers.
        flips: (n,) bool: the prediction differs from the dense model's.
        macs: (n,) multiply-accumulates of the pyramid.
        dense_macs: (n,) those of the dense model.
        settings: The pyramid's.
        texts: Their kind; None if it is not known.
    """

    doubt: NDArray[Any]
    flips: NDArray[Any]
    macs: NDArray[Any]
    dense_macs: NDArray[Any]
    settings: dict[str, Any]
    texts: TextKind | None = None

    def speedup(self, rerun: NDArray[Any] | None = None) -> float:
        """The ideal speed-up over the dense model when the texts `rerun` (n,) bool are run densely as well."""
        again = 0 if rerun is None else self.dense_macs[rerun].sum()
        return float(self.dense_macs.sum() / (self.macs.sum() + again))

    def by_share(self, shares: Sequence[float] = SHARES) -> list[dict[str, Any]]:
        """For each share of texts run again: the flips removed, as a share of all flips, and the ideal speed-up left.

        "random" is the mean of all choices of equally many texts.
        """
        table = []
        for share in shares:
            rerun = worst(self.doubt, share)
            removed = float((self.flips & rerun).sum() / max(self.flips.sum(), 1))
            shares_removed = {"random": float(rerun.mean()), "confidence": removed}
            speedup = {"confidence": self.speedup(rerun)}
            table.append({"share": share, "removed": shares_removed, "ideal_speedup": speedup})
        return table


def compare_with_dense(
    classifier: Any, texts: Sequence[Text], *, batch_size: int = 32, progress: bool = False
) -> Comparison:
    """Runs a `PyramidClassifier` on at least 50 texts twice: as the pyramid it is, and keeping all tokens."""
    check_can_flip(classifier)
    if len(texts) < MIN_ROWS:
        raise DataError(
            f"a certificate needs at least {MIN_ROWS} texts to be calibrated on, got {len(texts)}; "
            "they need no labels, so any texts like those that the model will be used on will do"
        )
    _isotonic()  # raises for a missing package before the work
    items, sizes = classifier.encode(texts), sizes_of(classifier.model)
    call = classifier.model, items, classifier.tokenizer.pad_token_id
    titles = ("the pyramid", "keeping all tokens") if progress else (None, None)
    ours = outputs_of(*call, batch_size=batch_size, title=titles[0]).logits
    dense = outputs_of(*call, batch_size=batch_size, title=titles[1], dense=True).logits
    kept = kept_of(*call, batch_size=batch_size)
    costs = [classifier.settings.cost(lengths, len(item), sizes) for lengths, item in zip(kept, items, strict=True)]
    return Comparison(
        doubt=_doubt(ours),
        flips=(ours.argmax(1) != dense.argmax(1)).numpy(),
        macs=np.array([cost.macs for cost in costs]),
        dense_macs=np.array([cost.dense_macs for cost in costs]),
        settings=classifier.settings.to_dict(),
        texts=TextKind.of(items, classifier.tokenizer.sep_token_id),
    )


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
    """What `classifier` predicts for the texts; see `PyramidClassifier.answers`."""
    check_score(score)
    certificate = _certificate_for(classifier, fallback, streaming)
    items, pad_id = classifier.encode(texts), classifier.tokenizer.pad_token_id
    titles = ("predicting", "keeping all tokens") if progress else (None, None)
    run = partial(outputs_of, classifier.model, pad_id=pad_id, batch_size=batch_size)
    outputs = run(items, coverage=radius, title=titles[0])
    logits = outputs.logits.numpy()
    radii = None if outputs.coverage is None else outputs.coverage.radius
    if fallback is None:
        return Answers(logits, radii)
    doubt = _doubt(outputs.logits)
    again = doubt >= certificate.threshold(fallback) if streaming and certificate else worst(doubt, fallback)
    chosen = np.flatnonzero(again)
    if len(chosen):
        logits[chosen] = run([items[i] for i in chosen], dense=True, title=titles[1]).logits.numpy()
    return Answers(logits, radii, again, None if certificate is None else certificate.chance(doubt))


def _certificate_for(classifier: Any, fallback: float | None, streaming: bool) -> Certificate | None:
    """The classifier's certificate where it is needed; raises for a call that cannot work, before any work."""
    if fallback is None:
        if streaming:
            raise PyramidError("streaming says how texts are chosen to fall back; give fallback as well, like 0.05")
        classifier.known_labels()
        return None
    _check_share(fallback)
    check_can_flip(classifier)
    certificate: Certificate | None = classifier.certificate
    if certificate is not None and certificate.settings != classifier.settings.to_dict():
        raise PyramidError(
            f"the certificate was calibrated for other pyramid settings than the model has now; {_AGAIN}"
        )
    if certificate is None and streaming:
        raise PyramidError(
            "streaming takes its threshold from a certificate, and the model has none; fit one with "
            "clf.certificate = Certificate.fit(clf, texts) or `pyramid-bert certify`"
        )
    return certificate


def worst(doubt: NDArray[Any], share: float) -> NDArray[Any]:
    """(n,) bool: the share of the rows with the highest doubts, the first of equal ones.

    Example:
        >>> worst(np.array([0.1, 0.9, 0.5, 0.9]), 0.25).tolist()
        [False, True, False, False]
    """
    chosen = np.zeros(len(doubt), dtype=bool)
    chosen[np.argsort(-doubt, kind="stable")[: int(share * len(doubt) + 0.5)]] = True
    return chosen


def check_can_flip(classifier: Any) -> None:
    """Raises unless the classifier is a pyramid that predicts classes."""
    if classifier.known_labels().classes is None:
        raise PyramidError("this model predicts numbers, which do not flip; a certificate needs a classifier")
    if classifier.settings is None:
        raise PyramidError(
            "a dense model cannot differ from itself; give a pyramid, like those that pyramidize, `pyramid-bert train` "
            "and `pyramid-bert speedup` make"
        )


def _doubt(logits: Tensor) -> NDArray[Any]:
    """(n,) 1 minus the margin between the two likeliest classes, in 0-1."""
    ranked = logits.softmax(dim=1).topk(2, dim=1).values
    doubt: NDArray[Any] = (1 - (ranked[:, 0] - ranked[:, 1])).double().numpy()
    return doubt


def _check_share(share: float) -> None:
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= share <= 1:
        raise PyramidError(
            f"fallback must be a share of the texts in 0-1, got {shown(share)}; 0.05 runs 5 % again, densely"
        )


def _isotonic() -> Any:
    try:
        from sklearn.isotonic import IsotonicRegression
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "train", "fitting a certificate") from error
    return IsotonicRegression
