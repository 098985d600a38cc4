"""Evaluation after each epoch, stopping by it, and the logs of a run."""

import json
import math
from dataclasses import replace

import pytest
from helpers import FAST, fresh, same, stopped_at, weights

from pyramid_bert.errors import CheckpointError, DataError, MissingExtraError, PyramidError, UnknownNameError
from pyramid_bert.training import LengthSampler, PyramidTrainer
from pyramid_bert.training.callbacks import Pace
from pyramid_bert.training.checkpoints import last_complete_checkpoint


def dev_values(clf, name="dev_accuracy"):
    return [entry[name] for entry in clf.history if name in entry]


@pytest.fixture
def scores(monkeypatch):
    """Makes the evaluations in training give these accuracies, one after another, and notes the weights."""
    evaluate = PyramidTrainer.evaluate

    def use(values):
        seen, given = [], iter(values)

        def scored(self, *args, **kwargs):
            seen.append({name: value.clone() for name, value in self.model.state_dict().items()})
            real, accuracy = self.dev, next(given)
            self.dev = replace(real, measure=lambda: {**real.measure(), "accuracy": accuracy})
            try:
                return evaluate(self, *args, **kwargs)
            finally:
                self.dev = real

        monkeypatch.setattr(PyramidTrainer, "evaluate", scored)
        return seen

    return use


@pytest.mark.parametrize("kept", [True, False])
def test_training_stops_without_gain_and_returns_to_the_best(tiny_model_dir, sentiment, tmp_path, scores, kept):
    seen = scores([0.5, 0.7, 0.7, 0.6, 0.9])
    settings = {**FAST, "epochs": 9, "patience": 2, "output_dir": tmp_path if kept else None}
    clf = fresh(tiny_model_dir).fit(*sentiment(64), dev=sentiment(32, 1), **settings)
    assert dev_values(clf) == [0.5, 0.7, 0.7, 0.6]  # an equal value is no gain; the fifth epoch never came
    assert same(weights(clf), seen[1])
    assert not same(seen[1], seen[3])


def test_evaluation_alone_changes_no_weight(tiny_model_dir, sentiment):
    data, dev = sentiment(64), sentiment(32, 1)
    alone = fresh(tiny_model_dir).fit(*data, **FAST)
    watched = fresh(tiny_model_dir).fit(*data, dev=dev, **FAST)
    assert same(weights(alone), weights(watched))
    assert len(dev_values(watched)) == 2
    assert dev_values(watched)[-1] == watched.evaluate(*dev)["accuracy"]


def test_the_last_part_of_an_epoch_is_evaluated_too(tiny_model_dir, sentiment):
    clf = fresh(tiny_model_dir).fit(*sentiment(64), dev=sentiment(32, 1), **{**FAST, "epochs": 1.5})
    assert [entry["step"] for entry in clf.history if "dev_f1" in entry] == [4, 6]


@pytest.mark.parametrize("stop", [5, 8, 9, 16, 17])  # 4 steps an epoch: within epochs, at their ends, after the best
def test_a_stopped_run_with_patience_ends_like_an_unstopped_one(tiny_model_dir, tmp_path, sentiment, scores, stop):
    data, dev, values = sentiment(64), sentiment(32, 1), [0.4, 0.6, 0.5, 0.55, 0.58, 0.9]
    settings = {**FAST, "epochs": 9, "patience": 3}
    scores(values)
    whole = fresh(tiny_model_dir).fit(*data, dev=dev, **settings, output_dir=tmp_path / "whole")
    scores(values)
    with stopped_at(stop):
        fresh(tiny_model_dir).fit(*data, dev=dev, **settings, output_dir=tmp_path / "parts")
    done = int(last_complete_checkpoint(tmp_path / "parts").name.partition("-")[2]) // 4
    scores(values[done:])
    resumed = fresh(tiny_model_dir).fit(*data, dev=dev, **settings, output_dir=tmp_path / "parts")
    assert dev_values(resumed) == [0.4, 0.6, 0.5, 0.55, 0.58]
    assert same(weights(resumed), weights(whole))
    assert resumed.history == whole.history
    logs = [(tmp_path / name / "log.jsonl").read_text() for name in ("whole", "parts")]
    assert logs[0] == logs[1]


def test_a_run_that_had_stopped_early_does_not_go_on(tiny_model_dir, tmp_path, sentiment, scores):
    data, dev = sentiment(64), sentiment(32, 1)
    settings = {**FAST, "epochs": 9, "patience": 1, "output_dir": tmp_path}
    scores([0.6, 0.5])
    first = fresh(tiny_model_dir).fit(*data, dev=dev, **settings)
    scores([])
    again = fresh(tiny_model_dir).fit(*data, dev=dev, **settings)
    assert same(weights(first), weights(again))
    assert dev_values(again) == [0.6, 0.5]
    with pytest.raises(CheckpointError, match="different: dev data"):
        fresh(tiny_model_dir).fit(*data, dev=sentiment(32, 2), **settings)
    (tmp_path / "checkpoint-4" / "model.safetensors").write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"cannot read the best weights in .*checkpoint-4"):
        fresh(tiny_model_dir).fit(*data, dev=dev, **settings)


@pytest.mark.parametrize(
    ("metric", "going", "exhausted"),
    [
        ("accuracy", ([], [0.5], [0.5, 0.4], [0.5, 0.6, 0.5]), [0.5, 0.4, 0.5]),
        ("rmse", ([0.5, 0.4, 0.3],), [0.5, 0.6, 0.7]),
        ("spearman", ([math.nan, 0.1, 0.1],), [0.1, math.nan, math.nan]),
    ],
)
def test_patience_is_counted_from_the_best(metric, going, exhausted):
    pace = Pace(LengthSampler([1], 1, 0), patience=2, metric=metric)
    for values in (*going, exhausted):
        history = [{"loss": 1.0}, *({f"eval_{metric}": value} for value in values)]
        assert pace.exhausted(history) is (values is exhausted)


@pytest.mark.parametrize(
    ("labels", "settings", "error", "message"),
    [
        (["pos", "neg"], {"patience": 2}, PyramidError, "patience=2 needs data to evaluate on"),
        (["pos", "neg"], {"dev_metric": "acuracy"}, UnknownNameError, "did you mean 'accuracy'"),
        (
            ["pos", "neg"],
            {"dev_metric": "rmse", "dev": (["film"], ["pos"])},
            UnknownNameError,
            "dev_metric for classes 'rmse'",
        ),
        (["pos", "neg"], {"dev": (["film"], ["meh"])}, DataError, "'meh', which the model does not know"),
        ([0.5, 1.5], {"dev": (["film"], [1.0])}, DataError, "correlations need at least two rows"),
    ],
)
def test_dev_data_that_cannot_serve_are_refused_before_training(
    tiny_model_dir, tmp_path, labels, settings, error, message
):
    with pytest.raises(error, match=message):
        fresh(tiny_model_dir).fit(["fine", "dull"], labels, output_dir=tmp_path, **FAST, **settings)
    assert not list(tmp_path.iterdir())


# ---- logs ----


def test_the_log_holds_losses_learning_rates_and_metrics(tiny_model_dir, sentiment, tmp_path):
    clf = fresh(tiny_model_dir)
    clf.fit(*sentiment(400), dev=sentiment(32, 1), output_dir=tmp_path / "run", **{**FAST, "checkpoints_per_epoch": 1})
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines == clf.history
    assert [line["step"] for line in lines if "loss" in line] == [20, 25, 40, 50]
    assert all(line["learning_rate"] > 0 for line in lines if "loss" in line)
    assert [line["step"] for line in lines if "dev_accuracy" in line] == [25, 50]
    clf.save(tmp_path / "model")
    assert (tmp_path / "model" / "log.jsonl").read_text() == (tmp_path / "run" / "log.jsonl").read_text()
    clf.save(tmp_path / "model")  # a folder with a log is still one that can be replaced


def test_the_bar_shows_the_metric_that_counts(tiny_model_dir, sentiment, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    settings = {**FAST, "progress": True, "dev_metric": "matthews"}
    clf = fresh(tiny_model_dir).fit(*sentiment(32), dev=sentiment(16, 1), **settings)
    shown = capsys.readouterr().err
    assert f"dev matthews {dev_values(clf, 'dev_matthews')[-1]:.3f}" in shown
    assert "dev accuracy" not in shown


def test_tensorboard_files(tiny_model_dir, sentiment, tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra 'logs'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fresh(tiny_model_dir).fit(*sentiment(64), dev=sentiment(32, 1), log_dir=tmp_path, **FAST)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {"train/loss", "train/learning_rate", "eval/accuracy"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("eval/accuracy")] == [4, 8]


def test_tensorboard_that_is_missing_is_named_before_training(tiny_model_dir, sentiment, tmp_path, monkeypatch):
    from pyramid_bert.training import callbacks

    monkeypatch.setattr(callbacks, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs tensorboard: pip install 'pyramid-bert\[logs\]'"):
        fresh(tiny_model_dir).fit(*sentiment(64), log_dir=tmp_path / "logs", **FAST)
    assert not (tmp_path / "logs").exists()
