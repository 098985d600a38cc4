"""Which F1 is told: a matter of the classes that the model knows, not of those that happen to occur."""

import math

import numpy as np
import pytest

from pyramid_bert.text.labels import Labels
from pyramid_bert.text.metrics import agreement, classification_metrics, metrics_of

# Class 0: found once, missed once; class 1: found twice, one too many.
TRUTH, PREDICTED = [0, 0, 1, 1], [0, 1, 1, 1]
F1_OF_0, F1_OF_1 = 2 / 3, 4 / 5


@pytest.mark.parametrize(
    ("truth", "predicted", "classes", "f1"),
    [
        (TRUTH, PREDICTED, 2, F1_OF_1),
        (TRUTH, PREDICTED, 3, (F1_OF_0 + F1_OF_1) / 2),  # a model of three classes on two
        ([0, 0], [0, 0], 2, 0.0),  # there is nothing of class 1 to be found
        ([1, 1], [1, 1], 2, 1.0),
        ([0, 0], [0, 1], 2, 0.0),
        ([2, 2], [2, 2], 3, 1.0),
    ],
)
def test_f1(truth, predicted, classes, f1):
    assert classification_metrics(truth, predicted, classes)["f1"] == pytest.approx(f1)


@pytest.mark.parametrize(
    ("known", "f1"),
    [
        (Labels(("a", "b")), F1_OF_1),
        (Labels(("b", "a")), F1_OF_0),  # the model's order counts
        (Labels(("a", "b", "c")), (F1_OF_0 + F1_OF_1) / 2),
    ],
)
def test_the_classes_are_the_models(known, f1):
    words = ["a", "b"]
    logits = np.eye(known.outputs)[[known.classes.index(words[i]) for i in PREDICTED]]
    metrics = metrics_of(known, [words[i] for i in TRUTH], logits)
    assert metrics["accuracy"] == 0.75
    assert metrics["f1"] == pytest.approx(f1)


def test_classes_by_name_or_by_number():
    known = Labels(("not_equivalent", "equivalent"), numbered=True)
    by_number = metrics_of(known, TRUTH, np.eye(2)[PREDICTED])
    assert by_number["f1"] == pytest.approx(F1_OF_1)
    assert by_number == metrics_of(known, [known.classes[i] for i in TRUTH], np.eye(2)[PREDICTED])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([1.0, 2.0, 3.0], [3.0, 5.0, 7.0], 1.0),
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], -1.0),
        ([2.0, 2.0, 2.0], [2.0, 2.0, 2.0], 1.0),  # no correlation, and the same numbers
        ([2.0, 2.0, 2.0], [1.0, 1.0, 1.0], 0.0),
        ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0], 0.0),
        ([1.0, 2.0, 3.0], [math.nan, math.nan, math.nan], 0.0),
    ],
)
def test_numbers_agree_as_they_correlate(before, after, expected):
    assert agreement(np.array(before)[:, None], np.array(after)[:, None]) == pytest.approx(expected)
