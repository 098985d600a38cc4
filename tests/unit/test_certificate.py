"""How likely a pyramid's answer differs from the dense model's, and running the doubtful ones again."""

import json
import sys

import numpy as np
import pytest

from pyramid_bert import Certificate, PyramidClassifier, PyramidError, Schedule, pyramidize, restore
from pyramid_bert.bench.ideal import kept_lengths
from pyramid_bert.certificate import Comparison, compare_with_dense, worst
from pyramid_bert.errors import CheckpointError, DataError, MissingExtraError
from pyramid_bert.families import sizes_of
from pyramid_bert.text.labels import Labels

SCHEDULE = Schedule.constant(0.3, first_layer=2)


@pytest.fixture(scope="module")
def texts(vocabulary):
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(vocabulary.words[11:], size=draw.integers(3, 25))) for _ in range(80)]


@pytest.fixture
def clf(tiny_bert, tokenizer):
    return PyramidClassifier(pyramidize(tiny_bert(), SCHEDULE), tokenizer, labels=Labels(("bad", "good")))


@pytest.fixture
def dense_logits(clf, tokenizer, texts, tiny_bert):
    return PyramidClassifier(tiny_bert(), tokenizer, labels=clf.labels).predict_logits(texts)


def comparison(doubt, flips):
    ones = np.ones(len(flips))
    return Comparison(np.array(doubt), np.array(flips), ones, 3 * ones, {})


@pytest.fixture
def good():
    return Certificate.of(comparison([0.1, 0.5, 0.9] * 20, [False, False, True] * 20))


# ---- predict ----


def test_predict_returns_the_radius_when_asked(clf, texts):
    labels, radius = clf.predict(texts, return_radius=True)
    assert labels.tolist() == clf.predict(texts).tolist()
    assert radius.shape == (80, 4)
    assert (radius[:, 1] > 0).all()
    chances, same = clf.predict_proba(texts, return_radius=True, batch_size=7)
    assert chances.shape == (80, 2)
    assert np.allclose(same, radius, atol=1e-5)


def test_the_worst_share_of_a_list_is_run_again_with_all_tokens(clf, texts, dense_logits):
    plain = clf.predict_logits(texts)
    found = clf.answers(texts, fallback=0.25)
    assert found.rerun.sum() == 20
    assert np.allclose(found.logits[found.rerun], dense_logits[found.rerun], atol=1e-5)
    assert np.allclose(found.logits[~found.rerun], plain[~found.rerun], atol=1e-6)
    chances = clf.predict_proba(texts)
    doubt = 1 - abs(chances[:, 0] - chances[:, 1])
    assert doubt[found.rerun].min() >= doubt[~found.rerun].max() - 1e-6
    assert np.allclose(clf.predict_logits(texts, fallback=1), dense_logits, atol=1e-5)
    assert np.array_equal(clf.predict_logits(texts, fallback=0), plain)


def test_worst_takes_the_first_of_equal_ones_and_rounds():
    assert worst(np.ones(10), 0.25).tolist() == [True] * 3 + [False] * 7
    assert worst(np.ones(3), 0.1).sum() == 0


def test_by_a_threshold_the_other_texts_do_not_matter(clf, texts):
    clf.certificate = Certificate.fit(clf, texts[:60])
    found = clf.answers(texts, fallback=0.3, streaming=True)
    alone = [clf.answers([text], fallback=0.3, streaming=True).rerun[0] for text in texts[60:]]
    assert found.rerun[60:].tolist() == alone
    assert abs(found.rerun[:60].mean() - 0.3) <= 0.05  # on the texts of the calibration it is the share
    assert ((found.chance >= 0) & (found.chance <= 1)).all()
    assert not clf.answers(texts, fallback=0, streaming=True).rerun.any()
    assert clf.answers(texts, fallback=1, streaming=True).rerun.all()


# ---- the certificate ----


@pytest.mark.parametrize("schedule", [SCHEDULE, Schedule.adaptive(0.6)])
def test_a_pyramid_of_clusters_has_a_certificate_too(clf, texts, schedule):
    pyramidize(clf.model, schedule, "cluster")
    clf.certificate = Certificate.fit(clf, texts)
    assert clf.answers(texts, fallback=0.25, streaming=True).rerun.sum() in (19, 20, 21)
    items = clf.encode(texts)
    kept = kept_lengths(clf.model, items)
    costs = [clf.settings.cost(k, len(item), sizes_of(clf.model)) for k, item in zip(kept, items, strict=True)]
    assert compare_with_dense(clf, texts).macs.tolist() == [cost.macs for cost in costs]


def test_the_chance_of_a_flip_grows_with_the_doubt_and_is_calibrated():
    draw = np.random.default_rng(1)
    doubt = draw.random(4000)
    found = Certificate.of(comparison(doubt, draw.random(4000) < doubt**2))
    chances = found.chance(np.linspace(0, 1, 50))
    assert (np.diff(chances) >= 0).all()
    assert np.abs(chances - np.linspace(0, 1, 50) ** 2).mean() < 0.04
    assert found.chance(-5.0) == found.chances[0]
    assert found.threshold(0.1) == pytest.approx(0.9, abs=0.03)


def test_what_running_again_removes_and_costs():
    found = comparison(np.arange(100.0), np.arange(100) >= 80)
    assert found.speedup() == 3
    row = found.by_share([0.1])[0]
    assert row["removed"] == {"random": pytest.approx(0.1), "confidence": 0.5}
    assert row["ideal_speedup"]["confidence"] == found.speedup(np.arange(100) >= 90) == pytest.approx(300 / 130)
    assert comparison(np.ones(50), np.zeros(50, dtype=bool)).by_share()[0]["removed"]["confidence"] == 0


def test_it_is_saved_with_the_model_as_json_and_forgotten_by_training(clf, texts, tmp_path):
    clf.certificate = Certificate.fit(clf, texts)
    assert Certificate.from_dict(json.loads(json.dumps(clf.certificate.to_dict()))) == clf.certificate
    clf.save(tmp_path / "model")
    loaded = PyramidClassifier.load(tmp_path / "model")
    assert loaded.certificate == clf.certificate
    a, b = (c.answers(texts, fallback=0.1, streaming=True) for c in (clf, loaded))
    assert np.array_equal(a.rerun, b.rerun)
    loaded.save(tmp_path / "model")  # over itself
    loaded.fit(["a fine film", "a dull mess"], ["good", "bad"], epochs=1, progress=False)
    assert loaded.certificate is None


def test_from_pretrained_reads_the_certificate_of_the_pyramid_that_was_saved(clf, texts, tmp_path):
    clf.certificate = Certificate.fit(clf, texts)
    clf.save(tmp_path / "model")
    for same in ({}, {"schedule": SCHEDULE}, {"selector": "coreset"}):
        opened = PyramidClassifier.from_pretrained(tmp_path / "model", **same)
        assert opened.certificate == clf.certificate
    opened.save(tmp_path / "model")
    assert PyramidClassifier.load(tmp_path / "model").certificate == clf.certificate
    for other in ({"schedule": "dense"}, {"schedule": Schedule.constant(0.5)}, {"reduce": "drop"}):
        assert PyramidClassifier.from_pretrained(tmp_path / "model", **other).certificate is None


def test_other_settings_need_another_certificate(clf, texts):
    clf.certificate = Certificate.fit(clf, texts)
    pyramidize(clf.model, Schedule.constant(0.5))
    with pytest.raises(PyramidError, match="other pyramid settings"):
        clf.predict(texts, fallback=0.1)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 99}', '{"format": 1, "score": "x"}'])
def test_damaged_certificates(tmp_path, text):
    (tmp_path / "certificate.json").write_text(text)
    with pytest.raises(CheckpointError):
        Certificate.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quantiles": []}, "quantiles must be numbers"),
        ({"quantiles": 0.5}, "quantiles must be numbers"),
        ({"quantiles": [0.2, 0.1]}, "quantiles must be ascending"),
        ({"knots": ["low"], "chances": [0.1]}, r"knots must be numbers.*'low'"),
        ({"chances": [float("nan")], "knots": [0.1]}, "holds the number nan"),
        ({"chances": [1.5], "knots": [0.1]}, "chances must be numbers in 0-1"),
        ({"knots": [0.2, 0.1], "chances": [0.1, 0.2]}, "must be ascending"),
        ({"knots": [0.1], "chances": [0.1, 0.2]}, "must have one chance"),
        ({"rows": "many"}, "rows must be an integer"),
        ({"flips": 10**6}, "flips must be an integer"),
        ({"settings": None}, "settings must be those"),
        ({"strange": 1}, "unknown field 'strange'"),
    ],
)
def test_numbers_that_are_none_are_refused_when_they_are_read(good, tmp_path, change, message):
    assert Certificate.from_dict(good.to_dict()) == good
    (tmp_path / "certificate.json").write_text(json.dumps({**good.to_dict(), **change}))
    with pytest.raises(CheckpointError, match=f"certificate.json.*{message}.*remove it, and calibrate again"):
        Certificate.load(tmp_path)


def test_a_certificate_of_version_1_is_read_if_its_score_is_confidence(good, tmp_path):
    old = {**good.to_dict(), "format": 1, "score": "confidence", "weights": [1.0, 0.0]}
    assert Certificate.from_dict(old) == good
    (tmp_path / "certificate.json").write_text(json.dumps({**old, "score": "both", "weights": [1.0, 0.3]}))
    with pytest.raises(CheckpointError, match=r"certificate.json: .*the score 'both', which was removed; calibrate"):
        Certificate.load(tmp_path)


def test_score_is_deprecated(clf, texts):
    with pytest.warns(DeprecationWarning, match="confidence is the only score"):
        assert Certificate.fit(clf, texts, score="confidence") == Certificate.fit(clf, texts)
    for refused in (lambda: Certificate.fit(clf, texts, score="both"), lambda: clf.predict(texts, score="radius")):
        with pytest.raises(PyramidError, match=r"removed as scores because .*leave"):
            refused()


# ---- refusals, before any work ----


@pytest.mark.parametrize("share", [np.float32(0.25), np.float64(0.25), np.array([0.25], dtype=np.float32)[0]])
def test_a_share_of_numpy_is_one(clf, texts, share):
    assert clf.answers(texts, fallback=share).rerun.sum() == 20


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), True, "all"])
def test_fallback_is_a_share(clf, texts, share):
    with pytest.raises(PyramidError, match=r"share of the texts in 0-1, got"):
        clf.predict(texts, fallback=share)


def test_what_cannot_be_certified(clf, texts, tokenizer, tiny_bert, monkeypatch):
    numbers = PyramidClassifier(pyramidize(tiny_bert(labels=1), SCHEDULE), tokenizer, labels=Labels(None))
    for refused, error, message in (
        (lambda: Certificate.fit(clf, texts[:49]), DataError, "at least 50 texts to be calibrated on, got 49"),
        (lambda: Certificate.fit(numbers, texts), PyramidError, "predicts numbers, which do not flip"),
        (lambda: numbers.predict(texts, fallback=0.1), PyramidError, "predicts numbers, which do not flip"),
        (lambda: clf.predict(texts, fallback=0.1, streaming=True), PyramidError, "certificate, and the model has none"),
        (lambda: clf.predict(texts, streaming=True), PyramidError, "give fallback as well"),
    ):
        with pytest.raises(error, match=message):
            refused()
    monkeypatch.setitem(sys.modules, "sklearn.isotonic", None)
    with pytest.raises(MissingExtraError, match=r"scikit-learn: pip install 'pyramid-bert\[train\]'"):
        Certificate.fit(clf, texts)
    restore(clf.model)
    with pytest.raises(PyramidError, match="dense model cannot differ"):
        Certificate.fit(clf, texts)
