"""Points lost at wanted speed-ups, against numbers worked by hand."""

import json

import pytest

from pyramid_bert.cli import main
from pyramid_bert.lab.pages import results
from pyramid_bert.lab.study.lost import lost_table, markdown_lost, rich_lost
from pyramid_bert.lab.study.runs import Run

DENSE = {"rte": (0.66, 0.64), "mrpc": (0.88, 0.88)}
# (method, configuration) -> speed-up over c, and task -> values by seed; None where the cell was not run.
DONE = {
    ("Taught", "2.5x"): (2.2, {"rte": (0.65, 0.63), "mrpc": (0.87, None)}),  # as asked for, though slower
    ("CS-1", "0.25@1-1"): (2.6, {"rte": (0.60, 0.62), "mrpc": (0.80, 0.90)}),
    ("CS-1", "0.3@1-1"): (2.8, {"rte": (0.66, 0.64), "mrpc": (0.88, 0.88)}),  # the other one is nearer
    ("CS-1", "0.5@1-1"): (1.2, {"rte": (0.66, 0.64), "mrpc": (0.88, 0.88)}),  # far from 1.5x
}
SELECT = "[{ keep_ratio = 0.5 }, { keep_ratio = 0.3 }, { keep_ratio = 0.25 }]".replace(" }", ", last_layer = 1 }")
PADDED = 2.0


def score(cell):
    if cell.is_dense:
        return DENSE[cell.task][cell.seed], 1.0, PADDED
    speed, values = DONE.get((cell.method, cell.configuration), (0.0, {}))
    value = values.get(cell.task, (None, None))[cell.seed]
    return None if value is None else (value, speed, PADDED * speed)


@pytest.fixture
def load(root, write_study):
    def write(name="prize-1", more="configurations.speed = [2.5, 1.5]", methods=("Taught", "CS-1"), **how):
        return write_study(root, name, methods=methods, select=SELECT, more=more, **{"score": score, **how})

    return write


def test_each_seed_is_compared_and_what_is_missing_is_told(load, table_rows):
    table = lost_table(load(), "ideal-c")
    head, *rows = table_rows(markdown_lost(table))
    assert head == ["at", "", "ideal over c", "RTE", "MRPC", "mean", "mean of"]
    assert rows == [
        ["1.5x", "Taught", "–", "–", "–", "–", "–"],
        # RTE: 6 and 2 points, MRPC: 8 and -2. All methods have both tasks with seed 0.
        ["2.5x", "CS-1 0.25@1-1", "2.60x", "4.0 (6.0, 2.0)", "3.0 (8.0, -2.0)", "7.0 (7.0, –)", "2 of 2 tasks, seed 0"],
        ["", "Taught", "2.20x", "1.0 (1.0, 1.0)", "1.0 (1.0, –)", "1.0 (1.0, –)", "2 of 2 tasks, seed 0"],
    ]
    assert "Cells done: CS-1 12 of 12, Taught 3 of 8." in markdown_lost(table)
    assert rich_lost(table).row_count == 3


def test_the_mean_is_over_the_tasks_that_every_method_has(load):
    def without_mrpc(cell):
        return None if (cell.method, cell.task) == ("Taught", "mrpc") else score(cell)

    rows = lost_table(load(score=without_mrpc), "ideal-c", [2.5]).rows
    assert [(row.tasks, row.seeds) for row in rows] == [(("rte",), (0, 1))] * 2
    assert rows[0].by_seed == {0: pytest.approx(-0.06), 1: pytest.approx(-0.02)}  # MRPC does not count
    found = rows[1].to_dict()
    assert found["changes"]["mrpc"] == {"mean": None, "by_seed": {}}
    assert found["mean_of"] == {"tasks": ["rte"], "seeds": [0, 1]}

    def nothing_in_common(cell):
        kept = {("Taught", 0), ("CS-1", 1)}
        return score(cell) if cell.is_dense or (cell.method, cell.seed) in kept else None

    rows = lost_table(load("prize-2", score=nothing_in_common), "ideal-c", [2.5]).rows
    assert [(row.tasks, row.seeds, row.by_seed) for row in rows] == [((), (), {})] * 2


def test_a_pyramid_is_compared_with_the_dense_model_that_it_was_made_of(load):
    run = load()

    def lost():
        fresh = Run(run.file, run.study, run.store)
        (row,) = (row for row in lost_table(fresh, "ideal-c", [2.5]).rows if row.method == "Taught")
        return {seed: round(100 * change, 6) for seed, change in row.changes["rte"].items()}

    cells = {(cell.method, cell.task, cell.seed): cell for cell in run.cells if cell.configuration in ("", "2.5x")}
    dense, pyramid = cells["Dense", "rte", 0], cells["Taught", "rte", 0]
    assert lost() == {0: -1.0, 1: -1.0}
    run.store.write(dense.key, {**run.store.read(dense.key), "value": 0.70})  # trained again, elsewhere
    assert lost() == {0: -5.0, 1: -1.0}  # older records do not say what they were made of
    record = {**run.store.read(pyramid.key), "metric": "accuracy", "dense": {"accuracy": 0.66, "matthews": None}}
    run.store.write(pyramid.key, record)
    assert lost() == {0: -1.0, 1: -1.0}
    changes = run.lost("ideal-c", [2.0]).entries[2.0, "Taught", "rte"]  # between dense, 0, and 2.2x
    assert changes.mean == pytest.approx(-0.01 / 1.2)


def test_measured_speeds_stand_beside_ideal_ones_and_can_be_asked_for(load, table_rows):
    run = load(more="measure = true", methods=["CS-1"])
    rows = {row.configuration: row for row in lost_table(run, "ideal-c", [2.5]).rows}
    assert rows["0.25@1-1"].speeds == {"ideal-c": pytest.approx(2.6), "measured-c": pytest.approx(2.4)}
    rows = lost_table(run, "measured-c", [1, 2.6]).rows  # 0.2 less than ideal
    assert [(row.at, row.configuration) for row in rows] == [(1, "0.5@1-1"), (2.6, "0.3@1-1")]
    for cell in run.cells:
        if cell.task == "mrpc" and cell.schedule is not None:
            run.store.write(cell.measurement(run.study.measure), {"status": "failed"})
    (row,) = lost_table(Run(run.file, run.study, run.store), "ideal-c", [2.5]).rows
    assert row.speeds["measured-c"] is None  # not known on all tasks
    assert "| – |" in markdown_lost(lost_table(Run(run.file, run.study, run.store), "ideal-c", [2.5]))


def test_the_command_and_the_page(load, root, capsys, monkeypatch):
    run = load()
    monkeypatch.chdir(root)
    assert main(["study", "table", run.file, "--lost", "--markdown"]) == 0
    printed = capsys.readouterr().out.strip()
    assert "| 2.5x | CS-1 0.25@1-1 |" in printed
    page = results.wanted(run)
    assert page == f"{printed}\n\n```sh\npyramid-bert study table {run.file} --lost --markdown\n```"
    assert main(["study", "table", run.file, "--lost", "--json", "--at", "2.5"]) == 0
    assert [row["at"] for row in json.loads(capsys.readouterr().out)["rows"]] == [2.5, 2.5]
    assert main(["study", "table", run.file, "--lost"]) == 0
    assert "Cells done:" in " ".join(capsys.readouterr().out.split())
    assert main(["study", "table", run.file, "--lost", "--axis", "space"]) == 2
    assert "--lost goes with speed-ups, got --axis space" in capsys.readouterr().err
    assert results.wanted(load("prize-2", more="", methods=["CS-1"])) == ""
