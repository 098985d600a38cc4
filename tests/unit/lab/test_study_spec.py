"""Experiments as data: what a file stands for, and what is refused."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pyramid_bert import PyramidConfig, Schedule
from pyramid_bert.errors import ExperimentError
from pyramid_bert.lab.glue.tasks import TASKS
from pyramid_bert.lab.study.cell import method_of, pyramid_config, train_settings
from pyramid_bert.lab.study.grid import measurements, schedule_name, settled, unfound
from pyramid_bert.lab.study.methods import METHODS
from pyramid_bert.lab.study.preflight import _check_fit, all_cells
from pyramid_bert.lab.study.spec import load_study, read_study
from pyramid_bert.tune.taught import METHOD

EXPERIMENTS = sorted((Path(__file__).parents[3] / "experiments").glob("*.toml"))
SELECT = [{"keep_ratio": 0.25, "last_layer": 3}, {"keep_ratio": 0.5, "first_layer": 2, "last_layer": 3}]
PLAN = {"rows": 8, "batch_size": 4, "rounds": 1}


def data(**changes):
    plain = {"name": "s", "tasks": {"rte": {}, "sst2": {"rows": 100}}, "methods": ["CS-1", "Merge"], "seeds": [0, 1]}
    return {**plain, "configurations": {"select": SELECT}, **changes}


def cells(**changes):
    return read_study(data(**changes)).cells(TASKS)


def pyramids(**changes):
    """The first cell of each method."""
    return list({cell.method: cell for cell in reversed(cells(**changes)) if not cell.is_dense}.values())[::-1]


def test_every_method_configuration_task_and_seed_in_an_order_that_serves_a_partial_run():
    every = cells()
    assert len(every) == 2 * 2 * (1 + 2 * 2)
    assert len({cell.id for cell in every}) == len({cell.key for cell in every}) == len(every)
    assert sum(cell.is_dense for cell in every) == 4
    assert [cell.seed for cell in every] == sorted(cell.seed for cell in every)
    first = [cell for cell in every if cell.seed == 0]
    assert [cell.task for cell in first] == ["sst2"] * 5 + ["rte"] * 5  # 100 rows are cheaper than all of RTE
    keys = [cell.key for cell in every]
    for cell in every:
        assert cell.dense is None or keys.index(cell.dense) < keys.index(cell.key)
    weights = [cell.weight for cell in first[1:5]]
    assert weights == sorted(weights)


def test_ids_depend_on_what_determines_the_result_and_on_nothing_else():
    one = next(cell for cell in cells() if cell.name == "sst2 CS-1 0.25@1-3 seed 1")
    assert one.id == "9e23be16be"  # must not change: results on disk are found by it
    assert one.key == "sst2_CS-1_0.25@1-3_s1_9e23be16be"
    rows = {"sst2": {"rows": 100}}
    same = cells(name="other", methods=["CS-1", "Att"], seeds=[1], pyramid={"temperature": 3}, tasks=rows)
    assert one.id in {cell.id for cell in same}
    assert one.id in {cell.id for cell in cells(pyramid={"epochs": 3})}  # the default, written out
    for changes in (
        {"model": "bert"},
        {"start": "pretrained"},
        {"selection": "inference"},
        {"pyramid": {"epochs": 2}},
        {"pyramid": {"bf16": True}},
        {"dense": {"epochs": 2}},  # it starts from there
        {"tasks": {"sst2": {"rows": 101}}},
        {"tasks": {"sst2": {"rows": 100, "max_length": 32}}},
        {"tasks": {"sst2": {"rows": 100, "pyramid": {"batch_size": 8}}}},
    ):
        assert one.id not in {cell.id for cell in cells(**changes)}, changes


def test_measurements_are_shared_by_cells_that_run_alike():
    every = [cell for cell in cells(methods=["Merge", "Merge+KD", "CS-1"]) if not cell.is_dense and cell.task == "rte"]
    assert len(every) == 2 * 3 * 2
    assert len({cell.measurement(PLAN) for cell in every}) == 2 * 2


def test_training_comes_from_the_task_the_study_and_the_tasks_own_table_in_this_order():
    dense, *others = cells(
        tasks={"rte": {"pyramid": {"epochs": 5}}},
        dense={"bf16": True},
        pyramid={"epochs": 2, "learning_rate": 1e-4, "temperature": 4, "bf16": False},
    )
    assert dense.training == {"epochs": 3.0, "batch_size": 16, "learning_rate": 2e-5, "bf16": True}
    assert others[0].training == {"epochs": 5.0, "batch_size": 16, "learning_rate": 1e-4, "bf16": False}
    assert (train_settings(dense).bf16, train_settings(others[0]).bf16) == (True, False)
    assert dense.id not in {cell.id for cell in cells(tasks=["rte"])}
    taught = cells(methods=["Merge+KD"], pyramid={"temperature": 4})[1]
    assert taught.training["temperature"] == 4
    assert taught.distills


def test_where_a_cell_starts_and_what_it_waits_for():
    for cell in cells(selection="inference", start="pretrained"):  # inference trains nothing but the dense model
        assert (cell.training is None) == (not cell.is_dense)
        assert cell.start == ("pretrained" if cell.is_dense else "dense")
    waits = {cell.method: cell.dense is not None for cell in cells(start="pretrained", methods=["Merge", "Merge+KD"])}
    assert waits == {"Dense": False, "Merge": False, "Merge+KD": True}  # for its teacher


def test_kinds_of_methods_get_their_own_configurations():
    select = [{"lengths": [8, 4], "n": 16}, {"random": 0}, {"random": 1}]
    both = {"pool": [{"window": 2, "at_layers": [2]}], "truncate": [{"keep_ratio": 0.5}]}
    every = cells(methods=["Att", "Pool", "1st-I"], configurations={"select": select, **both})
    found = {f"{cell.method} {cell.configuration}" for cell in every if not cell.is_dense}
    assert found == {"Att 8-4of16", "Att random0", "Att random1", "Pool w2@2", "1st-I 0.5@input"}


def test_a_variant_is_its_method_with_other_settings():
    variants = {
        "end": {"of": "CS-1", "placement": "end"},
        "soft": {"of": "Merge+KD", "metric": "cosine"},
        "near": {"of": "Merge", "selector": "cluster", "metric": "cosine", "within": 8},
    }
    found = {cell.method: cell for cell in pyramids(methods=["CS-1", *variants], variants=variants)}
    plain, end = found["CS-1"], found["end"]
    assert dict(end.settings) == {**plain.settings, "placement": "end"}
    assert [name for name, cell in found.items() if cell.distills] == ["soft"]
    assert len({cell.id for cell in found.values()}) == 4
    assert plain.measurement(PLAN) != end.measurement(PLAN)
    assert pyramid_config(end).placement == "end"
    config = pyramid_config(found["near"])
    assert (config.selector, config.reduce, config.within) == ("cluster", "merge", 8)


def test_a_variant_may_have_its_own_configurations_and_leave_layers_out():
    variants = {"fewer": {"of": "Merge+KD", "skip": [2, 5], "configurations": [{"keep_ratio": 1}]}}
    plain, *others = pyramids(methods=["CS-1"])
    assert [cell.id for cell in pyramids(methods=["CS-1", "fewer"], variants=variants) if cell.method == "CS-1"] == [
        cell.id for cell in (plain, *others)
    ]
    (fewer,) = pyramids(methods=["fewer"], variants=variants, configurations={})  # nothing is shared, or missing
    config = pyramid_config(fewer)
    assert (config.skip, config.schedule) == ((2, 5), Schedule.constant(1.0))
    wrong = {"fewer": {**variants["fewer"], "configurations": [{"keep_ratio": 2}]}}
    with pytest.raises(ExperimentError, match=r"variants\.fewer\.configurations, entry 1: keep_ratio must be in"):
        pyramids(methods=["fewer"], variants=wrong, configurations={})


def test_a_variant_may_learn_from_the_dense_model_in_its_own_way():
    variants = {"vectors": {"of": "Merge+KD", "hidden_weight": 1, "temperature": 4}}
    found = pyramids(methods=["Merge+KD", "vectors"], variants=variants, pyramid={"temperature": 3})
    plain, vectors = sorted(found, key=lambda cell: cell.method)
    assert plain.training["temperature"] == 3
    assert vectors.training == {**plain.training, "temperature": 4.0, "hidden_weight": 1.0}
    assert vectors.settings == plain.settings
    assert vectors.distills
    assert train_settings(vectors).hidden_weight == 1
    assert vectors.measurement(PLAN) == plain.measurement(PLAN)  # trained in another way, just as fast


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.kind != "speed"])
def test_every_method_makes_a_pyramid(name):
    method = METHODS[name]
    schedules = {"select": Schedule.exponential(0.5, 2), "pool": Schedule.strided(2, [1])}
    schedule = schedules.get(method.kind, Schedule.input_only(0.5))
    config = PyramidConfig(schedule=schedule, **method.settings)
    assert config.reduce == ("merge" if method.name.startswith("Merge") else "drop")
    if method.name.startswith("CS-"):
        assert config.centers_per_step == {"1": 1, "k-1": "all"}.get(method.name[3:]) or float(method.name[3:])


def test_methods_that_find_a_pyramid_take_speed_ups():
    every = cells(methods=["Taught", "Elastic"], configurations={"speed": [2.5, 1.5]}, tasks={"sst2": {}}, seeds=[0])
    found = {cell.name: cell for cell in every if not cell.is_dense}
    assert set(found) == {f"sst2 {method} {speed}x seed 0" for method in ("Taught", "Elastic") for speed in (1.5, 2.5)}
    taught, elastic = found["sst2 Taught 2.5x seed 0"], found["sst2 Elastic 2.5x seed 0"]
    assert (taught.schedule, taught.speedup, taught.together, elastic.together) == (None, 2.5, (), (1.5, 2.5))
    assert taught.dense == elastic.dense == every[0].key
    assert taught.weight < found["sst2 Taught 1.5x seed 0"].weight < every[0].weight
    assert measurements(every, {}.get, PLAN) == {}  # their pyramids are not known yet
    pyramid = PyramidConfig(schedule=Schedule.exponential(0.5, 3), selector="cluster", rest_from=4)
    known = settled(taught, {"pyramid": pyramid.to_dict()})
    assert (known.schedule, known.settings["rest_from"]) == (pyramid.schedule, 4)
    records = {cell.key: {"pyramid": pyramid.to_dict()} for cell in (taught, elastic)}
    assert measurements(every, records.get, PLAN) == {known.measurement(PLAN): taught}  # the first of those alike
    waiting = unfound(every, records.get)
    assert {cell.name for cell in waiting} == set(found) - {taught.name, elastic.name}
    assert settled(taught, None) is taught
    mine = {"methods": ["mine"], "configurations": {"speed": [2]}, "tasks": {"sst2": {}}}
    with pytest.raises(ExperimentError, match="unknown setting of mine 'placement'"):
        all_cells(read_study(data(**mine, variants={"mine": {"of": "Taught", "placement": "end"}})))
    (_, one) = all_cells(read_study(data(**mine, seeds=[0], variants={"mine": {"of": "Taught", "rest_from": 2}})))
    assert method_of(one) == replace(METHOD, rest_from=2)


def test_names_of_schedules():
    schedules = {
        "0.25@2-3": Schedule.exponential(0.25, 3, first_layer=2),
        "0.5@4-4+min3": Schedule.constant(0.5, first_layer=4, min_tokens=3),
        "0.5@1-2+floor": Schedule.exponential(0.5, 2, rounding="floor"),
        "9-5": Schedule.custom([9, 5]),
        "w3@1+4": Schedule.strided(3, [4, 1]),
    }
    assert {schedule_name(schedule): schedule for schedule in schedules.values()} == schedules


def test_everything_wrong_is_named_at_once():
    wrong = data(
        nmae="s",
        tasks={"sst2": {"row": 5, "rows": 1, "dense": {"epoch": 1}}},
        methods=["CS-l", "Pool", "1st-I", "1st-I"],
        configurations={"select": [{"keep_ratio": 2, "last_layer": 3}, {"keep_ration": 0.5}], "pool": [{"window": 2}]},
        seeds=[0, 0],
        start="dens",
        selection="inferense",
        pyramid={"epochs": "three"},
        measure={"round": 1},
    )
    with pytest.raises(ExperimentError) as caught:
        read_study(wrong)
    text = str(caught.value)
    for part in (
        "unknown key 'nmae'; did you mean 'name'?",
        "tasks.sst2: unknown key 'row'; did you mean 'rows'?",
        "tasks.sst2.rows must be a whole number of at least 2, got 1",
        "tasks.sst2.dense: unknown key 'epoch'; did you mean 'epochs'?",
        "unknown method 'CS-l'; did you mean 'CS-1'?",
        "methods names 1st-I twice",
        "configurations.select, entry 1: keep_ratio must be in (0, 1], got 2",
        "configurations.select, entry 2: unknown key 'keep_ration'; did you mean 'keep_ratio'?",
        "configurations.pool, entry 1: missing 1 required positional argument: 'at_layers'",
        "configurations.truncate is missing, and 1st-I takes its configurations from there",
        "seeds must be a list of different whole numbers of at least 0, got [0, 0]",
        "unknown start 'dens'; did you mean 'dense'?",
        "unknown selection 'inferense'; did you mean 'inference'?",
        "pyramid.epochs must be a number, got 'three'",
        "measure: unknown key 'round'; did you mean 'rounds'?",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": []}, "tasks must be a list of at least one name"),
        ({"tasks": {}}, "tasks is empty"),
        ({"tasks": {"rte": 5}}, "tasks.rte must be a table"),
        ({"name": "a/b"}, "name must be a word that can name a file, got 'a/b'"),
        ({"methods": ["Merge+KD"], "selection": "inference"}, "Merge+KD cannot learn"),
        ({"configurations": [SELECT]}, "configurations must be a table with select, pool, truncate"),
        ({"configurations": {"select": SELECT + SELECT[:1]}}, "entry 3 is there twice"),
        ({"configurations": {"select": [0.5]}}, "must be a list of tables"),
        ({"methods": ["Taught"]}, "configurations.speed is missing, and Taught takes speed-ups from there"),
        ({"configurations": {"speed": [0.5]}}, "configurations.speed must be a list of different speed-ups above 1"),
        ({"configurations": {"speed": [2, 2]}}, "configurations.speed must be a list of different speed-ups above 1"),
        ({"methods": ["Elastic"], "configurations": {"speed": [2]}}, "Elastic is trained for several; give more"),
        ({"measure": 3}, "measure must be true, false or a table with rows, batch_size, rounds, got 3"),
        ({"seeds": [-1]}, "seeds must be a list of different whole numbers of at least 0, got [-1]"),
        ({"model": 1}, "model must be a folder or a name on the hub, got 1"),
        ({"dense": 3}, "dense must be a table"),
        ({"dense": {"bf16": 1}}, "dense.bf16 must be true or false, got 1"),
        ({"pyramid": {"bf16": "yes"}}, "pyramid.bf16 must be true or false, got 'yes'"),
        ({"pyramid": {"epochs": True}}, "pyramid.epochs must be a number, got True"),
        ({"variants": 3}, "variants must be a table, got 3"),
        ({"variants": {"end": {"placement": "end"}}}, "variants.end must name a method and change it"),
        ({"variants": {"end": {"of": "CS-1"}}}, "variants.end must name a method and change it"),
        ({"variants": {"CS-1": {"of": "Att", "metric": "cosine"}}}, "variants.CS-1: a variant needs a new name"),
        ({"variants": {"a/b": {"of": "Att", "metric": "cosine"}}}, "variants.a/b: a variant needs a new name"),
        ({"variants": {"end": {"of": "CS1", "metric": "cosine"}}}, "variants.end: unknown method 'CS1'; did you"),
        ({"variants": {"end": {"of": "CS-1", "place": "end"}}}, "variants.end: unknown key 'place'"),
        ({"variants": {"end": {"of": "CS-1", "placement": "end"}}}, "variants.end is not in methods"),
        (
            {"variants": {"soft": {"of": "Merge", "temperature": 4}}},
            "only methods that learn from the dense model (Merge+KD, Pool+KD, Taught, Elastic) take temperature",
        ),
        ({"variants": {"a": {"of": "Pool+KD", "temperature": ""}}}, "variants.a.temperature must be a number, got ''"),
        ({"configurations": {"select": [{"random": 0, "keep_ratio": 0.5}]}}, "unexpected keyword argument"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(ExperimentError, match=re.escape(message)):
        read_study(data(**changes))


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.toml", "no experiment file at"), ("", "is a folder"), ("binary.toml", "is not a TOML file")],
)
def test_files_that_cannot_be_read(tmp_path, name, message):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ExperimentError, match=message):
        load_study(tmp_path / name)


def test_the_file_names_the_study(tmp_path):
    select = "configurations.select = [{ keep_ratio = 0.5, last_layer = 2 }]"
    (tmp_path / "mine.toml").write_text(f'tasks = ["rte"]\nmethods = ["1st"]\nmeasure = true\n{select}')
    study = load_study(tmp_path / "mine.toml")
    assert study.name == "mine"
    assert study.measure == {"rows": 128, "batch_size": 32, "rounds": 3}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_shipped_experiments_fit_their_models(path):
    """MiniLM's six layers, or twelve of those for e5-small."""
    study, layers = load_study(path), 12 if path.stem.endswith("-e5") else 6
    assert study.name == path.stem
    assert study.model is None
    for cell in all_cells(study):
        if cell.schedule is not None:
            cell.schedule.check(layers)


@pytest.mark.parametrize(("rest_from", "message"), [(3, "reduces up to layer 3"), (30, "rest_from must be in 1-6")])
def test_what_does_not_fit_a_model_is_told_before_anything_runs(rest_from, message):
    class Sizes:
        model_type, num_hidden_layers, max_position_embeddings = "bert", 6, 512

    def resting(layer):
        return cells(methods=["resting"], variants={"resting": {"of": "CS-1", "rest_from": layer}})

    _check_fit(resting(5), "m", Sizes)
    with pytest.raises(ExperimentError, match=message):
        _check_fit(resting(rest_from), "m", Sizes)


def test_reading_an_experiment_needs_no_torch():
    code = (
        "import sys; sys.argv = ['pyramid-bert']\n"
        "from pyramid_bert.lab.study import load_study\n"
        f"load_study({str(EXPERIMENTS[0])!r})\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_a_study_measures_no_sensitivity():
    felt = data(methods=["felt"], variants={"felt": {"of": "CS-1", "metric": "sensitivity"}})
    with pytest.raises(ExperimentError, match=r"felt 0\.25@1-3: metric='sensitivity' is measured on a classifier that"):
        all_cells(read_study(felt))
