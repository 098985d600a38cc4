"""What older versions saved loads, and gives the same logits."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification

import pyramid_bert.lab.performer  # noqa: F401 - its family
from pyramid_bert import PyramidClassifier, is_pyramid

SAVED = Path(__file__).parents[1] / "data" / "saved"
MODELS = sorted(path.parent.name for path in SAVED.glob("*/expected.safetensors"))


def test_every_family_is_there():
    assert {name.split("-")[0] for name in MODELS} == {"bert", "bigbird", "performer"}


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_pyramid_gives_the_same_logits(name):
    kind = AutoModel if name.endswith("bare") else AutoModelForSequenceClassification
    model = kind.from_pretrained(SAVED / name).eval()
    data = load_file(SAVED / name / "expected.safetensors")
    expected = data.pop("expected")
    assert is_pyramid(model)
    with torch.no_grad():
        found = model(**data)
    if name.endswith("bare"):  # states, not logits: up to 2 in size
        torch.testing.assert_close(found.last_hidden_state, expected, atol=1e-6, rtol=1e-6)
    else:
        torch.testing.assert_close(found.logits, expected, atol=1e-6, rtol=0)


def test_a_saved_classifier_gives_the_same_logits():
    folder = SAVED / "classifier"
    classifier = PyramidClassifier.load(folder)
    texts = (folder / ".texts.txt").read_text().splitlines()
    expected = load_file(folder / ".expected.safetensors")["expected"]
    torch.testing.assert_close(torch.from_numpy(classifier.predict_logits(texts)), expected, atol=1e-6, rtol=0)
    assert list(classifier.classes_) == ["bad", "good"]
    assert classifier.certificate is not None
