"""PyramidClassifier: what a user does with it, from the first fit to a loaded model."""

import numpy as np
import pytest
import torch
from helpers import run

from pyramid_bert import PyramidClassifier, Schedule, is_pyramid, measure_sensitivity, pyramidize, restore
from pyramid_bert.errors import DataError, PyramidError
from pyramid_bert.families import base_model
from pyramid_bert.text.labels import Labels

SCHEDULE = Schedule.exponential(0.4, last_layer=3, first_layer=2, min_tokens=3)
FAST = {"epochs": 8, "learning_rate": 2e-3, "batch_size": 16, "progress": False}


@pytest.fixture(scope="module")
def trained(learner_dir, sentiment):
    return PyramidClassifier.from_pretrained(learner_dir, SCHEDULE).fit(*sentiment(300), **FAST)


def test_it_learns(trained, sentiment):
    metrics = trained.evaluate(*sentiment(200, seed=9))
    assert metrics["accuracy"] > 0.9  # a decisive word among fillers: chance is 0.5
    assert set(metrics) == {"accuracy", "f1", "matthews"}
    assert list(trained.classes_) == ["neg", "pos"]


def test_predictions_keep_the_order_of_the_texts_at_any_batch_size(trained, sentiment):
    texts, _ = sentiment(50, seed=3)
    alone = np.concatenate([trained.predict_proba([text]) for text in texts])
    for batch_size in (1, 7, 64):
        together = trained.predict_proba(texts, batch_size=batch_size)
        assert np.abs(together - alone).max() < 1e-5
        assert list(trained.predict(texts, batch_size=batch_size)) == list(trained.classes_[alone.argmax(1)])
    assert np.allclose(alone.sum(1), 1)


def test_save_and_load_give_the_same_classifier(trained, sentiment, tmp_path):
    trained.save(tmp_path / "model")
    loaded = PyramidClassifier.load(tmp_path / "model")
    texts, _ = sentiment(20, seed=4)
    assert np.array_equal(loaded.predict_logits(texts), trained.predict_logits(texts))
    assert loaded.settings == trained.settings
    assert list(loaded.classes_) == ["neg", "pos"]
    trained.save(tmp_path / "model")  # over an earlier one
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_save_and_train_keep_what_they_did_not_write(trained, sentiment_files, learner_dir, tmp_path):
    trained.save(tmp_path / "model")
    for folder in ("model", "project"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "notes.md").write_text("mine")
        with pytest.raises(PyramidError, match=r"holds other files, for example notes\.md"):
            trained.save(tmp_path / folder)
        assert (tmp_path / folder / "notes.md").read_text() == "mine"
    train = ("train", "--model", learner_dir, "--train", sentiment_files / "train.csv")
    assert run(*train, "--out", tmp_path / "project") == 1
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["notes.md"]


def test_save_through_a_link(trained, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    trained.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "config.json").is_file()


def test_a_saved_pyramid_keeps_what_is_not_named(tiny_model_dir, tmp_path):
    first = PyramidClassifier.from_pretrained(tiny_model_dir, SCHEDULE, "attention", weighted=True, max_length=16)
    first.save(tmp_path / "m")
    again = PyramidClassifier.from_pretrained(tmp_path / "m", cls_only=False)
    assert again.settings == first.settings.replace(cls_only=False)
    assert again.max_length == 16
    assert PyramidClassifier.from_pretrained(tmp_path / "m", selector="first").settings.selector == "first"
    with pytest.raises(PyramidError, match="a dense model has no metric"):
        PyramidClassifier.from_pretrained(tmp_path / "m", "dense", metric="cosine")


def test_pairs_and_integer_labels(tiny_model_dir, sentiment, tmp_path):
    texts, labels = sentiment(32)
    pairs, numbers = [(text, "it is a film") for text in texts], [3 if label == "pos" else -1 for label in labels]
    clf = PyramidClassifier.from_pretrained(tiny_model_dir, SCHEDULE).fit(pairs, numbers, **{**FAST, "epochs": 1})
    assert clf.predict_proba(pairs[:5]).shape == (5, 2)
    assert " ‖ " in clf.explain(pairs[0]).text
    clf.save(tmp_path / "m")
    assert set(PyramidClassifier.load(tmp_path / "m").predict(pairs).tolist()) <= {-1, 3}


def test_regression(learner_dir, sentiment, tmp_path):
    texts, labels = sentiment(200)
    scores = [1.5 if label == "pos" else -0.5 for label in labels]
    clf = PyramidClassifier.from_pretrained(learner_dir, SCHEDULE).fit(texts, scores, **FAST)
    assert clf.evaluate(texts, scores)["spearman"] > 0.5
    clf.save(tmp_path / "m")
    assert PyramidClassifier.load(tmp_path / "m").predict(texts[:3]).dtype == np.float32
    with pytest.raises(PyramidError, match="no probabilities"):
        clf.predict_proba(texts[:2])


def test_explain_tells_the_way_of_every_token(trained):
    text = "the film is a story and it has some brilliant music for you"
    before = trained.predict_logits([text])
    explanation = trained.explain(text)
    assert np.array_equal(trained.predict_logits([text]), before)  # explaining changes nothing
    assert explanation.tokens[0] == "[CLS]"
    assert [len(view.kept) for view in explanation.layers] == list(SCHEDULE.lengths(len(explanation.tokens), 4))
    for view in explanation.layers:
        assert view.kept[0] == 0
        assert set(view.home) <= set(view.kept)
        assert all(view.home[position] == position for position in view.kept)
    assert explanation.layers[1].radius > 0
    for prediction, chances in (
        (explanation.prediction, explanation.probabilities),
        (explanation.dense_prediction, explanation.dense_probabilities),
    ):
        assert list(chances) == ["neg", "pos"]
        assert max(chances, key=chances.get) == prediction
        assert sum(chances.values()) == pytest.approx(1)


def test_dense_and_default_schedules(tiny_model_dir):
    assert not is_pyramid(PyramidClassifier.from_pretrained(tiny_model_dir, "dense").model)
    clf = PyramidClassifier.from_pretrained(tiny_model_dir)  # a trained dense classifier keeps its head
    assert is_pyramid(clf.model)
    assert set(clf.predict(["a fine film"])) <= {"LABEL_0", "LABEL_1"}


def test_a_text_of_one_token_and_a_batch_of_one(trained):
    assert trained.predict(["film"]).shape == (1,)
    trained.explain("!")


def test_unknown_labels_are_refused_before_any_work(trained):
    with pytest.raises(DataError, match=r"label 1 is 'meh'.*'neg', 'pos'"):
        trained.evaluate(["a film", "a film"], ["pos", "meh"])


def test_bool_labels_are_classes(learner_dir, sentiment, tmp_path):
    texts, labels = sentiment(32)
    clf = PyramidClassifier(learner_dir, schedule=SCHEDULE)
    clf.fit(texts, [label == "pos" for label in labels], **{**FAST, "epochs": 1}).save(tmp_path / "m")
    assert PyramidClassifier.load(tmp_path / "m").predict(texts[:3]).dtype == bool


def test_a_model_loads_in_the_precision_that_it_was_saved_in(tiny_bert, tokenizer, tiny_model_dir, tmp_path):
    labels = Labels(("bad", "good"))
    half = PyramidClassifier(tiny_bert().to(torch.bfloat16), tokenizer, schedule=SCHEDULE, labels=labels)
    half.save(tmp_path / "m")
    loaded = PyramidClassifier.load(tmp_path / "m")
    assert loaded.model.dtype == torch.bfloat16
    assert np.array_equal(loaded.predict_logits(["a fine film"]), half.predict_logits(["a fine film"]))
    assert PyramidClassifier.load(tmp_path / "m", dtype="float32").model.dtype == torch.float32
    half.model.save_pretrained(tmp_path / "foreign")
    tokenizer.save_pretrained(tmp_path / "foreign")
    assert PyramidClassifier.load(tmp_path / "foreign").model.dtype == torch.float32


def test_fit_measures_sensitivity_again(learner_dir, sentiment, tmp_path):
    texts, labels = sentiment(32)
    clf = PyramidClassifier.from_pretrained(learner_dir, "dense").fit(texts, labels, **{**FAST, "epochs": 1})
    items = clf.encode(texts)
    pyramidize(measure_sensitivity(clf.model, items), SCHEDULE, "cluster", metric="sensitivity")
    before = base_model(clf.model).sensitivity.clone()
    with pytest.raises(DataError, match="measured again after training"):
        clf.fit(texts[:5], labels[:5], **FAST)
    clf.fit(texts, labels, **FAST)
    after = base_model(clf.model).sensitivity
    assert not torch.equal(after, before)
    assert torch.equal(base_model(measure_sensitivity(clf.model, items)).sensitivity, after)
    restore(clf.model)
    measure_sensitivity(clf.model, items)
    assert not hasattr(base_model(clf.fit(texts, labels, **FAST).model), "sensitivity")  # nobody uses it


def test_dropout_of_fit_has_no_say_in_the_choice_at_the_input(learner_dir, sentiment):
    clf = PyramidClassifier.from_pretrained(learner_dir, Schedule.input_only(0.5))
    seen = []
    base_model(clf.model).embeddings.register_forward_hook(lambda part, given, output: seen.append(part.dropout))
    clf.fit(*sentiment(16), **{**FAST, "epochs": 1}, dropout=0.5)
    assert seen
    assert all(isinstance(part, torch.nn.Identity) for part in seen)
