"""docs/lra-results.md from made-up records."""

import pytest

from pyramid_bert.lab.lra.presets import load_presets
from pyramid_bert.lab.pages import fill, lra
from pyramid_bert.lab.pages.commands import Commands
from pyramid_bert.lab.study.arena import STUDY_TASKS
from pyramid_bert.lab.study.spec import read_study


def records(value):
    """Records of two methods and the dense model, two seeds; `value` gives the accuracy of a cell."""
    spec = {"name": "s", "tasks": ["performer-cifar10", "bigbird-text"], "methods": ["CS-1", "Merge"], "seeds": [0, 1]}
    study = read_study({**spec, "start": "pretrained", "configurations": {"input": [{"keep_ratio": 0.5}]}})
    done = []
    for cell in study.cells(STUDY_TASKS):
        preset, kept = load_presets()[cell.task], 1025 if cell.is_dense else 513
        done.append(
            {
                "value": value(cell),
                "cell": cell.to_dict(),
                "preset": {"backbone": preset.backbone, "task": preset.task, "epochs": preset.epochs},
                "rows": {"train": 40, "dev": 20},
                "training": {"epochs": 2.0, "batch_size": 32, "learning_rate": 1e-3, "bf16": False},
                "tokens": 1025,
                "kept": kept,
                "attention": "linear",
                "space": preset.space_saved(kept, 1025),
            }
        )
    return done


@pytest.fixture
def rows_of(tmp_path, table_rows):
    """The rows of the page that records give: of the study, and of the one that trains for longer."""

    def rows(done, more=()):
        cells = {"lra-lite": list(done), "lra-longer": list(more)}
        found = Commands(tmp_path, "bench-lra")
        names = {**vars(lra), **lra.names(tmp_path), "cells": cells.get, "found": found}
        return table_rows(fill("lra-results.md", names))

    return rows


def test_the_page_shows_ours_beside_the_papers(rows_of):
    rows = rows_of(records(lambda cell: (0.4 if cell.method == "CS-1" else 0.3) + 0.02 * cell.seed))
    assert ["CS-1", "41.0 ± 1.4 (45.5)", "41.0 ± 1.4 (61.4)"] in rows
    assert ["Merge", "31.0 ± 1.4", "31.0 ± 1.4"] in rows
    assert ["Dense", "31.0 ± 1.4 (42.9)", "31.0 ± 1.4 (63.8)"] in rows
    assert ["Performer CIFAR-10", "513 of 1025", "linear", "72 %", "50 %"] in rows
    assert ["Performer CIFAR-10", *"40 20 2 32 0.001 fp32 6 2 200".split()] in rows


def test_the_gap_stands_beside_how_much_was_seen(rows_of):
    def gap(done):
        return [row[:-1] for row in rows_of(done) if len(row) == 7][1:]

    done = records(lambda cell: 0.4 if cell.is_dense else 0.9)
    assert gap(done) == [
        ["Performer CIFAR-10", "80", "0.00089 %", "40.0 ± 0.0", "42.9", "-2.9"],  # 40 rows, 2 of 200 passes
        ["BigBird IMDB", "80", "0.00051 %", "40.0 ± 0.0", "63.8", "-23.8"],
    ]
    assert gap([record for record in done if record["cell"]["schedule"]]) == []


def test_what_was_trained_for_longer(rows_of):
    done = records(lambda cell: 0.3)
    more = [
        {**record, "value": 0.45, "rows": {"train": 80, "dev": 20}}
        for record in done
        if (record["cell"]["task"], record["cell"]["seed"]) == ("performer-cifar10", 0)
        and record["cell"]["method"] != "Merge"
    ]
    rows = rows_of(done, more)
    first = rows.index(["", "rows seen in training", "Dense", "CS-1"])
    assert [row[1:] for row in rows[first + 1 : first + 4]] == [
        ["80", "30.0", "30.0"],
        ["160", "45.0", "45.0"],
        ["9,000,000", "42.9", "45.5"],
    ]


def test_what_was_found(rows_of):
    def found(value):
        return [row for row in rows_of(records(value)) if len(row) == 8][1:]

    values = {"CS-1": 0.9, "Merge": 0.3, "Dense": 0.85}
    (row,) = found(lambda cell: 0.5 if "text" in cell.task else values[cell.method])  # one model learned nothing
    assert row == ["Performer CIFAR-10", "50 %", "CS-1 90.0", "+5.0, +5.0", "–", "–", "–", "+60.0, +60.0 *"]
    assert len(found(lambda cell: values[cell.method])) == 2


def test_what_was_not_run_has_a_dash(rows_of):
    done = records(lambda cell: 0.5)
    some = [one for one in done if (one["cell"]["method"], one["cell"]["task"]) != ("CS-1", "bigbird-text")]
    assert ["CS-1", "50.0 ± 0.0 (45.5)", "–"] in rows_of(some)
    assert rows_of([]) == []


def test_the_papers_means():
    """The printed means of its two tables, of BigBird and of the Performer."""
    printed = {
        "70": {"1st": (46.8, 46.4), "Rand": (56.3, 53.2), "CS-k-1": (55.7, 53.7), "CS-1": (58.8, 58.7)},
        "30": {"1st": (56.6, 55.1), "Rand": (57.9, 57.4), "CS-k-1": (58.3, 57.2), "CS-1": (59.6, 59.5)},
    }
    for at, rows in printed.items():
        for method, means in rows.items():
            found = [sum(lra.PAPER[at][method][name].values()) / 3 for name in ("bigbird", "performer")]
            assert found == pytest.approx(means, abs=0.11), (at, method)
