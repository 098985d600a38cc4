"""How good predictions are, by name; scikit-learn and SciPy do the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingExtraError
from .labels import Labels

# Names of the metrics, the one that counts by default first.
CLASSIFICATION = ("accuracy", "f1", "matthews")
REGRESSION = ("spearman", "pearson", "rmse")


def classification_metrics(truth: Sequence[Any], predicted: Sequence[Any], classes: int) -> dict[str, float]:
    """Accuracy, F1 (of class 1 of two classes, or the mean over those that occur) and Matthews correlation.

    Args:
        truth: The numbers of the right classes, from 0.
        predicted: The numbers of the predicted classes.
        classes: How many classes the model knows, whichever of them occur.

    Example:
        >>> classification_metrics([0, 1, 1, 0], [0, 1, 0, 0], classes=2)["accuracy"]
        0.75
    """
    try:
        from sklearn import metrics
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "train", "computing metrics") from error
    _check(truth, predicted)
    average = "binary" if classes == 2 else "macro"
    f1 = metrics.f1_score(truth, predicted, average=average, pos_label=1, zero_division=0)
    return {
        "accuracy": float(metrics.accuracy_score(truth, predicted)),
        "f1": float(f1),
        "matthews": float(metrics.matthews_corrcoef(truth, predicted)),
    }


def regression_metrics(truth: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Spearman and Pearson correlation, and the root of the mean squared error.

    Example:
        >>> round(regression_metrics([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])["spearman"], 6)
        1.0
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise MissingExtraError("scipy", "train", "computing metrics") from error
    _check(truth, predicted)
    if len(truth) < 2:
        raise DataError("correlations need at least two rows, got one")
    difference = np.asarray(truth, dtype=float) - np.asarray(predicted, dtype=float)
    return {
        "spearman": float(stats.spearmanr(truth, predicted).statistic),
        "pearson": float(stats.pearsonr(truth, predicted).statistic),
        "rmse": float(np.sqrt(np.mean(difference**2))),
    }


def _check(truth: Sequence[Any], predicted: Sequence[Any]) -> None:
    if len(truth) != len(predicted):
        raise DataError(f"{len(truth)} labels for {len(predicted)} predictions; give one label per text")


def metrics_of(known: Labels, labels: Sequence[Any], logits: NDArray[Any]) -> dict[str, float]:
    """The metrics by name of outputs (n, classes), given the true labels."""
    if known.classes is None:
        return regression_metrics(known.targets(labels), logits[:, 0].tolist())
    return classification_metrics(known.targets(labels), logits.argmax(axis=1).tolist(), known.outputs)


def agreement(before: NDArray[Any], after: NDArray[Any]) -> float:
    """The share of rows to which two outputs (n, classes) give the same label; of numbers, (n, 1), the correlation.

    Numbers that are all the same have no correlation: then it is 1 if both outputs are equal, and 0 if not.

    Example:
        >>> agreement(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 0.0]]))
        0.5
        >>> agreement(np.array([[1.0], [1.0]]), np.array([[1.0], [2.0]]))
        0.0
    """
    if before.shape[1] > 1:
        return float((before.argmax(1) == after.argmax(1)).mean())
    varies = before.std() > 0 and after.std() > 0
    return float(np.corrcoef(before[:, 0], after[:, 0])[0, 1]) if varies else float(np.allclose(before, after))
