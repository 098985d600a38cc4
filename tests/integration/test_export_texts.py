"""Texts that an export is measured on: too few, or of another kind than those that the model was trained on."""

import json
import shutil
from pathlib import Path

import pytest
from helpers import run

from pyramid_bert import Certificate, PyramidClassifier
from pyramid_bert.errors import CheckpointError, DataError
from pyramid_bert.export import writing
from pyramid_bert.text.kind import TextKind
from pyramid_bert.tune import find_pyramid, find_runtime
from pyramid_bert.tune.candidates import Method

pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install 'pyramid-bert[openvino]'")

PAIRS = "these are pairs of texts, and the model was trained on single texts: leave out the second text"


@pytest.fixture
def no_work(monkeypatch):
    """Fails where a graph would be written."""
    monkeypatch.setattr(writing, "write_folder", None)


def like(clf, seen, certificate=None):
    """A copy of a classifier that was trained on other texts; None for unknown ones."""
    made = clf.with_model(clf.model)
    made.seen, made.certificate = seen, certificate
    return made


def test_a_classifier_knows_what_it_was_trained_on(trained, learner_dir, tmp_path):
    clf, texts, labels = trained
    assert clf.seen == TextKind(False, 14)
    clf.save(tmp_path / "saved")
    assert PyramidClassifier.load(tmp_path / "saved").seen == clf.seen
    assert clf.with_model(clf.model).seen == clf.seen
    of_pairs = PyramidClassifier.from_pretrained(learner_dir)
    assert of_pairs.seen is None
    of_pairs.fit([(text, "so") for text in texts[:20]], labels[:20], epochs=0.1, progress=False)
    assert of_pairs.seen.pairs


def test_a_pyramid_that_was_found_knows_what_the_dense_model_was_trained_on(dense_dir, sentiment):
    dense = PyramidClassifier.load(dense_dir, device="cpu")
    how = {"target": "ideal", "minutes": 0.01, "methods": [Method("first", "drop")]}
    assert find_pyramid(dense, 1.2, sentiment(50)[0], **how).classifier.seen == dense.seen == TextKind(False, 14)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_pairs_where_it_learned_from_single_texts(trained, tmp_path, no_work, precision):
    clf, texts, _ = trained
    pairs = [(text, "it is") for text in texts]
    with pytest.raises(DataError, match=PAIRS):
        clf.export(tmp_path / "fast", precision=precision, texts=pairs)
    of_pairs = like(clf, TextKind(True, 14))
    with pytest.raises(DataError, match=r"single texts, and the model was trained on pairs of texts: give the second"):
        of_pairs.export(tmp_path / "fast", precision=precision, texts=texts)
    certificate = Certificate.fit(clf, texts[:50])
    assert Certificate.from_dict(json.loads(json.dumps(certificate.to_dict()))).texts == certificate.texts
    with pytest.raises(DataError, match="the model was certified on single texts: leave out the second text"):
        like(clf, None, certificate).export(tmp_path / "fast", precision=precision, texts=pairs)
    assert list(tmp_path.iterdir()) == []


def test_where_it_is_not_known_nothing_is_refused(trained, tmp_path):
    clf, texts, _ = trained
    pairs = [(text, "it is") for text in texts[:3]]
    assert like(clf, None).export(tmp_path / "fast", texts=pairs).doubt is None
    assert like(clf, TextKind(None, 14)).export(tmp_path / "fast", texts=pairs).doubt is None


def test_far_longer_texts_are_a_doubt_and_no_error(trained, sentiment_files, tmp_path, capsys):
    clf, texts, _ = trained
    words = "these texts have 14 tokens (median), and the model was trained on texts of 3; what is measured holds"
    report = like(clf, TextKind(False, 3)).export(tmp_path / "fast", texts=texts)
    assert report.doubt.startswith(words)
    assert report.classifier.record.measured["doubt"] == report.doubt
    assert clf.export(tmp_path / "fast", texts=texts).doubt is None
    saved, dev = tmp_path / "saved", sentiment_files / "dev.csv"
    like(clf, TextKind(False, 60)).save(saved)
    assert run("export", saved, "--data", dev, "--out", tmp_path / "new") == 0
    said = capsys.readouterr().err
    assert said.count("the model was trained on texts of 60; what is measured") == 1
    assert run("export", saved, "--out", tmp_path / "new", "--overwrite") == 0
    assert "(median)" not in capsys.readouterr().err


def test_the_same_text_again_and_again_tells_no_scale(trained, tmp_path, no_work):
    clf, texts, _ = trained
    with pytest.raises(DataError, match=r"int8 needs at least 50 texts .*, got 120, of which 49 differ; give"):
        clf.export(tmp_path / "fast", precision="int8", texts=[*texts[:48], *["a fine film"] * 72])


def test_the_commands_say_it_in_one_line(dense_dir, sentiment, tmp_path, capsys):
    texts, labels = sentiment(60)
    rows = [f"{text},it is,{label}" for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["text,second,label", *rows]))
    columns = ["--data", tmp_path / "pairs.csv", "--text-pair-column", "second"]
    for words in (["export"], ["speedup", "--speedup", 2], ["speedup", "--speedup", 2, "--runtime", "openvino"]):
        assert run(*words, dense_dir, *columns, "--out", tmp_path / "new") == 1
        said = capsys.readouterr().err
        assert PAIRS in said
        assert said.count("\n") == 1
    dense = PyramidClassifier.load(dense_dir, device="cpu")
    with pytest.raises(DataError, match=PAIRS):
        find_runtime(dense, 2, [(text, "it is") for text in texts], folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("texts", [3, {}, {"tokens": 0}, {"pairs": "yes", "tokens": 3}, {"tokens": 3, "width": 4}])
def test_a_record_of_texts_that_is_damaged(dense_dir, tmp_path, texts):
    folder = Path(shutil.copytree(dense_dir, tmp_path / "copied"))
    record = json.loads((folder / "classifier.json").read_text())
    (folder / "classifier.json").write_text(json.dumps({**record, "texts": texts}))
    with pytest.raises(CheckpointError, match=r"classifier\.json is damaged: .*; fetch or train the model again"):
        PyramidClassifier.load(folder, device="cpu")
