"""Learning from a teacher, as a user calls it."""

import pytest
import torch
from helpers import FAST, near, same, weights

from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.errors import CheckpointError, DataError, PyramidError
from pyramid_bert.text.inference import outputs_of

SCHEDULE = Schedule.exponential(0.5, first_layer=2, last_layer=3, min_tokens=3)
LEARN = {**FAST, "epochs": 8, "learning_rate": 2e-3}


@pytest.fixture(scope="module")
def teacher_dir(learner_dir, sentiment, tmp_path_factory):
    """A dense classifier that knows the task, with a class that the training data do not have."""
    folder = tmp_path_factory.mktemp("teacher") / "model"
    texts, labels = sentiment(256)
    dense = PyramidClassifier.from_pretrained(learner_dir, "dense")
    dense.fit([*texts, "film"], [*labels, "meh"], **LEARN)
    dense.save(folder)
    return folder


@pytest.fixture
def teacher(teacher_dir):
    return PyramidClassifier.load(teacher_dir)


def student(folder, **settings):
    return PyramidClassifier.from_pretrained(folder, SCHEDULE, **settings)


def test_a_student_comes_near_its_teacher_even_where_the_labels_are_wrong(learner_dir, teacher, sentiment):
    texts, labels = sentiment(256, seed=3)
    wrong = [{"pos": "neg", "neg": "pos"}[label] for label in labels]
    before = weights(teacher)
    taught = student(learner_dir).fit(texts, wrong, teacher=teacher, distill_weight=1.0, **LEARN)
    assert taught.classes_.tolist() == ["meh", "neg", "pos"]  # the teacher's
    assert taught.evaluate(texts, labels)["accuracy"] > 0.75
    alone = student(learner_dir).fit(texts, wrong, **LEARN)
    assert alone.evaluate(texts, labels)["accuracy"] < 0.25
    assert same(before, weights(teacher))
    assert not any(module.training for module in teacher.model.modules())


def test_without_a_share_the_teacher_changes_nothing(teacher_dir, teacher, sentiment):
    data = sentiment(64)
    alone = student(teacher_dir).fit(*data, **FAST)
    taught = student(teacher_dir).fit(*data, teacher=teacher, distill_weight=0.0, **FAST)
    assert near(weights(alone), weights(taught))
    half = student(teacher_dir).fit(*data, teacher=teacher, **FAST)
    assert not near(weights(alone), weights(half))


def test_matching_cls_brings_the_last_layer_nearer(teacher_dir, teacher, sentiment):
    texts, labels = sentiment(64)

    def gap(clf):
        both = [outputs_of(each.model, each.encode(texts), 0, batch_size=16, cls=True) for each in (clf, teacher)]
        return torch.nn.functional.mse_loss(*(outputs.cls for outputs in both)).item()

    plain = student(teacher_dir).fit(texts, labels, teacher=teacher, **FAST)
    matched = student(teacher_dir).fit(texts, labels, teacher=teacher, hidden_weight=10.0, **FAST)
    assert gap(matched) < 0.7 * gap(plain)


def test_a_regressor_learns_the_teachers_numbers(learner_dir, sentiment):
    texts, labels = sentiment(256)
    numbers = [1.0 if label == "pos" else -1.0 for label in labels]
    teacher = PyramidClassifier.from_pretrained(learner_dir, "dense").fit(texts, numbers, target="number", **LEARN)
    nothing = [0.0] * len(texts)
    taught = student(learner_dir).fit(texts, nothing, teacher=teacher, distill_weight=1.0, **LEARN)
    assert taught.evaluate(texts, numbers)["pearson"] > 0.8


def test_a_taught_run_goes_on_only_with_the_same_teacher_and_settings(teacher_dir, learner_dir, sentiment, tmp_path):
    data = sentiment(64)
    run = {**FAST, "output_dir": tmp_path}
    teacher = PyramidClassifier.load(teacher_dir)
    whole = student(teacher_dir).fit(*data, teacher=teacher, **run)
    again = student(teacher_dir).fit(*data, teacher=teacher, **run)  # from its last checkpoint
    assert same(weights(whole), weights(again))
    with pytest.raises(CheckpointError, match="different: teacher"):
        student(teacher_dir).fit(*data, **run)
    other = PyramidClassifier.load(teacher_dir)
    with torch.no_grad():
        other.model.classifier.bias.add_(1)
    with pytest.raises(CheckpointError, match="different: teacher"):
        student(teacher_dir).fit(*data, teacher=other, **run)
    with pytest.raises(CheckpointError, match="different: temperature"):
        student(teacher_dir).fit(*data, teacher=teacher, temperature=4.0, **run)


def test_a_teacher_of_another_task_is_refused_and_the_model_left_as_it_was(teacher_dir, teacher):
    clf = student(teacher_dir)
    before = weights(clf)
    with pytest.raises(DataError, match="the teacher predicts 'meh', 'neg', 'pos'"):
        clf.fit(["fine", "dull"], ["good", "bad"], teacher=teacher, new_classes=True, **FAST)
    with pytest.raises(PyramidError, match="temperature must be a number"):
        clf.fit(["fine", "dull"], ["pos", "neg"], teacher=teacher, temperature=0, **FAST)
    assert same(before, weights(clf))
