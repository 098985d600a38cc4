"""The loss against a teacher, and who may be one."""

import math
from types import SimpleNamespace

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from pyramid_bert.errors import DataError, PyramidError
from pyramid_bert.text.labels import Labels
from pyramid_bert.training import TrainSettings
from pyramid_bert.training.distillation import check_teacher, distilled_loss, soft_loss


def slow_soft_loss(logits, target, temperature):
    """KL(teacher || student) written out, times T²."""
    total = 0.0
    for row, goal in zip(logits.tolist(), target.tolist(), strict=True):
        student, teacher = (softmax(values, temperature) for values in (row, goal))
        total += sum(p * (math.log(p) - math.log(q)) for p, q in zip(teacher, student, strict=True))
    return total / len(logits) * temperature**2


def softmax(values, temperature):
    powers = [math.exp(value / temperature) for value in values]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 7.0])
def test_soft_loss_is_the_kl_divergence_at_a_temperature(temperature):
    torch.manual_seed(0)
    logits, target = torch.randn(5, 3), torch.randn(5, 3)
    expected = slow_soft_loss(logits, target, temperature)
    assert soft_loss(logits, target, temperature).item() == pytest.approx(expected, rel=1e-5)


def test_soft_loss_of_a_regressor_is_the_squared_error_at_any_temperature():
    logits, target = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [4.0]])
    assert soft_loss(logits, target, 5.0).item() == 2.5


def test_the_loss_is_a_mixture():
    logits, target = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    cls, goal = torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]])
    hard, soft = torch.tensor(5.0), soft_loss(logits, target, 2.0)
    settings = TrainSettings(temperature=2.0, distill_weight=0.25, hidden_weight=3.0)
    mixed = distilled_loss(hard, logits, cls, {"teacher_logits": target}, settings)
    assert mixed.item() == pytest.approx(0.75 * 5 + 0.25 * soft.item())
    matched = distilled_loss(hard, logits, cls, {"teacher_logits": target, "teacher_cls": goal}, settings)
    assert matched.item() == pytest.approx(mixed.item() + 3 * 2.0)


def classifier(classes=("a", "b"), vocabulary=("x",), hidden=8, positions=64, max_length=None):
    sizes = {"hidden_size": hidden, "intermediate_size": hidden, "num_attention_heads": 1, "num_hidden_layers": 1}
    labels = Labels(classes)
    return SimpleNamespace(
        model=BertForSequenceClassification(BertConfig(vocab_size=9, max_position_embeddings=positions, **sizes)),
        tokenizer=SimpleNamespace(get_vocab=lambda: {word: i for i, word in enumerate(vocabulary)}),
        known_labels=lambda: labels,
        max_length=max_length,
    )


@pytest.mark.parametrize(
    ("teacher", "error", "message"),
    [
        ({"classes": ("b", "a")}, DataError, r"the teacher predicts 'b', 'a', the model 'a', 'b'"),
        ({"classes": None}, DataError, "the teacher predicts a number, the model 'a', 'b'"),
        ({"vocabulary": ("x", "y")}, PyramidError, "the teacher has another vocabulary"),
        ({"positions": 32}, PyramidError, "the teacher reads 32 tokens at most and the model 64; .*max_length=32"),
        ({"hidden": 16}, PyramidError, "the teacher's have 16 numbers and the model's 8; use hidden_weight=0"),
    ],
)
def test_who_cannot_teach(teacher, error, message):
    student = classifier()
    with pytest.raises(error, match=message):
        check_teacher(classifier(**teacher), student, Labels(("a", "b")), hidden=True)


def test_who_can_teach():
    student = classifier(max_length=32)
    check_teacher(classifier(hidden=16, positions=32), student, Labels(("a", "b")), hidden=False)
    with pytest.raises(PyramidError, match="load it a second time"):
        check_teacher(student, student, Labels(("a", "b")), hidden=False)
