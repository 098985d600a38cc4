"""PyramidClassifier in scikit-learn: its parameters, and the tools that take any estimator."""

import numpy as np
import pytest
import torch
from transformers import TrainingArguments

from pyramid_bert import PyramidClassifier, Schedule, is_pyramid
from pyramid_bert.errors import DataError, PyramidError
from pyramid_bert.text.batches import check_texts
from pyramid_bert.training import TrainSettings, trainer

sklearn = pytest.importorskip("sklearn", reason="needs the extra 'train'")

from sklearn.base import clone, is_classifier, is_regressor  # noqa: E402
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score  # noqa: E402
from sklearn.pipeline import Pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402

SCHEDULE = Schedule.exponential(0.4, last_layer=3, first_layer=2, min_tokens=3)
FAST = TrainSettings(epochs=4, learning_rate=2e-3, batch_size=16)


@pytest.fixture
def unfitted(learner_dir):
    return PyramidClassifier(learner_dir, schedule=SCHEDULE, reduce="drop", training=FAST)


# ---- parameters ----


def test_nothing_is_loaded_before_it_is_used(tmp_path):
    clf = PyramidClassifier(tmp_path / "not there", schedule=SCHEDULE)
    assert clf.get_params()["schedule"] is SCHEDULE
    with pytest.raises(PyramidError, match="no model folder at"):
        clf.predict(["a fine film"])


def test_a_clone_is_a_new_unfitted_classifier(unfitted, sentiment, tiny_bert, tokenizer):
    unfitted.fit(*sentiment(32), epochs=1, progress=False)
    in_memory = PyramidClassifier(tiny_bert(), tokenizer, schedule=SCHEDULE, max_length=16)
    for original in (unfitted, in_memory):
        copied = clone(original)
        assert copied.model is not original.model
        assert copied.settings == original.settings
        assert copied.max_length == original.max_length
    assert clone(unfitted).get_params() == unfitted.get_params()
    assert clone(unfitted).labels is None
    assert is_pyramid(clone(in_memory).model)


@pytest.mark.parametrize("dense", [True, False])
def test_a_clone_of_a_loaded_classifier_is_dense_or_a_pyramid_like_it(tiny_model_dir, tmp_path, dense):
    PyramidClassifier(tiny_model_dir, schedule="dense" if dense else SCHEDULE).save(tmp_path / "model")
    loaded = PyramidClassifier.load(tmp_path / "model")
    copied = clone(loaded)
    assert copied.settings == loaded.settings
    assert is_pyramid(copied.model) != dense
    assert np.array_equal(copied.predict_logits(["a fine film"]), loaded.predict_logits(["a fine film"]))


def test_parameters_are_set_by_name(unfitted):
    assert unfitted.settings.reduce == "drop"
    same = unfitted.set_params(selector="first", schedule__keep_ratio=0.75, training__epochs=9)
    assert same is unfitted
    assert (unfitted.settings.selector, unfitted.settings.schedule.keep_ratio) == ("first", 0.75)
    assert unfitted.get_params()["training__epochs"] == 9
    assert unfitted.get_params()["training__learning_rate"] == FAST.learning_rate


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"keep": 1}, "unknown parameter 'keep'"),
        ({"training__epoch": 1}, "unknown parameter of training 'epoch'; did you mean 'epochs'"),
        ({"training__epochs": -1}, "epochs must be a number in"),
    ],
)
def test_parameters_that_are_refused(unfitted, learner_dir, wrong, message):
    with pytest.raises(PyramidError, match=message):
        unfitted.set_params(**wrong)
    with pytest.raises(PyramidError, match="unknown parameter 'reduced'; did you mean 'reduce'"):
        PyramidClassifier(learner_dir, reduced="drop")


# ---- scikit-learn's tools ----


def test_cross_validation(unfitted, sentiment):
    texts, labels = map(np.array, sentiment(60))
    scores = cross_val_score(unfitted, texts, labels, cv=2, params={"progress": False})
    for score, (train, test) in zip(scores, StratifiedKFold(2).split(texts, labels), strict=True):
        by_hand = clone(unfitted).fit(texts[train], labels[train], progress=False)
        assert score == by_hand.evaluate(texts[test], labels[test])["accuracy"]


def test_a_grid_search_in_a_pipeline(unfitted, sentiment):
    def lower(texts):
        return [text.lower() for text in texts]

    texts, labels = sentiment(48)
    pipeline = Pipeline([("lower", FunctionTransformer(lower)), ("clf", unfitted)])
    grid = {"clf__schedule": ["dense", SCHEDULE], "clf__training__epochs": [1], "clf__reduce": [None]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="accuracy")
    search.fit([text.upper() for text in texts], labels, clf__progress=False)
    assert len(search.cv_results_["params"]) == 2
    assert set(search.predict(["A FINE FILM"])) <= {"neg", "pos"}
    assert search.best_estimator_["clf"].get_params()["training__epochs"] == 1


def test_score_is_accuracy_or_spearman(unfitted, learner_dir, sentiment):
    texts, labels = sentiment(60)
    unfitted.fit(texts, labels, epochs=1, progress=False)
    assert unfitted.score(texts, labels) == np.mean(unfitted.predict(texts) == np.array(labels))
    assert is_classifier(unfitted)
    numbers = [float(len(text)) for text in texts]
    regressor = PyramidClassifier(learner_dir, schedule="dense").fit(texts, numbers, epochs=1, progress=False)
    assert regressor.score(texts, numbers) == regressor.evaluate(texts, numbers)["spearman"]
    assert is_regressor(regressor)


# ---- arrays and columns ----


def test_arrays_columns_and_encoded_texts_stand_for_texts(unfitted, sentiment):
    pandas = pytest.importorskip("pandas")
    texts, labels = sentiment(32)
    expected = unfitted.fit(texts, labels, epochs=1, progress=False).predict_logits(texts)
    frame = pandas.DataFrame({"text": texts, "label": labels}, index=range(100, 132))
    for given, wanted in (
        (np.array(texts), np.array(labels)),
        (np.array(texts, dtype=object)[:, None], np.array(labels)[:, None]),
        (frame["text"], frame["label"]),
        (frame[["text"]], frame[["label"]]),
        (unfitted.encode(texts), labels),  # tokenized once for all that follows
    ):
        again = clone(unfitted).fit(given, wanted, epochs=1, progress=False, dev=(given, wanted))
        assert np.array_equal(again.predict_logits(given), expected)
        assert again.history[-1]["dev_accuracy"] == again.score(given, wanted) == unfitted.score(texts, labels)


def test_two_columns_are_pairs():
    pandas = pytest.importorskip("pandas")
    pairs = [("is it good?", "it is"), ("is it dull?", "no")]
    assert check_texts(np.array(pairs)) == pairs
    assert check_texts(pandas.DataFrame(pairs, columns=["first", "second"])) == pairs
    for columns in (["text", "label"], ["text", "other", "label"], ["a", "b", "c"]):
        frame = pandas.DataFrame([["fine"] * len(columns)] * 2, columns=columns)
        with pytest.raises(DataError, match=r'frame\["text"\]'):
            check_texts(frame)
        assert check_texts(frame[columns[:1]]) == ["fine", "fine"]
    with pytest.raises(DataError, match="expected a list of texts, got dict"):
        check_texts({"text": ["fine"]})
    with pytest.raises(DataError, match="text 1 should be a text, got nan"):
        check_texts(pandas.Series(["fine", None], dtype=object).fillna(np.nan))


# ---- where it runs ----


def test_a_device_that_is_not_there(learner_dir, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    for wanted in ("cuda", "mps", "cuda:3", "tpu"):
        with pytest.raises(PyramidError, match=f"torch sees no device '{wanted}' here, only cpu; use one, or 'auto'"):
            PyramidClassifier.from_pretrained(learner_dir, device=wanted)
    assert PyramidClassifier.from_pretrained(learner_dir, device="auto").model.device.type == "cpu"


def test_training_stays_on_the_models_device(unfitted, sentiment, monkeypatch):
    """Also on a machine with an accelerator, which transformers' Trainer takes unless it is told not to."""
    made = []
    monkeypatch.setattr(trainer, "TrainingArguments", lambda **given: made.append(given) or TrainingArguments(**given))
    unfitted.set_params(device="cpu").fit(*sentiment(16), epochs=1, progress=False)
    assert [given["use_cpu"] for given in made] == [True]
