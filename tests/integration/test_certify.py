"""`certify` and `predict --fallback`, as a user calls them."""

import json

import pytest

from pyramid_bert import PyramidClassifier, Schedule, pyramidize
from pyramid_bert.cli import main, predict
from pyramid_bert.text.labels import Labels


@pytest.fixture
def model(tiny_bert, tokenizer, tmp_path):
    folder = tmp_path / "model"
    pyramid = pyramidize(tiny_bert(), Schedule.constant(0.3, first_layer=2))
    PyramidClassifier(pyramid, tokenizer, labels=Labels(("bad", "good"))).save(folder)
    return folder


def call(capsys, *words):
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_certify_then_predict_with_a_fallback(capsys, model, sentiment_files, tmp_path):
    dev = sentiment_files / "dev.csv"
    code, _, err = call(capsys, "predict", model, "a fine film", "--fallback", "0.2")
    assert code == 1
    assert f"--fallback needs a certificate, and {model} has none" in err
    assert f"pyramid-bert certify {model}" in err

    code, out, _ = call(capsys, "certify", model, "--data", dev, "--dry-run", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["rows"] == 64
    assert [set(row["removed"]) for row in found["by_share"]] == [{"random", "confidence"}] * 5
    assert found["ideal_speedup"] > found["by_share"][-1]["ideal_speedup"]["confidence"] > 0
    assert not (model / "certificate.json").exists()

    code, out, err = call(capsys, "certify", model, "--data", dev)
    assert code == 0
    assert f"{found['flips']} of 64 predictions differ" in " ".join(out.split())
    assert (model / "certificate.json").exists()

    target = tmp_path / "labelled.jsonl"
    assert call(capsys, "predict", model, "--data", dev, "--out", target, "--fallback", "0.25", "--radius")[0] == 0
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert 14 <= sum(row["rerun"] for row in rows) <= 18
    assert {"flip_chance", "probability", "radius_1", "radius_4"} <= set(rows[0])
    assert all(row["radius_2"] > 0 == row["radius_1"] for row in rows)
    _, out, _ = call(capsys, "predict", model, "the film is a fine story", "--fallback", "1", "--radius")
    assert "run again" in out


def test_parts_of_another_fallback_or_certificate_are_not_gone_on_with(
    capsys, model, sentiment_files, tmp_path, monkeypatch
):
    dev, target = sentiment_files / "dev.csv", tmp_path / "labelled.jsonl"
    assert call(capsys, "certify", model, "--data", dev)[0] == 0
    monkeypatch.setattr(predict, "CHUNK", 30)
    answers, calls = PyramidClassifier.answers, []

    def stops(self, texts, **how):
        calls.append(len(texts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answers(self, texts, **how)

    monkeypatch.setattr(PyramidClassifier, "answers", stops)
    words = ("predict", model, "--data", dev, "--out", target)
    assert call(capsys, *words, "--fallback", "0")[0] == 130
    code, _, err = call(capsys, *words)
    assert (code, "different: " in err) == (1, True), err
    certificate = (model / "certificate.json").read_text()
    other = tmp_path / "other.csv"
    other.write_text("".join(dev.read_text().splitlines(keepends=True)[:60]))
    assert call(capsys, "certify", model, "--data", other)[0] == 0
    code, _, err = call(capsys, *words, "--fallback", "0")
    assert (code, "different: " in err) == (1, True), err
    (model / "certificate.json").write_text(certificate)
    assert call(capsys, *words, "--fallback", "0")[0] == 0
    assert calls == [30, 30, 30, 4]
    assert all("flip_chance" in json.loads(line) for line in target.read_text().splitlines())


@pytest.mark.parametrize("command", ["certify", "predict"])
def test_a_batch_of_nothing_is_a_usage_error(capsys, model, sentiment_files, command):
    code, _, err = call(capsys, command, model, "--data", sentiment_files / "dev.csv", "--batch-size", "0")
    assert (code, "--batch-size must be at least 1, got 0" in err) == (2, True), err


def test_another_score_is_a_usage_error_and_confidence_is_deprecated(capsys, model, sentiment_files):
    words = ("certify", model, "--data", sentiment_files / "dev.csv", "--dry-run", "--score")
    code, _, err = call(capsys, *words, "radius")
    assert (code, "must be 'confidence', got 'radius'" in err) == (2, True), err
    with pytest.warns(DeprecationWarning, match="only score"):
        code, _, err = call(capsys, *words, "confidence")
    assert (code, "--score is deprecated" in err) == (0, True), err


@pytest.mark.parametrize("share", ["-0.1", "1.2"])
def test_a_share_out_of_range_is_a_usage_error(capsys, model, share):
    code, _, err = call(capsys, "predict", model, "a fine film", f"--fallback={share}")
    assert code == 2
    assert "must be a share in 0-1" in err


@pytest.fixture
def trained(capsys, learner_dir, sentiment_files, tmp_path):
    """Trains with some options and certifies the result: (exit code, classifier or None, stderr)."""

    def train(*words):
        data = ("--train", sentiment_files / "train.csv", "--out", tmp_path / "out", "--epochs", "0.1", "--overwrite")
        code, _, err = call(capsys, "train", "--model", learner_dir, *data, *words)
        if code:
            return code, None, err
        assert call(capsys, "certify", tmp_path / "out", "--data", sentiment_files / "dev.csv")[0] == 0
        return code, PyramidClassifier.load(tmp_path / "out"), err

    return train


def test_an_adaptive_schedule_by_the_command_line(capsys, trained):
    _, loaded, _ = trained("--adaptive-radius", "0.8", "--adaptive-steps", "4", "--min-tokens", "3")
    assert loaded.settings.schedule == Schedule.adaptive(0.8, steps=4, min_tokens=3)
    for wrong, message in (
        (("--adaptive-radius", "0"), "radius must be in (0, 1]"),
        (("--adaptive-radius", "0.8", "--keep-ratio", "0.5"), "'keep-ratio'"),
        (("--schedule", "adaptive"), "'adaptive-radius'"),
        (("--adaptive-radius", "0.8"), "no lengths before a text is run"),
    ):
        code, _, err = call(capsys, "schedule", *wrong)
        assert (code, message in err) == (2, True), err


def test_clusters_that_follow_the_text_and_rest_by_the_command_line(trained):
    words = "--adaptive-radius 0.5 --adaptive-growth 1.2 --last-layer 1 --min-tokens 2 --selector cluster".split()
    _, loaded, _ = trained(*words, "--rest-from", "2")
    assert loaded.settings.schedule == Schedule.adaptive(0.5, growth=1.2, last_layer=1, min_tokens=2)
    assert (loaded.settings.selector, loaded.settings.rest_from) == ("cluster", 2)
    code, _, err = trained(*words, "--rest-from", "1")
    assert code == 2
    assert "--rest-from must be an integer of at least 2, got 1" in err
