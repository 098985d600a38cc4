"""Elastic models: pyramids of several speeds share one set of weights, and the speed is chosen when the model runs."""

import json

import pytest
import torch
from helpers import run, stopped_at

from pyramid_bert import PyramidClassifier, PyramidError, Schedule, pyramidize
from pyramid_bert.core.loop import Pass
from pyramid_bert.errors import CheckpointError, OutOfReachError
from pyramid_bert.families import plan_of
from pyramid_bert.text.labels import Labels
from pyramid_bert.training import TrainSettings
from pyramid_bert.training.elastic import Elastic
from pyramid_bert.tune import train_elastic
from pyramid_bert.tune.elastic import levels_of, speeds_between
from pyramid_bert.tune.judge import divergences, outputs_for
from pyramid_bert.tune.speed import Counted
from pyramid_bert.tune.taught import METHOD

SETTINGS = TrainSettings(epochs=3, learning_rate=1e-3, batch_size=16, dropout=0.0, distill_weight=0.9)


@pytest.fixture
def dense(tiny_bert, tokenizer):
    """Weights so large that the outputs differ much from text to text: there is something to learn from it."""
    return PyramidClassifier(tiny_bert(), tokenizer, labels=Labels(("neg", "pos")))


@pytest.fixture
def elastic(dense, sentiment):
    texts, labels = sentiment(240)
    return train_elastic(dense, 1.4, 2.2, texts, labels, target="ideal", settings=SETTINGS, progress=False)


@pytest.fixture
def call(dense, sentiment, tmp_path):
    """Trains an elastic model on 240 rows without labels, with a dev set of 40."""
    dense.save(tmp_path / "teacher")
    for name, rows in (("train", 240), ("dev", 40)):
        texts, labels = sentiment(rows)
        labels = [{"label": label} if name == "dev" else {} for label in labels]
        lines = (json.dumps({"text": text, **label}) for text, label in zip(texts, labels, strict=True))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    given = ["train", "--teacher", tmp_path / "teacher", "--train", tmp_path / "train.jsonl"]
    given += ["--dev", tmp_path / "dev.jsonl", "--out", tmp_path / "out"]
    given += "--ideal --epochs 1 --learning-rate 1e-3 --batch-size 16 --device cpu".split()
    return lambda *words: run(*given, *words)


# ---- several pyramids in one model ----


@pytest.mark.parametrize("other", [{"rest_from": 2}, {"skip": (2,)}, {"schedule": Schedule.constant(1.0)}])
def test_a_pass_can_take_the_steps_of_another_pyramid(tiny_bert, tiny_batch, logits_of, other):
    own = METHOD.settings(Schedule.exponential(0.3, 1, min_tokens=2))
    batch = tiny_batch((24, 17, 9, 1), width=30)
    model = pyramidize(tiny_bert(), config=own)
    expected = logits_of(pyramidize(tiny_bert(), config=own.replace(**other)), batch)
    assert not torch.allclose(logits_of(model, batch), expected, atol=1e-3)
    torch.testing.assert_close(logits_of(model, batch, Pass(plan=plan_of(model, own.replace(**other)))), expected)


def test_pyramids_that_choose_otherwise_cannot_share_a_model(tiny_bert):
    own = METHOD.settings(Schedule.exponential(0.3, 1))
    with pytest.raises(PyramidError, match="must choose tokens in the same way"):
        plan_of(pyramidize(tiny_bert(), config=own), own.replace(metric="euclidean"))
    with pytest.raises(PyramidError, match="a dense model has no plan"):
        plan_of(tiny_bert(), own)


def test_each_step_has_the_fastest_and_two_drawn_by_seed_and_step(tiny_bert):
    own = [METHOD.settings(Schedule.exponential(ratio, 2)) for ratio in (0.8, 0.5, 0.2)]
    model = pyramidize(tiny_bert(), config=own[0])
    drawing, again, other = (Elastic(model, [own[:2], own[2:]], seed) for seed in (0, 0, 1))
    ratios = [[plan.schedule.keep_ratio for plan in drawing.draw(step)] for step in range(30)]
    assert all(len(drawn) == 3 and drawn[0] == 0.2 for drawn in ratios)
    assert {ratio for drawn in ratios for ratio in drawn[1:]} == {0.8, 0.5, 0.2}
    assert ratios == [[plan.schedule.keep_ratio for plan in again.draw(step)] for step in range(30)]
    assert ratios != [[plan.schedule.keep_ratio for plan in other.draw(step)] for step in range(30)]


# ---- training ----


def test_what_was_far_from_the_dense_model_comes_nearer_and_nothing_goes_far(dense, elastic, sentiment):
    texts, _ = sentiment(300)
    items, pad_id = dense.encode(texts[240:]), dense.tokenizer.pad_token_id
    target = outputs_for(dense.model, items, pad_id, 32)

    def distances(model):
        points = elastic.front.points
        found = (outputs_for(pyramidize(model, config=point.settings), items, pad_id, 32) for point in points)
        return [float(divergences(target, outputs).mean()) for outputs in found]

    after = distances(elastic.model)
    before = distances(PyramidClassifier(dense.model, dense.tokenizer).model)
    assert after[-1] < before[-1] / 2  # the slower ones are as good as dense before any training
    assert max(after) < before[-1] / 2


def test_the_front_holds_its_speeds(elastic, sentiment):
    speeds = [point.speed for point in elastic.front.points]
    assert (speeds[0], speeds[-1]) == (1.0, 2.2)
    assert set(speeds[1:]) <= set(speeds_between(1.4, 2.2))
    assert len({point.settings for point in elastic.front.points}) == len(speeds)
    counted = Counted(elastic.model, [len(item) for item in elastic.encode(sentiment(240)[0])])
    assert all(counted(point.settings) >= 0.99 * point.speed for point in elastic.front.points)
    assert elastic.speed == elastic.front.at(1.4).speed
    assert elastic.front.at(1.2) == elastic.front.points[1]


def test_speed_switches_and_is_saved(elastic, sentiment, tmp_path):
    texts, _ = sentiment(20)
    by_speed = {}
    for speed in (1, 1.4, 2.2):
        elastic.speed = speed
        assert elastic.speed == elastic.front.at(speed).speed >= speed
        by_speed[speed] = elastic.predict_logits(texts)
    assert abs(by_speed[1] - by_speed[2.2]).max() > 1e-4
    elastic.save(tmp_path / "model")
    loaded = PyramidClassifier.load(tmp_path / "model")
    assert (loaded.front, loaded.speed) == (elastic.front, elastic.speed)
    loaded.speed = 2.2
    torch.testing.assert_close(torch.tensor(loaded.predict_logits(texts)), torch.tensor(by_speed[2.2]))
    loaded.fit(*sentiment(40), epochs=0.1, progress=False)
    assert loaded.front is None  # it was that of the weights before


def test_speeds_that_a_model_does_not_have(elastic, dense):
    for speed in (0.5, 2.3, float("nan"), "fast", None):
        with pytest.raises(OutOfReachError, match=r"speed must be a number in 1-2\.2, got .*trained for these"):
            elastic.speed = speed
    assert elastic.speed == elastic.front.points[1].speed
    with pytest.raises(PyramidError, match="this model has one speed"):
        PyramidClassifier(dense.model, dense.tokenizer, labels=dense.labels).speed = 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format must be an integer in 1-1, got 2; a newer release wrote it"),
        ({"points": []}, "the number of speeds must be a number in 2-1000, got 0"),
        ({"points": 3}, "is damaged"),
        ({"points": [{}, {}]}, "is damaged"),
    ],
)
def test_a_damaged_front_is_refused(elastic, tmp_path, change, message):
    elastic.save(tmp_path / "model")
    file = tmp_path / "model" / "front.json"
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, **change}))
    with pytest.raises(CheckpointError, match=message):
        PyramidClassifier.load(tmp_path / "model")
    file.write_text(json.dumps({**data, "points": data["points"][::-1]}))
    with pytest.raises(CheckpointError, match="its speeds do not rise"):
        PyramidClassifier.load(tmp_path / "model")


def test_what_cannot_be_done_is_told_before_training(dense, sentiment, monkeypatch):
    texts, labels = sentiment(240)
    monkeypatch.setattr(PyramidClassifier, "fit", None)
    for speeds, message in (((1.5, 900), "at most"), ((3, 2), "to a larger one, got 3-2"), ((1, 2), "above 1")):
        with pytest.raises(PyramidError, match=message):
            train_elastic(dense, *speeds, texts, labels, target="ideal")
    with pytest.raises(PyramidError, match="at least 200 texts, got 100"):
        train_elastic(dense, 1.5, 2, texts[:100], labels[:100], target="ideal")


def test_levels_hold_every_pyramid_worth_training(dense, sentiment):
    items = dense.encode(sentiment(240)[0])
    counted = Counted(dense.model, [len(item) for item in items])
    levels = levels_of(dense, items, items, METHOD, counted, [1.4, 2.0])
    assert len(levels) == 2
    assert all(counted(one) >= speed for speed, level in zip((1.4, 2.0), levels, strict=True) for one in level)


# ---- the command ----


def test_one_command_and_then_any_speed(call, tmp_path, capsys):
    assert call("--speedup", "1.4-2.2") == 0
    shown = capsys.readouterr().out
    assert "one model at every speed" in shown
    assert "2.20x" in shown
    texts = ["a fine film about life", "a dull story"]
    for speed in (1, 1.4, 2.2):
        assert run("predict", tmp_path / "out", *texts, "--speed", speed, "--json") == 0
    capsys.readouterr()
    assert run("evaluate", tmp_path / "out", "--data", tmp_path / "dev.jsonl", "--speed", 2, "--json") == 0
    assert 0 <= json.loads(capsys.readouterr().out)["accuracy"] <= 1
    assert run("explain", tmp_path / "out", texts[0], "--speed", 2.2) == 0
    bench = ["bench", "--model", tmp_path / "out", "--data", tmp_path / "dev.jsonl", "--rounds", 1, "--json"]
    capsys.readouterr()
    assert run(*bench, "--speed", 2.2) == 0
    fastest = PyramidClassifier.load(tmp_path / "out").front.points[-1]
    assert json.loads(capsys.readouterr().out)[0]["settings"] == fastest.settings.to_dict()
    assert run("bench", "--speed", 2) == 2
    assert "--speed chooses a speed of an elastic --model" in capsys.readouterr().err
    assert run("predict", tmp_path / "out", *texts, "--speed", 5) == 1
    assert "speed must be a number in 1-2.2, got 5" in capsys.readouterr().err
    assert run("predict", tmp_path / "teacher", *texts, "--speed", 2) == 1
    assert "this model has one speed" in capsys.readouterr().err


def test_a_stopped_command_goes_on(call, tmp_path, capsys):
    words = ["--speedup", "1.4-2.2", "--json"]
    assert call(*words) == 0
    whole = json.loads(capsys.readouterr().out)
    (tmp_path / "out").rename(tmp_path / "whole")
    with stopped_at(9, escapes=False):
        assert call(*words) == 130
    assert call("--speedup", "1.4-2", "--json") == 1
    assert "different: speedup" in capsys.readouterr().err
    assert call(*words) == 0
    assert json.loads(capsys.readouterr().out) == whole


@pytest.mark.parametrize(
    ("speeds", "code", "message"),
    [
        ("2-1.5", 1, "to a larger one, got 2-1.5"),
        ("1.5-900", 1, "at most"),
        ("1.5-0", 2, "--speedup must be a number in 1-1000, got 0"),
    ],
)
def test_ranges_that_cannot_be(call, tmp_path, capsys, speeds, code, message):
    assert call("--speedup", speeds) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "checkpoints" / "run.json").exists()


@pytest.mark.parametrize("speeds", ["1.5-x", "-", "fast"])
def test_what_is_no_range(call, capsys, speeds):
    with pytest.raises(SystemExit, match="2"):
        call("--speedup", speeds)
    assert f"give a speed-up such as 2.5, or a range such as 1.5-4, got '{speeds}'" in capsys.readouterr().err
