"""Fronts, interpolation and tables, against examples worked by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig

from pyramid_bert.errors import PyramidError, UnknownNameError
from pyramid_bert.lab.glue.tasks import TASKS
from pyramid_bert.lab.study.cell import counted
from pyramid_bert.lab.study.pareto import pareto_front, value_at
from pyramid_bert.lab.study.render import markdown, rich_table
from pyramid_bert.lab.study.spec import read_study
from pyramid_bert.lab.study.store import Store
from pyramid_bert.lab.study.table import MEAN, Result, best_coresets, collect, tabulate

# ---- fronts ----


def test_front_by_hand():
    points = [(1.0, 90.0), (1.5, 84.0), (2.0, 86.0), (2.0, 85.0), (3.0, 70.0), (2.5, 70.0), (4.0, 70.0)]
    assert pareto_front(points) == [(1.0, 90.0), (2.0, 86.0), (4.0, 70.0)]
    assert pareto_front([]) == []


def test_interpolation_by_hand():
    front = [(1.0, 90.0), (2.0, 86.0), (4.0, 70.0)]
    assert value_at(front, 1.5) == 88.0
    assert value_at(front, 2.0) == 86.0
    assert value_at(front, 3.0) == 78.0
    assert value_at(front, 4.0) == 70.0
    assert value_at(front, 4.01) is None
    assert value_at(front, 0.5) == 90.0
    assert value_at([], 1.0) is None


def test_a_better_and_faster_pyramid_takes_the_dense_model_off_the_front():
    front = pareto_front([(1.0, 80.0), (1.8, 82.0), (3.0, 70.0)])
    assert value_at(front, 1.5) == 82.0  # observed at 1.8x, which is fast enough


numbers = st.floats(0.5, 10, allow_nan=False)
observed = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12)


@given(observed)
def test_front_holds_observed_points_that_nobody_beats(points):
    front = pareto_front(points)
    assert set(front) <= set(points)
    speeds, values = [x for x, _ in front], [y for _, y in front]
    assert speeds == sorted(set(speeds))
    assert values == sorted(set(values), reverse=True)
    for x, y in points:
        assert any(fx >= x and fy >= y for fx, fy in front)
    for fx, fy in front:
        assert not any((x >= fx and y > fy) or (x > fx and y >= fy) for x, y in points)


@given(observed, numbers)
def test_never_outside_of_what_was_observed(points, x):
    value = value_at(pareto_front(points), x)
    assert (value is None) == (x > max(speed for speed, _ in points))
    if value is not None:
        assert min(y for _, y in points) - 1e-9 <= value <= max(y for _, y in points) + 1e-9
        best_that_fast = max(y for speed, y in points if speed >= x)
        assert value >= best_that_fast - 1e-9  # never worse than a point that is fast enough


# ---- tables ----


def results(task="rte", scale=1.0):
    rows = [("Dense", "", 1.0, (0.90, 0.80)), ("CS-1", "a", 2.0, (0.80, 0.70)), ("CS-1", "b", 3.0, (0.60, 0.70))]
    rows += [("Merge", "a", 2.0, (0.88, 0.80))]
    return [Result(task, m, c, seed, scale * v, x) for m, c, x, values in rows for seed, v in enumerate(values)]


def test_front_for_each_seed_then_mean_and_std():
    table = tabulate(results(), "ideal-c", {"rte": "RTE"}, [1.5, 2.5, 3.5])
    at = table.entries[1.5, "CS-1", "rte"]
    # seed 0: between 0.90 and 0.80; seed 1: b is as good as a and faster, so between (1, 0.80) and (3, 0.70)
    assert at.mean == pytest.approx((0.85 + 0.775) / 2)
    assert at.std == pytest.approx(0.075 / 2**0.5)
    assert at.seeds == 2
    assert table.entries[2.5, "CS-1", "rte"].mean == pytest.approx((0.70 + 0.725) / 2)
    assert table.entries[2.5, "Merge", "rte"] is None  # nothing was observed beyond 2x
    assert table.entries[3.5, "CS-1", "rte"] is None
    assert table.dense["rte"].mean == pytest.approx(0.85)


def test_mean_over_tasks_only_where_all_are_observed():
    both = [*results(), *results("sst2", scale=0.5)]
    titles = {"rte": "RTE", "sst2": "SST-2"}
    table = tabulate(both, "ideal-c", titles, [2.0])
    assert table.entries[2.0, "Merge", MEAN].mean == pytest.approx((0.84 + 0.42) / 2)
    assert table.entries[2.0, "Merge", MEAN].std == pytest.approx(0.06 / 2**0.5)
    assert table.dense[MEAN].mean == pytest.approx(0.85 * 0.75)
    without = [r for r in both if (r.task, r.method) != ("sst2", "Merge")]
    table = tabulate(without, "ideal-c", titles, [2.0])
    assert table.entries[2.0, "Merge", MEAN] is None
    assert table.entries[2.0, "Merge", "rte"] is not None


def test_cs_opt_takes_the_best_m_of_each_configuration_by_the_mean_over_seeds():
    rows = [
        ("CS-1", "a", (0.80, 0.60)),  # mean 0.70
        ("CS-k-1", "a", (0.75, 0.70)),  # mean 0.725: taken, though its first seed is worse
        ("CS-1", "b", (0.50, 0.50)),
        ("CS-k-1", "b", (0.40, 0.40)),
        ("Merge", "b", (0.99, 0.99)),  # no core-set method of the paper
    ]
    every = [Result("rte", m, c, seed, v, 2.0) for m, c, values in rows for seed, v in enumerate(values)]
    best = best_coresets(every)
    assert [(r.configuration, r.seed, r.value) for r in best] == [
        ("a", 0, 0.75),
        ("a", 1, 0.70),
        ("b", 0, 0.50),
        ("b", 1, 0.50),
    ]
    assert {r.method for r in best} == {"CS-opt"}
    assert best_coresets([r for r in every if r.method != "CS-k-1"]) == []  # one m is no choice


def test_rendering():
    table = tabulate(results(), "ideal-c", {"rte": "RTE"}, [2.0, 3.5])
    text = markdown("tiny", table)
    assert text.splitlines()[2:] == [
        "| at |  | RTE |",
        "|---|---|---:|",
        "|  | Dense | 85.0 ± 7.1 |",
        "| 2x | CS-1 | 77.5 ± 3.5 |",  # 0.80, and 0.75 halfway between 1x and 3x
        "|  | Merge | 84.0 ± 5.7 |",
        "| 3.5x | CS-1 | – |",
        "|  | Merge | – |",
    ]
    assert rich_table("tiny", table).row_count == 1 + 2 * 2
    space = tabulate(results(), "space", {"rte": "RTE"})
    assert "| 30 % | CS-1 |" in markdown("tiny", space)


# ---- from records ----


@pytest.fixture
def study():
    return read_study(
        {
            "name": "s",
            "tasks": ["rte"],
            "methods": ["Att"],
            "configurations": {"select": [{"keep_ratio": 0.5, "last_layer": 2}]},
            "measure": True,
        }
    )


def record(value, ideal):
    return {
        "status": "done",
        "value": value,
        "metrics": {"accuracy": value, "f1": value / 2, "matthews": None},
        "ideal": {"over_a": 4 * ideal, "over_c": ideal},
        "space": {"printed": 0.5, "attention_input": 0.4},
    }


def test_collecting_records_by_axis(study, tmp_path):
    dense, pyramid = cells = study.cells(TASKS)
    store = Store(tmp_path / "s.jsonl")
    assert collect(cells, store, "ideal-c", study.measure) == []
    store.write(dense.key, record(0.9, 1.0))
    store.write(pyramid.key, record(0.8, 2.0))
    speeds = {
        axis: [r.x for r in collect(cells, store, axis, study.measure)] for axis in ("ideal-c", "ideal-a", "space")
    }
    assert speeds == {"ideal-c": [1.0, 2.0], "ideal-a": [4.0, 8.0], "space": [0.4, 0.4]}
    assert [r.x for r in collect(cells, store, "space-printed", None)] == [0.5, 0.5]
    assert [r.x for r in collect(cells, store, "measured-c", study.measure)] == [None, None]
    measured = {"status": "done", "over_a": 7.0, "over_c": 1.9, "dense_over_a": 3.5}
    Store(tmp_path / "s.jsonl").write(pyramid.measurement(study.measure), measured)
    assert [r.x for r in collect(cells, store, "measured-a", study.measure)] == [3.5, 7.0]
    assert [r.x for r in collect(cells, store, "measured-c", study.measure)] == [1.0, 1.9]
    store.write(pyramid.key, {"status": "failed", "error": "it broke"})
    assert len(collect(cells, store, "ideal-c", study.measure)) == 1
    with pytest.raises(PyramidError, match="set measure = true"):
        collect(cells, store, "measured-c", None)
    with pytest.raises(UnknownNameError, match="did you mean 'ideal-c'"):
        collect(cells, store, "ideal-x", None)


def test_readings_of_space_agree_where_the_input_is_cut(tmp_path):
    cut_at_input = {"select": [{"keep_ratio": 0.5, "last_layer": 2}], "truncate": [{"keep_ratio": 0.5}]}
    settings = {"name": "s", "tasks": ["rte"], "methods": ["Att", "1st-I"], "configurations": cut_at_input}
    cells = {cell.method: cell for cell in read_study(settings).cells(TASKS)}
    sizes = BertConfig(num_hidden_layers=6, hidden_size=32, intermediate_size=64, num_attention_heads=4)
    space = {method: counted(cell, sizes, [10, 20])["space"] for method, cell in cells.items()}
    assert space["1st-I"]["printed"] == space["1st-I"]["attention_input"] > 0
    assert space["Att"]["printed"] > space["Att"]["attention_input"] > 0
    store = Store(tmp_path / "s.jsonl")
    for cell in cells.values():
        store.write(cell.key, record(0.9, 1.0))  # an old one, with readings that differ
    read = {r.method: r.x for r in collect(list(cells.values()), store, "space", None)}
    assert read == {"Dense": 0.4, "Att": 0.4, "1st-I": 0.5}


def test_tokens_that_are_replaced_save_no_space():
    variants = {"star": {"of": "CS-1", "reduce": "replace"}}
    select = {"select": [{"keep_ratio": 0.5, "last_layer": 2}]}
    settings = {"name": "s", "tasks": ["rte"], "methods": ["star"], "variants": variants, "configurations": select}
    _, star = read_study(settings).cells(TASKS)
    sizes = BertConfig(num_hidden_layers=6, hidden_size=32, intermediate_size=64, num_attention_heads=4)
    assert counted(star, sizes, [10])["space"] == {"printed": 0, "attention_input": 0}


def test_another_metric_than_the_tasks_own(study, tmp_path):
    dense, pyramid = cells = study.cells(TASKS)
    store = Store(tmp_path / "s.jsonl")
    store.write(dense.key, record(0.9, 1.0))
    store.write(pyramid.key, record(0.8, 2.0))
    values = {
        metric: [r.value for r in collect(cells, store, "ideal-c", None, metric)]
        for metric in (None, "accuracy", "f1", "matthews")
    }
    assert values == {None: [0.9, 0.8], "accuracy": [0.9, 0.8], "f1": [0.45, 0.4], "matthews": [0.0, 0.0]}
    with pytest.raises(PyramidError, match="rte has no spearman; it has accuracy, f1, matthews"):
        collect(cells, store, "ideal-c", None, "spearman")
    table = tabulate(collect(cells, store, "ideal-c", None, "f1"), "ideal-c", {"rte": "RTE"}, [2.0], "f1")
    assert table.to_dict()["metric"] == "f1"
    assert markdown("tiny", table).startswith("tiny: f1 by ideal speed-up over c")


def test_a_table_is_json():
    table = json.loads(json.dumps(tabulate(results(), "ideal-c", {"rte": "RTE"}, [2.0, 3.5]).to_dict()))
    assert {"at": 3.5, "method": "Merge", "task": "rte", "mean": None} in table["entries"]
    assert table["dense"]["rte"]["seeds"] == 2
