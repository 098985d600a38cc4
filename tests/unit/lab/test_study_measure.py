"""Speeds are measured of the pyramid that a cell trains, and counted as the cell counts them."""

import pytest
from transformers import AutoConfig

from pyramid_bert import PyramidConfig, Schedule
from pyramid_bert.errors import PyramidError
from pyramid_bert.lab.glue.tasks import TASKS
from pyramid_bert.lab.study import cell as cells_of
from pyramid_bert.lab.study.grid import measurements, settled
from pyramid_bert.lab.study.spec import read_study
from pyramid_bert.text.tables import Table

PLAN = {"rows": 6, "batch_size": 1, "rounds": 1}  # one row at a time: no pads, as ideal speed-ups are counted
FOUND = PyramidConfig(schedule=Schedule.exponential(0.6, 2), selector="cluster", metric="cosine", within=3, rest_from=3)
TEXTS = ["good " * length for length in (3, 8, 13, 21, 30, 34)]


def cells(name, seeds=(0,), **variant):
    """The cells of a method, or of a variant, on one task."""
    more = {"variants": {name: variant}} if variant else {}
    select, pool = [{"keep_ratio": 0.5, "last_layer": 2}], [{"window": 2, "at_layers": [2]}]
    spec = {"name": "s", "tasks": ["sst2"], "methods": [name], "seeds": list(seeds), **more}
    spec["configurations"] = {"select": select, "pool": pool, "speed": [1.5, 2]}
    return [cell for cell in read_study(spec).cells(TASKS) if not cell.is_dense]


@pytest.fixture
def measure(monkeypatch, tiny_model_dir):
    """Measures a cell on rows of known lengths."""
    table = Table(TEXTS, ["0", "1"] * 3, "rows")
    monkeypatch.setattr(cells_of, "tables", lambda cell, folder: (table, table))
    site = cells_of.Site(file="s.toml", model=str(tiny_model_dir), data=None, work="runs")
    return lambda cell, records=None: cells_of.run_measurement(cell, site, PLAN, records or {})


WHOLE = [{"keep_ratio": 1}]
METHODS = {
    "layers": {"of": "Merge+KD", "skip": [2, 3], "configurations": WHOLE},
    "last": {"of": "Merge+KD", "skip": [4], "configurations": WHOLE},  # layer 3 is the last that runs
    "both": {"of": "Merge+KD", "skip": [1], "rest_from": 3},
    "resting": {"of": "Merge+KD", "rest_from": 3},
    "Pool+KD": {},
    "Taught": {},
}


@pytest.mark.parametrize("name", METHODS)
def test_what_is_measured_is_the_pyramid_of_the_cell(measure, tiny_model_dir, name):
    cell = cells(name, **METHODS[name])[0]
    records = {cell.key: {"pyramid": FOUND.to_dict()}}
    pyramid = FOUND if name == "Taught" else cells_of.pyramid_config(cell)
    found = measure(cell, records)["ledger"]
    assert PyramidConfig.from_dict(found["settings"]) == pyramid
    config = AutoConfig.from_pretrained(tiny_model_dir)
    lengths = [len(text.split()) + 2 for text in TEXTS]
    ideal = cells_of.counted(cell, pyramid, config, lengths)["ideal"]["over_c"]
    assert found["entries"]["pyramid"]["ideal_over"]["sorted"] == pytest.approx(ideal)
    assert found["entries"]["pyramid"]["speedup_over"].keys() >= {"padded", "sorted"}
    passed = found["entries"]["pyramid"]["token_layers"]
    if "skip" in METHODS[name] and "rest_from" not in METHODS[name]:  # every layer that runs sees every token
        assert passed == sum(lengths) * (4 - len(pyramid.skip))


def test_a_measurement_belongs_to_the_pyramid_that_was_found(measure):
    first, second = (cell for cell in cells("Taught", seeds=(0, 1)) if cell.speedup == 2)
    other = FOUND.replace(schedule=Schedule.exponential(0.7, 2))
    records = {first.key: {"pyramid": FOUND.to_dict()}, second.key: {"pyramid": other.replace(seed=1).to_dict()}}
    wanted = measurements([first, second], records.get, PLAN)
    assert list(wanted.values()) == [first, second]  # by the names of the experiment, which --only takes
    assert list(wanted) == [settled(cell, records[cell.key]).measurement(PLAN) for cell in (first, second)]
    record = measure(second, records)
    assert record["ledger"]["settings"]["schedule"]["keep_ratio"] == 0.7
    assert f"--only '{second.id}'" in record["command"]
    records[second.key] = {"pyramid": FOUND.replace(seed=1).to_dict()}  # both seeds found the same one
    assert list(measurements([first, second], records.get, PLAN).values()) == [first]


def test_a_pyramid_that_is_not_known_is_not_measured(measure):
    cell = cells("Taught")[0]
    assert measurements([cell], {}.get, PLAN) == {}
    with pytest.raises(PyramidError, match=r"sst2 Taught 2x seed 0 is not done, so its pyramid is not known"):
        measure(cell)
