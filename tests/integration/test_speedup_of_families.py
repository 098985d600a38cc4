"""`find_pyramid` on classifiers of other families, trained on a toy task: the speed and the labels that it promises."""

import pytest

from pyramid_bert import PyramidClassifier
from pyramid_bert.families import FAMILIES
from pyramid_bert.testing import tiny_model
from pyramid_bert.tune.search import find_pyramid

KINDS = {
    "modernbert": ("modernbert", {"local_attention": 16}),
    "modernbert, mean": ("modernbert", {"local_attention": 16, "classifier_pooling": "mean"}),
    "deberta-v2": (
        "deberta-v2",
        {"relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"], "share_att_key": True},
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def dense(request, tokenizer, sentiment, tmp_path_factory):
    """A dense classifier that has learned the toy task."""
    model_type, config = KINDS[request.param]
    family = next(family for family in FAMILIES if family.model_type == model_type)
    config = {**config, "vocab_size": len(tokenizer), "num_labels": 2, "hidden_size": 32, "initializer_range": 0.05}
    model = tiny_model(family, {**config, "pad_token_id": tokenizer.pad_token_id})
    folder = tmp_path_factory.mktemp("untrained")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    texts, labels = sentiment(384)
    classifier = PyramidClassifier.from_pretrained(folder, "dense")
    classifier.fit(texts, labels, epochs=6, learning_rate=3e-3, batch_size=16, progress=False)
    return classifier


def test_the_pyramid_has_the_speed_and_keeps_the_labels(dense, sentiment, tmp_path):
    found = find_pyramid(dense, 1.5, *sentiment(120, seed=2), target="ideal")
    assert found.ideal >= 1.5
    texts, labels = sentiment(150, seed=3)
    accuracy = dense.evaluate(texts, labels)["accuracy"]
    assert accuracy > 0.85
    assert found.classifier.evaluate(texts, labels)["accuracy"] > accuracy - 0.1
    found.classifier.save(tmp_path / "found")
    loaded = PyramidClassifier.load(tmp_path / "found")
    assert loaded.settings == found.settings
    assert loaded.predict(texts).tolist() == found.classifier.predict(texts).tolist()
    if dense.model.config.__dict__.get("classifier_pooling") == "mean":
        assert found.settings.rest_from is None
        assert not found.settings.cls_only
