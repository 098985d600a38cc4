"""No fine-tuning: a dense classifier becomes the pyramid of a wanted speed-up that stays nearest to it."""

import json
import signal
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from pyramid_bert import PyramidClassifier, PyramidError, Schedule, is_pyramid
from pyramid_bert.bench.ideal import ideal_speedup, kept_lengths
from pyramid_bert.bench.timing import Timing
from pyramid_bert.cli import main
from pyramid_bert.cli.speedup import compared
from pyramid_bert.errors import DataError, UnknownNameError
from pyramid_bert.families import pyramid_settings
from pyramid_bert.families.bert import BertHalves
from pyramid_bert.text.labels import Labels
from pyramid_bert.text.sampling import shuffled
from pyramid_bert.tune import finder, speed, strategy
from pyramid_bert.tune.candidates import METHODS, Method, fastest, grid, neighbours, rests
from pyramid_bert.tune.judge import divergences
from pyramid_bert.tune.search import check_held_out, find_pyramid


@pytest.fixture(scope="module")
def dense(dense_dir):
    return PyramidClassifier.load(dense_dir)


@pytest.fixture(scope="module")
def rows(sentiment):
    """Texts and labels to search on."""
    return sentiment(120, seed=2)


@pytest.fixture(scope="module")
def found(dense, rows):
    return find_pyramid(dense, 1.5, *rows, target="ideal")


def test_the_pyramid_has_the_speed_and_keeps_the_labels(found, dense, sentiment):
    assert found.ideal >= 1.5
    assert found.ideal < 1.8  # no faster than asked: that would cost agreement
    assert found.agreement > 0.9
    texts, labels = sentiment(200, seed=3)
    assert found.classifier.evaluate(texts, labels)["accuracy"] > dense.evaluate(texts, labels)["accuracy"] - 0.1


def test_no_weight_is_touched(found, dense):
    before, after = dense.model.state_dict(), found.classifier.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not is_pyramid(dense.model)
    assert found.classifier.settings == found.settings


def test_every_candidate_has_the_wanted_speed(found, dense, rows):
    lengths = [len(item) for item in dense.encode(rows[0])]
    counted = speed.Counted(dense.model, lengths)
    assert len(found.trials) > len(METHODS)
    assert all(1.5 <= counted(trial.settings) < 2.2 for trial in found.trials)
    assert {trial.settings.selector for trial in found.trials} == {method.selector for method in METHODS}


def test_the_winner_is_the_nearest_to_the_dense_model_without_labels(dense, rows):
    found = find_pyramid(dense, 1.5, rows[0], target="ideal")
    judged_most = [trial for trial in found.trials if trial.rows == found.search_rows]
    assert len(judged_most) > 1
    assert found.trials[0].divergence == min(trial.divergence for trial in judged_most)
    assert found.metrics is None
    assert found.dense_metrics is None


def test_the_same_call_gives_the_same_pyramid(found, dense, rows):
    again = find_pyramid(dense, 1.5, *rows, target="ideal")
    assert again.settings == found.settings
    assert [trial.settings for trial in again.trials] == [trial.settings for trial in found.trials]


def test_the_comparison_is_made_on_rows_that_no_choice_depends_on(found, dense, rows):
    texts, labels = rows
    held_out = shuffled(120, 0)[found.search_rows :]
    assert len(held_out) == found.held_out_rows == 60
    mixed = list(labels)
    for row in held_out:  # labels that are all wrong there change the report and nothing else
        mixed[row] = "pos" if labels[row] == "neg" else "neg"
    other = find_pyramid(dense, 1.5, texts, mixed, target="ideal")
    assert other.settings == found.settings
    assert other.metrics["accuracy"] == pytest.approx(1 - found.metrics["accuracy"])
    unseen = [texts[row] for row in held_out], [labels[row] for row in held_out]
    assert found.metrics == found.classifier.evaluate(*unseen)
    assert found.dense_metrics == dense.evaluate(*unseen)


def test_when_time_is_up_the_best_so_far_is_taken(dense, rows):
    found = find_pyramid(dense, 1.5, *rows, target="ideal", minutes=1e-9, held_out=0.25)
    assert not found.in_time
    assert len(found.trials) == 1
    assert found.ideal >= 1.5
    assert (found.search_rows, found.held_out_rows) == (16, 30)


class ByWork(speed.Counted):
    """Predicts times by multiply-accumulates, so that no test depends on how busy the machine is."""

    def __init__(self, model, lengths, batch_size, after_each, in_time):
        super().__init__(model, lengths)

    def knows(self, settings):
        return True


@pytest.mark.parametrize(("target", "minutes"), [("time", 1), ("time", 20), ("ideal", 1), ("ideal", 10)])
def test_minutes_are_the_whole_time(dense, rows, monkeypatch, target, minutes):
    """On a clock that moves by 10 seconds a batch, and by 1 a half layer where these are timed."""
    clock, forward, attend = [0.0], type(dense.model).forward, BertHalves.attend

    def slow(of, seconds, *args, **how):
        clock[0] += seconds
        return of(*args, **how)

    monkeypatch.setattr(strategy.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(finder, "Predicted", ByWork)
    monkeypatch.setattr(type(dense.model), "forward", lambda *args, **how: slow(forward, 10, *args, **how))
    monkeypatch.setattr(BertHalves, "attend", lambda *args, **how: slow(attend, 0.1, *args, **how))
    found = find_pyramid(dense, 1.3, *rows, target=target, minutes=minutes)
    batch = 10 + 0.1 * dense.model.config.num_hidden_layers  # the whole, and its half layers
    assert clock[0] <= max(60 * minutes, 10 * batch) + batch  # one batch more; ten are run however late it is
    assert clock[0] > 0.5 * 60 * minutes
    assert not found.in_time
    assert found.seconds == clock[0]


@pytest.fixture
def machine(monkeypatch):
    """A machine that is predicted by multiply-accumulates, and that measures these times a factor given in `share`."""
    share, counted = [1.0], {}

    class Blind(ByWork):
        def __init__(self, *args):
            super().__init__(*args)
            counted["of"] = self

    def measured(dense, pyramid, workload, batch_size, *, rounds, **_):
        slower = share.pop(0) if len(share) > 1 else share[0]
        return [slower * counted["of"](pyramid_settings(pyramid))]

    monkeypatch.setattr(finder, "Predicted", Blind)
    monkeypatch.setattr(finder, "speedups_by_round", measured)
    return share


@pytest.mark.parametrize("share", [[0.75], [0.6, 1.0], [0.6, 0.6, 1.0]])
def test_on_this_machine_a_prediction_is_corrected_by_what_is_measured(dense, rows, machine, share):
    """A machine on which every pyramid is a quarter slower than predicted, and one that is busy at first."""
    machine[:] = share
    found = find_pyramid(dense, 1.3, *rows)
    assert found.measured == pytest.approx(1.3, rel=0.06)
    assert found.ideal == pytest.approx(found.measured / machine[0])


def test_a_regressor(learner_dir, sentiment):
    texts, labels = sentiment(120)
    numbers = [float(label == "pos") for label in labels]
    dense = PyramidClassifier.from_pretrained(learner_dir, "dense")
    dense.fit(texts, numbers, target="number", epochs=1, learning_rate=2e-3, progress=False)
    found = find_pyramid(dense, 1.4, texts, numbers, target="ideal", methods=METHODS[:1])
    assert set(found.metrics) == {"spearman", "pearson", "rmse"}
    held_out = [texts[row] for row in shuffled(120, 0)[found.search_rows :]]
    pearson = np.corrcoef(dense.predict(held_out), found.classifier.predict(held_out))[0, 1]
    assert found.agreement == pytest.approx(pearson, abs=1e-4)
    assert found.agreement < 1


def test_an_error_is_shown_in_the_labels_unit_and_shares_as_per_cent(found):
    numbers = {"spearman": 0.5, "pearson": 0.25, "rmse": 2.5}
    report = replace(found, dense_metrics=numbers, metrics={**numbers, "rmse": 2.75, "spearman": 0.45})
    columns = [list(column.cells) for column in compared(report).columns]
    rows = {row[0]: list(row[1:]) for row in zip(*columns, strict=True)}
    assert rows["spearman"] == ["50.0", "45.0", "-5.0"]
    assert rows["rmse"] == ["2.5000", "2.7500", "+0.2500"]


# ---- what is refused ----


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rows": 49}, DataError, "at least 50 texts.*got 49"),
        ({"speedup": 30}, PyramidError, r"30x cannot be reached.*at most \d"),
        ({"speedup": 0.5}, PyramidError, "speedup must be a number"),
        ({"target": "watts"}, UnknownNameError, "unknown target 'watts'"),
        ({"metric": "bleu"}, UnknownNameError, "unknown metric 'bleu'"),
        ({"metric": "f1", "labels": None}, DataError, "'f1' needs labels"),
        ({"minutes": 0}, PyramidError, "minutes must be a number above 0"),
        ({"held_out": 0.4}, PyramidError, r"held out must be 25 to 35 of 60 texts.*got 0.4, which is 24; 0.5"),
        ({"held_out": 0.42, "rows": 59}, PyramidError, r"held out must be 25 to 34 of 59 texts.*got 0.42, which is 24"),
        ({"held_out": 1.0}, PyramidError, "held out must be a number between 0 and 1, got 1.0"),
        ({"held_out": float("nan")}, PyramidError, "held out must be a number between 0 and 1, got nan"),
        ({"held_out": "half"}, PyramidError, "held out must be a number between 0 and 1, got 'half'; 0.5"),
        ({"labels": ["pos"] * 59 + ["so-so"]}, DataError, "'so-so', which the model does not know"),
    ],
)
def test_refused(dense, sentiment, change, error, message, monkeypatch):
    monkeypatch.setattr(finder, "measure_sensitivity", None)  # no work may begin
    texts, labels = sentiment(change.pop("rows", 60))
    call = {"speedup": 1.5, "labels": labels, "target": "ideal", **change}
    with pytest.raises(error, match=message):
        find_pyramid(dense, call.pop("speedup"), texts, call.pop("labels"), **call)


def test_a_pyramid_and_an_encoder_are_refused(dense_dir, learner_dir, sentiment):
    texts, _ = sentiment(60)
    pyramid = PyramidClassifier.from_pretrained(dense_dir, Schedule.constant(0.5))
    with pytest.raises(PyramidError, match="a pyramid already"):
        find_pyramid(pyramid, 1.5, texts)
    with pytest.raises(PyramidError, match="no trained classifier"):
        find_pyramid(PyramidClassifier.from_pretrained(learner_dir, "dense"), 1.5, texts)


def test_shares_that_are_enough_in_whole_rows():
    for share, rows in ((0.43, 59), (0.59, 59), (0.5, 50), (0.5, 51), (0.29, 100), (np.float32(0.5), 60)):
        check_held_out(share, rows)
    with pytest.raises(PyramidError, match="which is 35"):
        check_held_out(0.6, 59)


def test_one_layer_is_refused_for_what_it_is(tiny_bert, tokenizer, sentiment):
    dense = PyramidClassifier(tiny_bert(layers=1), tokenizer, labels=Labels(("neg", "pos")))
    with pytest.raises(PyramidError, match=r"at least 2 layers, got 1: the last layer .* computes only CLS"):
        find_pyramid(dense, 1.5, sentiment(60)[0], target="ideal")


def test_neighbours_of_clusters_reach_more_or_less_far():
    method = Method("cluster", metric="cosine", within=5)
    found = list(neighbours(method.settings(Schedule.exponential(0.5, 3, first_layer=2)), 4))
    assert {other.within for other in found} == {3, 5, 8}
    assert {(other.selector, other.metric) for other in found} == {("cluster", "cosine")}


@pytest.mark.parametrize(("layers", "rest_from", "tried"), [(12, None, {None, 10, 11}), (6, 4, {4})])
def test_candidates_rest_in_the_last_layers_or_where_the_method_says(layers, rest_from, tried):
    found = grid([Method("cluster", rest_from=rest_from)], layers, lambda settings: 2.0, 1.5)
    assert {settings.rest_from for settings in found} == tried
    for settings in found:
        settings.check(layers)


@pytest.mark.parametrize(("layers", "rest_from", "last", "tried"), [(12, 10, 9, {10, 11}), (6, 5, 3, {4, 5, None})])
def test_neighbours_rest_sooner_or_later(layers, rest_from, last, tried):
    near = list(neighbours(Method("cluster", rest_from=rest_from).settings(Schedule.exponential(0.5, last)), layers))
    assert {other.rest_from for other in near} == tried
    for settings in near:
        settings.check(layers)


def test_what_is_fast_enough_by_resting_only_is_tried_once(dense):
    counted = speed.Counted(dense.model, [20] * 8)
    (layer,) = rests(dense.model.config.num_hidden_layers)
    resting = counted(Method(rest_from=layer).settings(Schedule.constant(1.0)))
    awake = counted(Method().settings(Schedule.constant(1.0)))
    found = grid(METHODS, dense.model.config.num_hidden_layers, counted, (resting + awake) / 2)
    assert sum(settings.schedule.keep_ratio == 1 for settings in found) == 1
    assert all(settings.rest_from is None for settings in found if settings.schedule.keep_ratio < 1)


def test_the_fastest_rest():
    def speedup_of(settings):
        return 2.0 if settings.rest_from is None else 3.0

    assert fastest([Method()], 12, speedup_of) == 3.0


@pytest.fixture
def token_clock(monkeypatch):
    """A machine on which parts take as long as they have tokens, and every pyramid is measured at 1.3x."""

    def seconds(name):
        part, _, tokens = name.partition(" ")
        whole = {"dense": 1.3, "pyramid": 1.0}
        return whole[part] if part in whole else (0.1 if part in ("choosing", "rest") else 1.0) * int(tokens)

    def timed(runs, **_):
        for run in runs.values():
            run()
        return Timing({name: [seconds(name)] for name in runs})

    monkeypatch.setattr(speed, "time_interleaved", timed)


def test_tokens_that_rest_are_predicted_to_save_time(tiny_bert, token_clock):
    model = tiny_bert(layers=6)
    predicted = speed.Predicted(model, [100] * 8, 8)
    awake = Method("first", "drop").settings(Schedule.exponential(0.9, 2))
    known = predicted(awake)
    (calibration,) = predicted._known.values()
    resting = awake.replace(rest_from=3)
    by_hand = replace(calibration, cls_layers=4).pyramid(resting.schedule, 100, masked=False)
    assert predicted(resting) == pytest.approx(calibration.dense(100, masked=False) / by_hand)
    assert predicted(resting) > known
    assert len(predicted._known) == 1


@pytest.fixture
def preferring(monkeypatch):
    """Lets the search take the nearest trial among those with a property, if there are any."""

    def prefer(has):
        best = partial(min, key=lambda trial: (not has(trial.settings), trial.divergence))
        monkeypatch.setattr(finder, "winner", best)

    return prefer


def test_lengths_that_follow_the_text_are_tried_and_counted(dense, rows, preferring):
    preferring(lambda settings: settings.schedule.is_adaptive)
    found = find_pyramid(dense, 1.3, *rows, target="ideal", methods=[Method("cluster", metric="cosine")])
    assert found.settings.schedule.is_adaptive
    model = found.classifier.model
    items = found.classifier.encode([rows[0][row] for row in shuffled(120, 0)[: found.search_rows]])
    assert found.ideal == pytest.approx(ideal_speedup(model, items, kept_lengths(model, items)))
    assert found.ideal == pytest.approx(1.3, rel=0.1)


@pytest.mark.parametrize("target", ["ideal", "time"])
def test_a_pyramid_by_sensitivity_is_found_saved_and_loaded(dense, rows, tmp_path, target, token_clock):
    texts, methods = rows[0], [Method("cluster", metric="sensitivity", within=within) for within in (None, 5)]
    found = find_pyramid(dense, 1.3, *rows, target=target, methods=methods)
    assert found.settings.metric == "sensitivity"
    assert not hasattr(dense.model.bert, "sensitivity")  # the classifier that was given is as it was
    found.classifier.save(tmp_path / "faster")
    loaded = PyramidClassifier.load(tmp_path / "faster")
    assert np.array_equal(loaded.predict_logits(texts[:20]), found.classifier.predict_logits(texts[:20]))


def test_a_winner_with_another_metric_is_saved_without_sensitivity(dense, rows, preferring):
    preferring(lambda settings: settings.metric == "cosine")
    methods = [Method("cluster", metric="cosine"), Method("cluster", metric="sensitivity")]
    found = find_pyramid(dense, 1.3, *rows, methods=methods, target="ideal")
    assert {trial.settings.metric for trial in found.trials} == {"cosine", "sensitivity"}
    assert found.settings.metric == "cosine"
    assert list(found.classifier.model.state_dict()) == list(dense.model.state_dict())


def test_a_regressor_is_judged_alike_on_few_rows_and_on_many():
    """Or a candidate could be farther than itself."""
    dense = torch.tensor([[1.0], [1.1], [7.0], [-3.0]])
    other = dense + 0.5
    on_all = divergences(dense, other)
    assert torch.equal(divergences(dense[:2], other[:2], among=dense), on_all[:2])
    assert not torch.allclose(divergences(dense[:2], other[:2]), on_all[:2])


# ---- the command ----


@pytest.fixture
def call(dense_dir, rows_file, tmp_path):
    """The words of a call for 1.4x that writes to `fast`."""
    return ["speedup", str(dense_dir), "--data", str(rows_file), "--speedup", "1.4", "--out", str(tmp_path / "fast")]


def test_the_command_saves_a_pyramid_that_loads_like_any_other(capsys, call, tmp_path):
    out = tmp_path / "fast"
    call.append("--ideal")
    assert main(call) == 0
    shown = capsys.readouterr()
    assert "agreement with dense" in shown.out
    assert "accuracy" in shown.out
    assert str(Method.of(PyramidClassifier.load(out).settings)) in " ".join(shown.out.split())
    assert is_pyramid(PyramidClassifier.load(out).model)
    assert main(call) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main([*call, "--overwrite", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ideal"] >= 1.4
    assert report["held_out_rows"] == 40
    assert PyramidClassifier.load(out).settings.to_dict() == report["settings"]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", ["_settled", "_make_judge"])
def test_what_was_found_outlives_an_interruption(capsys, call, machine, monkeypatch, tmp_path, stage, sent):
    monkeypatch.setattr(finder.Finder, stage, lambda *args, **how: signal.raise_signal(sent))
    assert main(call) == 130
    found, said = stage == "_settled", " ".join(capsys.readouterr().err.split())
    assert ("the best pyramid so far is in" in said) == found
    assert ("nothing was saved" in said) != found
    assert [path.name for path in tmp_path.glob("*fast*")] == ["fast"] * found
    if found:
        assert is_pyramid(PyramidClassifier.load(tmp_path / "fast").model)


def test_what_chance_may_have_moved_is_shown(capsys, call, machine, monkeypatch):
    monkeypatch.setattr(finder, "speedups_by_round", lambda *of, **how: [1.2, 1.4, 1.5])
    assert main([*call, "--ideal", "--minutes", "0.01", "--json"]) == 0
    report, said = json.loads((shown := capsys.readouterr()).out), " ".join(shown.err.split())
    assert "timings varied between rounds: 1.20x to 1.50x" in said
    assert report["measured"] == 1.4
    assert set(report["intervals"]) == {"accuracy", "f1", "matthews", "agreement"}
    for name, sides in report["intervals"].items():
        for side, (low, high) in sides.items():
            metrics = {
                "dense": report["dense_metrics"],
                "pyramid": {**report["metrics"], "agreement": report["agreement"]},
            }
            assert side == "change" or low <= metrics[side][name] <= high
    assert main([*call, "--ideal", "--minutes", "0.01", "--overwrite"]) == 0
    assert "±" in next(line for line in capsys.readouterr().out.splitlines() if "accuracy" in line)


def test_a_speed_that_was_not_reached_is_told(capsys, call, machine, monkeypatch):
    for measured, told in ((1.1, True), (1.35, False), (1.9, True)):
        monkeypatch.setattr(finder, "speedups_by_round", lambda *of, value=measured, **how: [value])
        assert main([*call, "--minutes", "1e-9", "--overwrite"]) == 0
        shown = capsys.readouterr()
        assert (f"asked for 1.4x, measured {measured:.2f}x" in " ".join(shown.err.split())) == told
        assert "with 1 pyramid tried" in " ".join(shown.err.split())
        assert "(1.4x wanted)" in shown.out


def test_labels_are_read_if_they_are_there(capsys, call, rows_file, tmp_path):
    rows_file.write_text("\n".join(line.split(",")[0] for line in rows_file.read_text().splitlines()) + "\n")
    assert main([*call, "--metric", "f1"]) == 1
    assert "--metric f1 needs labels, and row 1 of" in (err := capsys.readouterr().err)
    assert "has no column 'label'; name another with --label-column, or leave out --metric" in err
    assert not (tmp_path / "fast").exists()
    assert main([*call, "--ideal", "--minutes", "0.01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] is None


def test_labels_that_the_model_does_not_know_can_be_left_aside(capsys, call, rows_file):
    rows_file.write_text(rows_file.read_text().replace(",pos", ",good"))
    assert main(call) == 1
    shown = capsys.readouterr().err
    assert "'good', which the model does not know" in shown
    assert "pass --no-labels to compare by agreement only" in shown
    assert main([*call, "--ideal", "--minutes", "0.01", "--no-labels", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] is None


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--speedup 0", 2, "speedup must be a number"),
        ("--minutes 0", 2, "--minutes must be a number above 0"),
        ("--held-out 0.3", 2, "must be 25 to 55 of 80 texts"),
        ("--held-out 2", 2, "must be a number between 0 and 1, got 2.0"),
        ("--metric bleu", 2, "unknown metric 'bleu'"),
        ("--max-length 1", 2, "--max-length must be in 2-128, got 1"),
        ("--max-length 129", 2, "--max-length must be in 2-128, got 129"),
        ("--no-labels --metric f1", 2, "leave out --metric and --label-column"),
        ("--no-labels --label-column stars", 2, "--no-labels reads no labels"),
        ("--speedup 50 --ideal", 1, "cannot be reached"),
    ],
)
def test_wrong_calls(capsys, call, tmp_path, options, code, message):
    assert main([*call, *options.split()]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "fast").exists()
