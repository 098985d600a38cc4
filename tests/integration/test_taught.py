"""`train --speedup`: a dense model, short trainings of candidates, and a pyramid that learns from the dense model."""

import json
from dataclasses import replace

import pytest
from helpers import run, stopped_at

from pyramid_bert import PyramidClassifier, PyramidError, Schedule
from pyramid_bert.errors import DataError, OutOfReachError
from pyramid_bert.progress import Bar
from pyramid_bert.text.inference import outputs_of
from pyramid_bert.text.labels import Labels
from pyramid_bert.training import TrainSettings
from pyramid_bert.tune.candidates import Method
from pyramid_bert.tune.judge import divergences, outputs_for
from pyramid_bert.tune.rehearsal import Rehearsals
from pyramid_bert.tune.speed import Counted
from pyramid_bert.tune.taught import METHOD, as_taught, candidates, train_pyramid

SETTINGS = TrainSettings(epochs=1, learning_rate=1e-3, batch_size=16, dropout=0.0, distill_weight=0.9)


@pytest.fixture
def dense(tiny_bert, tokenizer):
    """Weights so large that the outputs differ much from text to text: there is something to learn from it."""
    return PyramidClassifier(tiny_bert(), tokenizer, labels=Labels(("neg", "pos")))


@pytest.fixture
def call(tiny_model_dir, sentiment, tmp_path):
    """Trains at a speed on 240 rows with a dev set of 40."""
    for name, rows in (("train", 240), ("dev", 40)):
        texts, labels = sentiment(rows)
        lines = (json.dumps({"text": text, "label": label}) for text, label in zip(texts, labels, strict=True))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    given = ["train", "--train", tmp_path / "train.jsonl", "--dev", tmp_path / "dev.jsonl", "--out", tmp_path / "out"]
    given += "--ideal --epochs 1 --learning-rate 1e-3 --batch-size 16 --device cpu".split()
    return lambda *words: run(*given, *words)


def far_from(dense, model, texts):
    items, pad_id = dense.encode(texts), dense.tokenizer.pad_token_id
    return float(divergences(outputs_for(dense.model, items, pad_id, 32), outputs_for(model, items, pad_id, 32)).mean())


# ---- choosing ----


def test_candidates_rest_later_and_merge_more(dense, sentiment):
    items = dense.encode(sentiment(60)[0])
    counted = Counted(dense.model, [len(item) for item in items])
    every = candidates(METHOD, 4, counted, 1.5)
    found, fewer = ([one for one in every if bool(one.skip) == skips] for skips in (False, True))
    assert len(found) > 1
    assert all(counted(one) >= 1.5 for one in every)
    rests, ratios = [one.rest_from for one in found], [one.schedule.keep_ratio for one in found]
    assert rests == sorted(set(rests))
    assert ratios == sorted(ratios, reverse=True)
    assert all(one.schedule.done_at(4) < one.rest_from for one in found)
    # One that leaves out a layer rests where another does that leaves out none, and keeps more tokens.
    assert fewer
    assert all(one.skip == (one.rest_from // 2,) for one in fewer)
    merged = dict(zip(rests, ratios, strict=True))
    assert all(one.schedule.keep_ratio > merged[one.rest_from] for one in fewer)
    (only,) = candidates(Method("first", "drop", rest_from=4), 4, counted, 1.5)
    assert (only.selector, only.rest_from) == ("first", 4)


def test_the_best_after_short_trainings_comes_first(dense, sentiment, monkeypatch):
    """The judge is replaced by a known order: the later a candidate rests the better, only in the second round."""
    items = dense.encode(sentiment(240)[0])
    outputs = outputs_of(dense.model, items, dense.tokenizer.pad_token_id, batch_size=32)
    rehearsals = Rehearsals(dense, items, outputs, SETTINGS, Bar(shown=False))
    candidates = [METHOD.settings(Schedule.constant(1.0)).replace(rest_from=layer) for layer in (2, 3, 4)]
    first, seen = {2: 0.3, 3: 0.1, 4: 0.2}, []

    def judged(settings, start, steps):
        seen.append((settings.rest_from, start, steps))
        rehearsals._weights[settings] = {}
        return first[settings.rest_from] if start == 0 else 1.0

    monkeypatch.setattr(rehearsals, "_train", judged)
    order = rehearsals(candidates, 2.0, 1)
    assert [one.settings.rest_from for one in order] == [3, 4, 2]
    assert seen == [(2, 0, 8), (3, 0, 8), (4, 0, 8), (3, 8, 16)]  # at least 8 steps, then twice as many from there
    assert [one.steps for one in order] == [24, 8, 8]


def test_a_short_training_brings_a_candidate_nearer_and_leaves_the_dense_model(dense, sentiment):
    items = dense.encode(sentiment(240)[0])
    outputs = outputs_of(dense.model, items, dense.tokenizer.pad_token_id, batch_size=32)
    rehearsals = Rehearsals(dense, items, outputs, SETTINGS, Bar(shown=False))
    before = {name: value.clone() for name, value in dense.model.state_dict().items()}
    settings = METHOD.settings(Schedule.exponential(0.3, 1, min_tokens=2)).replace(rest_from=2)
    far = rehearsals._train(settings, 0, 1)
    near = rehearsals._train(settings, 1, 30)
    assert near < far
    assert all(value.equal(before[name]) for name, value in dense.model.state_dict().items())


# ---- from Python ----


def test_labels_are_not_needed_with_a_teacher(dense, tiny_bert, sentiment):
    texts, _ = sentiment(240)
    found = train_pyramid(dense, 1.5, texts, target="ideal", settings=SETTINGS, progress=False)
    assert found.compared is None
    assert found.choice.ideal >= 1.5
    assert found.choice.measured is None
    assert found.classifier.settings == found.choice.settings
    stranger = PyramidClassifier(tiny_bert(seed=1), dense.tokenizer, labels=dense.labels)
    before = far_from(dense, stranger.model, texts)
    stranger.fit(texts, teacher=dense, settings=SETTINGS, progress=False)
    assert far_from(dense, stranger.model, texts) < before / 2
    with pytest.raises(PyramidError, match="labels are missing: give one per text, or a teacher"):
        PyramidClassifier(dense.model, dense.tokenizer).fit(texts)


def test_the_speed_is_that_on_texts_as_long_as_those_of_dev(dense, sentiment):
    """Training texts can be far shorter, as the phrases of SST-2 are."""
    texts, labels = sentiment(240)
    longer = [f"{text} {text} {text}" for text in texts[:20]]
    how = {"target": "ideal", "method": replace(METHOD, rest_from=4), "settings": SETTINGS, "progress": False}
    by_training = train_pyramid(dense, 1.6, texts, labels, **how).choice
    by_dev = train_pyramid(dense, 1.6, texts, labels, dev=(longer, labels[:20]), **how).choice
    by_like = train_pyramid(dense, 1.6, texts, labels, dev=(texts[:20], labels[:20]), like=longer, **how).choice
    assert by_dev.settings == by_like.settings != by_training.settings
    assert by_dev.ideal == Counted(dense.model, [len(item) for item in dense.encode(longer)])(by_dev.settings) >= 1.6


def test_what_cannot_be_done_is_told_before_training(dense, sentiment, monkeypatch):
    texts, labels = sentiment(240)
    monkeypatch.setattr(PyramidClassifier, "fit", None)
    with pytest.raises(OutOfReachError, match="at most"):
        train_pyramid(dense, 500, texts, labels, target="ideal")
    with pytest.raises(DataError, match="at least 200 texts, got 100"):
        train_pyramid(dense, 1.5, texts[:100], labels[:100], target="ideal")
    pyramid = train_pyramid
    with pytest.raises(PyramidError, match="unknown target"):
        pyramid(dense, 1.5, texts, labels, target="speed")


# ---- the command ----


def test_one_command_from_a_file_to_a_pyramid(call, tiny_model_dir, tmp_path, capsys):
    words = ["--model", tiny_model_dir, "--speedup", 1.5, "--save-dense", tmp_path / "dense"]
    assert call(*words) == 0
    shown = capsys.readouterr().out
    assert "on the 40 rows of --dev" in shown
    assert "speed-up, ideal (1.5x wanted)" in shown
    pyramid, dense = (PyramidClassifier.load(tmp_path / name) for name in ("out", "dense"))
    assert pyramid.settings.rest_from is not None
    assert dense.settings is None
    # The same command on its own result says so, and evaluates; another command is refused.
    assert call(*words, "--json") == 0
    said = capsys.readouterr()
    assert "holds the model that this command trains" in said.err
    assert json.loads(said.out)["accuracy"] == pytest.approx(pyramid.score(*_rows(tmp_path / "dev.jsonl")))
    assert call(*words, "--seed", 1) == 1
    assert "holds a trained model already" in capsys.readouterr().err


def _rows(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["text"] for row in rows], [row["label"] for row in rows]


@pytest.mark.parametrize("stop", [3, 14])
def test_a_stopped_command_goes_on_with_the_pyramid_it_chose(call, tiny_model_dir, tmp_path, capsys, stop):
    """Stopped in every training after some steps: that of the dense model, of a candidate, of the pyramid."""
    words = ["--model", tiny_model_dir, "--speedup", 1.5, "--json"]
    assert call(*words) == 0
    whole = json.loads(capsys.readouterr().out)
    (tmp_path / "out").rename(tmp_path / "whole")
    with stopped_at(stop, escapes=False):
        assert call(*words) == 130
    capsys.readouterr()
    assert call(*words, "--speedup", 1.6) == (1 if (tmp_path / "out" / "checkpoints" / "choice.json").exists() else 0)
    if (tmp_path / "out" / "config.json").exists():
        return  # nothing but the dense model had begun, which any speed can use
    capsys.readouterr()
    assert call(*words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == whole


def test_a_teacher_and_texts_without_labels(call, dense, tmp_path, capsys):
    dense.save(tmp_path / "teacher")
    texts, _ = _rows(tmp_path / "train.jsonl")
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert call("--teacher", tmp_path / "teacher", "--speedup", 1.5, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dense"]["accuracy"] == dense.score(*_rows(tmp_path / "dev.jsonl"))
    assert found["ideal"] >= 1.5


def test_a_label_that_the_teacher_does_not_know_is_named_before_any_work(call, dense, tmp_path, capsys, monkeypatch):
    dense.save(tmp_path / "teacher")
    lines = (tmp_path / "train.jsonl").read_text().splitlines()
    lines[6] = json.dumps({"text": "a fine film", "label": "great"})
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr("pyramid_bert.tune.taught.speeds", None)
    for speeds in ("1.5", "1.4-2"):
        assert call("--teacher", tmp_path / "teacher", "--speedup", speeds) == 1
        assert "row 7: the label is 'great', which the model does not know" in capsys.readouterr().err


def test_calls_that_do_not_fit_together(call, tiny_model_dir, tmp_path, capsys):
    model = ["--model", tiny_model_dir]
    for words, message in (
        ([*model, "--teacher", "t", "--speedup", 2], "starts from the --teacher"),
        (model, "--ideal and --save-dense go with --speedup alone"),
        ([*model, "--speedup", 2, "--selector", "first"], "--ideal and --save-dense go with --speedup alone"),
        (["--teacher", "t", "--speedup", 2, "--save-dense", "d"], "leave out --teacher"),
    ):
        assert call(*words) == 2
        assert message in capsys.readouterr().err
    assert call(*model, "--speedup", 900) == 1
    assert "at most" in capsys.readouterr().err
    assert not (tmp_path / "out" / "checkpoints" / "dense").exists()


def test_a_pyramid_learns_at_twice_the_rate_of_its_teacher_and_keeps_what_is_given():
    dense = TrainSettings(learning_rate=3e-5, epochs=2, dropout=0.2)
    assert as_taught(dense) == replace(dense, learning_rate=6e-5, dropout=0.0, distill_weight=0.9)
    assert as_taught(dense, ["dropout", "learning_rate"]) == replace(dense, distill_weight=0.9)
