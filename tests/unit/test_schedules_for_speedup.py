"""From a wanted speed-up to a schedule: what is predicted, what is chosen, what is refused."""

from functools import partial

import pytest
import torch

from pyramid_bert import PyramidClassifier, PyramidConfig, Schedule, pyramidize, schedule_for_speedup
from pyramid_bert.bench.timing import Timing
from pyramid_bert.cli import main
from pyramid_bert.errors import PyramidError
from pyramid_bert.families import pyramid_encoder
from pyramid_bert.text.batches import Encoded
from pyramid_bert.tune import speed as speed_module
from pyramid_bert.tune.schedules import Solver, solve_speedup
from pyramid_bert.tune.solver import at_speedup
from pyramid_bert.tune.speed import PARTS, Calibration, calibrate, lengths_to_time, rows_to_time

COSTS = dict.fromkeys(PARTS, 2.0) | {"feed_forward": 3.0, "choosing": 0.5, "cls_attention": 1.0, "rest": 0.0}


def made_up(**changes):
    """Parts that cost as much as they have tokens: attention 2 a token, feed-forward 3, choosing 0.5, CLS only 1."""
    seconds = {part: (cost, 100 * cost) for part, cost in (COSTS | changes.pop("costs", {})).items()}
    settings = {"batch_size": 4, "layers": 4, "weighted": False, "placement": "middle", "cls_layers": 0}
    return Calibration(lengths=(1, 100), seconds=seconds, **(settings | changes))


# ---- the additive model ----


@pytest.mark.parametrize(
    ("kept", "cls_layers", "seconds"),
    [
        ([10, 10, 10, 10], 0, 4 * (2 * 10 + 3 * 10)),
        ([10, 5, 5, 2], 0, 2 * (10 + 10 + 5 + 5) + 3 * (10 + 5 + 5 + 2) + 0.5 * (10 + 5)),
        ([10, 5, 5, 2], 1, 2 * (10 + 10 + 5) + 3 * (10 + 5 + 5) + 0.5 * 10 + (1 * 5 + 3 * 1)),
        ([10, 5, 5, 5], 2, 2 * (10 + 10) + 3 * (10 + 5) + 0.5 * 10 + 2 * (1 * 5 + 3 * 1)),
    ],
)
def test_a_batch_by_hand(kept, cls_layers, seconds):
    calibration = made_up(cls_layers=cls_layers)
    assert calibration.pyramid(Schedule.custom(kept, n=10), 10, masked=False) == pytest.approx(seconds)
    assert calibration.dense(10, masked=False) == pytest.approx(4 * (20 + 30))


def test_masked_attention_has_its_own_price():
    calibration, weighted = (made_up(costs={"attention_masked": 7.0}, weighted=weighted) for weighted in (False, True))
    assert calibration.dense(10, masked=True) - calibration.dense(10, masked=False) == pytest.approx(4 * 50)
    schedule = Schedule.custom([10, 5, 5, 5], n=10)
    more = weighted.pyramid(schedule, 10, masked=False) - calibration.pyramid(schedule, 10, masked=False)
    assert more == pytest.approx(5 * (5 + 5))  # the two layers after the first reduction


@pytest.mark.parametrize("longest", [1, 2, 5, 128, 512])
def test_timed_lengths_reach_from_one_to_the_longest(longest):
    lengths = lengths_to_time(longest)
    assert lengths[0] == 1
    assert lengths[-1] == longest
    assert lengths == sorted(set(lengths))


def test_a_real_calibration_times_every_part(tiny_bert):
    calibration = calibrate(pyramidize(tiny_bert(), Schedule.constant(0.5)), 12, batch_size=2, rounds=1)
    assert set(calibration.seconds) == set(PARTS)
    assert all(len(times) == len(calibration.lengths) for times in calibration.seconds.values())
    assert calibration.layers == 4
    with pytest.raises(PyramidError, match="takes a pyramid"):
        calibrate(tiny_bert(), 12, batch_size=2)


# ---- the solver ----


@pytest.fixture
def known_costs(monkeypatch):
    """The solver with costs that are known instead of timed."""
    monkeypatch.setattr(speed_module, "calibrate", lambda *args, **kwargs: made_up(cls_layers=1))


LENGTHS = [40, 38, 30, 30, 22, 20, 20, 18]
solve = partial(solve_speedup, lengths=LENGTHS, batch_size=4)


@pytest.fixture
def items():
    """A sample; every row is judged in the first round already."""
    generator = torch.Generator().manual_seed(0)
    return [Encoded([2, *torch.randint(5, 200, (n,), generator=generator).tolist(), 3]) for n in range(6, 22)]


@pytest.mark.parametrize("rest_from", [2, 4])
@pytest.mark.parametrize("sampled", [True, False])
def test_a_schedule_is_done_before_tokens_rest(known_costs, tiny_bert, items, rest_from, sampled):
    settings = {"rest_from": rest_from, "reduce": "drop"}
    solution = solve(tiny_bert(), 1.2, verify=False, settings=settings, sample=items if sampled else None)
    assert solution.schedule.done_at(4) < rest_from
    PyramidConfig(schedule=solution.schedule, **settings).check(4)


@pytest.mark.parametrize("wanted", [1.3, 1.5, 2, 3])
def test_the_prediction_meets_what_was_asked_for(known_costs, tiny_bert, wanted):
    solution = solve(tiny_bert(), wanted, verify=False)
    assert wanted <= solution.predicted <= 1.15 * wanted  # lengths are whole tokens
    assert solution.measured is None
    assert solution.predicted <= solution.reachable


def test_without_a_sample_the_layers_are_near_the_default_ones(known_costs, tiny_bert):
    schedule = solve(tiny_bert(), 1.3, verify=False).schedule
    assert (schedule.first_layer, schedule.last_layer) == (1, 2)


@pytest.mark.parametrize("trained", [True, False])
def test_with_a_sample_the_nearest_to_the_dense_model_is_taken(known_costs, tiny_bert, items, trained):
    """Every candidate of the speed-up is run by hand, text by text: none is nearer."""
    model = tiny_bert()
    solver = Solver(model, LENGTHS, batch_size=4, sample=items, trained_head=trained)
    solution = solver.solve(1.4, verify=False)

    def distance(schedule):
        pyramid, total = pyramidize(tiny_bert(), schedule), 0.0
        for item in items:
            ids = torch.tensor([item.input_ids])
            with torch.no_grad():
                if trained:
                    ours, theirs = (m(ids).logits.log_softmax(1) for m in (pyramid, model))
                    total += float((theirs.exp() * (theirs - ours)).sum())
                else:
                    ours, theirs = (m.bert(ids)[0][0, 0] for m in (pyramid, model))
                    total += 1 - float(torch.dot(ours, theirs) / (ours.norm() * theirs.norm()))
        return total / len(items)

    others = [
        found.schedule
        for first in range(1, 4)
        for last in range(first, 4)
        if (found := at_speedup(solver._settings, first, last, solver._speedup_of, 1.4)) is not None
    ]
    assert len(others) > 2
    assert solution.divergence == pytest.approx(distance(solution.schedule), abs=1e-5)
    assert solution.divergence <= min(map(distance, others)) + 1e-6


def test_an_encoder_without_a_head_is_compared_by_its_cls_vectors(known_costs, tiny_bert, items):
    bare, headed = (
        solve(model, 1.4, verify=False, sample=items, trained_head=False) for model in (tiny_bert().bert, tiny_bert())
    )
    assert bare.schedule == headed.schedule
    assert bare.divergence == pytest.approx(headed.divergence, abs=1e-6)


def test_a_measurement_corrects_the_aim(known_costs, tiny_bert, monkeypatch):
    """A machine on which everything is 20 % slower than predicted: the solver has to aim higher."""
    monkeypatch.setattr(Solver, "_measured", lambda solver, settings: 0.8 * solver._speedup_of(settings))
    solution = solve(tiny_bert(), 1.5)
    assert solution.corrections >= 1
    assert solution.measured == pytest.approx(1.5, rel=0.06)
    assert solution.predicted == pytest.approx(1.5 / 0.8, rel=0.06)


def test_a_speedup_out_of_reach_names_the_largest_as_predicted_or_measured(known_costs, tiny_bert, monkeypatch):
    with pytest.raises(PyramidError, match=r"50x cannot be reached .* at most \d+\.\d\dx"):
        solve(tiny_bert(), 50)
    monkeypatch.setattr(Solver, "_measured", lambda *args: 1.2)
    with pytest.raises(PyramidError, match=r"2x cannot be reached .* at most 1\.20x"):
        solve(tiny_bert(), 2)


def test_the_try_nearest_to_the_wish_is_taken(known_costs, tiny_bert, monkeypatch):
    measured = iter([1.3, 1.6, 1.3, 1.3])
    monkeypatch.setattr(Solver, "_measured", lambda *args: next(measured))
    solution = solve(tiny_bert(), 1.5)
    assert (solution.measured, solution.corrections) == (1.6, 3)


def test_a_schedule_is_measured_against_the_dense_model(tiny_bert):
    solver = Solver(tiny_bert(), [16, 12, 9], batch_size=2)
    assert solver._measured(PyramidConfig(schedule=Schedule.constant(0.5))) > 0


def test_one_calibration_serves_many_wishes(known_costs, tiny_bert, monkeypatch):
    solver = Solver(tiny_bert(), LENGTHS, batch_size=4)
    monkeypatch.setattr(speed_module, "calibrate", None)
    for wanted in (1.3, 1.6):
        assert solver.solve(wanted, verify=False).predicted == pytest.approx(wanted, rel=0.06)


def test_large_batches_are_timed_on_a_few_layers(tiny_bert, monkeypatch):
    """By a clock that ticks once for each layer that is run: the price of one layer stays one tick."""
    pyramid = pyramidize(tiny_bert(), Schedule.constant(0.5))
    halves, ticks, run_at = type(pyramid_encoder(pyramid).family), [], {}
    for name in ("attend", "feed_forward"):
        original = getattr(halves, name)
        ticking = lambda *args, of=original, **kwargs: ticks.append(1) or of(*args, **kwargs)  # noqa: E731
        monkeypatch.setattr(halves, name, ticking)

    def count(runs, **_):
        for name, run in runs.items():
            ticks.clear()
            run()
            run_at[name] = len(ticks)
        return Timing({name: [float(value)] for name, value in run_at.items()})

    monkeypatch.setattr(speed_module, "time_interleaved", count)
    monkeypatch.setattr(speed_module, "_LARGE", 30)
    seconds = calibrate(pyramid, 16, batch_size=2).seconds
    assert (run_at["attention 1"], run_at["attention 16"]) == (4, 3)
    assert set(seconds["attention"]) == set(seconds["feed_forward"]) == {1.0}


def test_what_is_measured_is_spread_over_all_lengths(monkeypatch):
    rows = [Encoded([7] * n) for n in range(1, 101)]
    assert sorted(rows_to_time(rows, 4).lengths) == list(range(1, 101))
    monkeypatch.setattr(speed_module, "_TOKENS_TO_TIME", 100)
    some = rows_to_time(rows, 4).lengths
    assert 3 * 4 <= len(some) < 30
    assert max(some) > 70 > 30 > min(some)


@pytest.mark.parametrize(
    ("wanted", "change", "message"),
    [
        *((wanted, {}, "speedup must be a number in 1-1000") for wanted in (0.5, 0, -1, float("nan"), "2", True, 1000)),
        *(
            (2, {"settings": settings}, "use coreset, cluster, attention, first or random")
            for settings in ({"selector": "pool"}, {"selector": "input-first"}, {"placement": "input"})
        ),
        (2, {"lengths": []}, "at least one row, each in 1-128, got none"),
        (2, {"lengths": [5, 600]}, "each in 1-128, got 5-600"),
        (2, {"batch_size": 0}, "batch_size must be an integer of at least 1"),
    ],
)
def test_what_is_refused(tiny_bert, wanted, change, message):
    with pytest.raises(PyramidError, match=message):
        solve(tiny_bert(), wanted, **change)


def test_the_model_is_not_touched(known_costs, tiny_bert, tiny_batch, logits_of):
    model, batch = tiny_bert(), tiny_batch([8, 5])
    before = logits_of(model, batch)
    schedule = schedule_for_speedup(model, 1.5, lengths=LENGTHS, batch_size=4, verify=False)
    with pytest.warns(DeprecationWarning, match="use pyramid_bert.schedule_for_speedup"):
        assert Schedule.for_speedup(model, 1.5, lengths=LENGTHS, batch_size=4, verify=False) == schedule
    assert type(model).__name__ == "BertForSequenceClassification"
    assert torch.equal(logits_of(model, batch), before)


# ---- the command line ----


def test_bench_says_what_can_be_reached(tiny_model_dir, tmp_path, capsys):
    data = tmp_path / "texts.csv"
    data.write_text("text\n" + "a fine film about life\n" * 8)
    assert main(["bench", "--model", str(tiny_model_dir), "--data", str(data), "--speedup", "900"]) == 1
    assert "at most" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["bench", "train"])
def test_a_schedule_and_a_speedup_exclude_each_other(command, tiny_model_dir, tmp_path, capsys):
    call = [command, "--model", str(tiny_model_dir), *"--speedup 2 --keep-ratio 0.5 --last-layer 2".split()]
    call += ["--train", "x.csv", "--out", str(tmp_path / "out")] if command == "train" else []
    assert main(call) == 2
    assert "--speedup finds the schedule" in capsys.readouterr().err


def test_train_with_a_selector_and_a_speedup_finds_a_schedule(
    known_costs, tiny_model_dir, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(Solver, "_measured", lambda *args: 1.5)
    data = tmp_path / "train.csv"
    rows = [("a fine film about life", "good"), ("a dull story", "bad")] * 8
    data.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    out = tmp_path / "out"
    call = ["train", "--model", str(tiny_model_dir), "--train", str(data), "--out", str(out), "--epochs", "1"]
    coreset = ["--selector", "coreset"]
    with monkeypatch.context() as stopped:
        stopped.setattr(PyramidClassifier, "fit", lambda *args, **kwargs: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main([*call, "--speedup", "1.5", *coreset]) == 130
    assert "for 1.5x over dense, length-sorted" in capsys.readouterr().err
    # It goes on with the schedule that it began with: nothing is timed again.
    monkeypatch.setattr(speed_module, "calibrate", None)
    assert main([*call, "--speedup", "1.3", *coreset]) == 1
    assert "different: --speedup" in capsys.readouterr().err
    assert main([*call, "--speedup", "1.5", *coreset]) == 0
    assert PyramidClassifier.load(out).settings.schedule.min_tokens == 2


def test_several_processes_are_told_to_find_it_first(tiny_model_dir, tmp_path, capsys, monkeypatch):
    data = tmp_path / "train.csv"
    data.write_text("text,label\na fine film,good\na dull story,bad\n")
    monkeypatch.setenv("WORLD_SIZE", "2")
    call = ["train", "--model", str(tiny_model_dir), "--train", str(data), "--out", str(tmp_path / "out")]
    assert main([*call, "--speedup", "2"]) == 2
    assert "--speedup is found by one process" in capsys.readouterr().err
