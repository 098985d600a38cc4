"""Speed measurements of a study with work that does nothing: what is left, how long it takes, and that it is alone."""

from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from pyramid_bert.errors import PyramidError
from pyramid_bert.lab.glue.tasks import TASKS
from pyramid_bert.lab.study.display import Display, status_of, status_table
from pyramid_bert.lab.study.measurements import Measurements
from pyramid_bert.lab.study.spec import read_study
from pyramid_bert.lab.study.store import Store, machine

CELLS = read_study(
    {
        "name": "s",
        "tasks": ["mrpc", "rte"],
        "methods": ["Att", "Rand"],
        "configurations": {"select": [{"keep_ratio": 0.5, "last_layer": 2}]},
        "seeds": [0, 1],
    }
).cells(TASKS)
PLAN = {"rows": 1, "batch_size": 1, "rounds": 1}


def measured(cell, bad=""):
    """A measurement's work."""
    if cell.name == bad:
        raise ValueError("it broke")
    return {"status": "done", "over_a": 2.0, "over_c": 1.5, "dense_over_a": 1.2, "seconds": {"total": 3.0}}


def test_measurements_run_once_each(tmp_path):
    measurements = Measurements(CELLS, PLAN, Store(tmp_path / "s.jsonl"))
    todo = measurements.left()
    assert list(todo.values()) == [cell for cell in CELLS if not cell.is_dense and cell.seed == 0]
    assert measurements.run(todo, measured).done == list(todo.values())
    assert measurements.left() == {}
    assert measurements.left(again=True) == todo


def test_a_resumed_measurement_counts_only_what_is_left_and_knows_how_long_it_takes(tmp_path):
    measurements = Measurements(CELLS, PLAN, Store(tmp_path / "s.jsonl"))
    assert measurements.pace().seconds(CELLS) is None
    todo = measurements.left()
    measurements.run(dict(list(todo.items())[:3]), measured)
    left = measurements.left()
    assert list(left) == list(todo)[3:]
    assert measurements.pace().seconds(left.values()) == pytest.approx(3.0)
    with Display(Console(file=StringIO()), list(left.values()), measurements.pace()) as display:
        measurements.run(left, measured, display)
        assert display.bar.finished
    assert display.left == {}


def test_failed_measurements_are_said_until_they_are_retried(tmp_path):
    measurements, bad = Measurements(CELLS, PLAN, Store(tmp_path / "s.jsonl")), CELLS[1]
    work = partial(measured, bad=bad.name)
    assert measurements.run(measurements.left(), work).failed == [bad]
    assert measurements.left() == {}
    assert measurements.run({}, work).failed == [bad]
    status = status_of(CELLS, Store(tmp_path / "s.jsonl"), PLAN)
    error = {"id": bad.id, "name": bad.name, "state": "not measured", "error": "ValueError: it broke"}
    assert status["measured"] == {"done": 3, "left": 0, "failed": [error]}
    assert "3 of 4 measured" in status_table("s", status).title
    assert list(measurements.left(retry=True).values()) == [bad]
    assert measurements.run(measurements.left(retry=True), measured).failed == []


def test_speeds_are_measured_alone(tmp_path):
    with (
        machine(tmp_path, alone=False),
        machine(tmp_path, alone=False),
        pytest.raises(PyramidError, match="speeds are measured alone: give the same command again"),
        machine(tmp_path, alone=True),
    ):
        pass
    for alone, message in ((True, "speeds are measured alone"), (False, "cells would slow them down")):
        with (
            machine(tmp_path, alone=True),
            pytest.raises(PyramidError, match=message),
            machine(tmp_path, alone=alone),
        ):
            pass
    with machine(tmp_path, alone=True):
        pass
