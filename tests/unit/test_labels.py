"""What labels are taken for: classes by name or number, or numbers to predict."""

import pytest

from pyramid_bert.errors import DataError
from pyramid_bert.text.labels import Labels, as_target

NAMED = Labels(("not_equivalent", "equivalent"), numbered=True)


def test_numbered_classes_are_known_by_name_and_by_number():
    for given in (["equivalent", "not_equivalent"], [1, 0], [1.0, 0.0]):
        assert NAMED.targets(given) == [1, 0]
    assert Labels.of([0, 1], 2).fits_into(NAMED)
    assert not Labels.of([0, 1, 2], 3).fits_into(NAMED)
    for stray in (2, "paraphrase"):
        with pytest.raises(DataError, match=f"label 1 is {stray!r}, which the model does not know"):
            NAMED.targets([0, stray])


def test_other_classes_are_not_known_by_number():
    with pytest.raises(DataError, match="label 0 is 1, which the model does not know; its classes are 'a', 'b'"):
        Labels(("a", "b")).targets([1, 0])


@pytest.mark.parametrize(
    ("labels", "target", "expected"),
    [
        ([1, 5], "number", [1.0, 5.0]),
        ([1.5, 2.0], "number", [1.5, 2.0]),
        ([0.0, 1.0], "classes", [0, 1]),
        ([3, 1], "classes", [3, 1]),
        (["a", "b"], "classes", ["a", "b"]),
    ],
)
def test_what_the_user_says_they_are(labels, target, expected):
    made = as_target(labels, target)
    assert made == expected
    assert list(map(type, made)) == list(map(type, expected))


@pytest.mark.parametrize(
    ("labels", "target", "message"),
    [
        (["1", "a"], "number", "row 1: the label is '1'; a regression target must be a finite number"),
        ([1.0, float("nan")], "number", "row 2: the label is nan; a regression target"),
        ([1.0, 0.5], "classes", "row 2: the label is 0.5; a class must be a word or a whole number"),
        ([1.0, float("inf")], "classes", "row 2: the label is inf; a class must be"),
    ],
)
def test_what_they_cannot_be(labels, target, message):
    with pytest.raises(DataError, match=message):
        as_target(labels, target, lambda i: f"row {i + 1}")


def test_the_summary_of_many_classes_stays_short():
    many = Labels(tuple(range(150)))
    assert many.summary([0]) == "150 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..."


def test_a_few_whole_floats_could_be_both():
    for labels in ([0.0, 1.0], [1.0, 2.0, 5.0]):
        with pytest.raises(DataError, match="Say which with target"):
            Labels.of(labels, len(labels))
        assert Labels.of(labels, len(labels), target="number") == Labels(None)
        assert Labels.of(labels, len(labels), target="classes").classes == tuple(map(int, labels))
        assert Labels.to_learn(labels, len(labels), Labels(None)) == Labels(None)  # a regressor goes on
    assert Labels.of([0.0, 1.5, 5.0], 3) == Labels(None)
    assert Labels.of([float(i) for i in range(21)], 21) == Labels(None)
    assert Labels.of([True, False], 2).classes == (False, True)


def test_classes_are_not_replaced_in_silence():
    known = Labels(("neg", "pos"))
    assert Labels.to_learn(["pos", "neg"], 2, known) is known
    for other in (["a", "b"], [0.5, 1.5]):
        with pytest.raises(DataError, match="pass new_classes=True"):
            Labels.to_learn(other, 2, known)
    assert Labels.to_learn(["a", "b"], 2, known, new_classes=True).classes == ("a", "b")
    assert Labels.to_learn(["a", "b"], 2, Labels(("LABEL_0", "LABEL_1"))).classes == ("a", "b")  # transformers' names
