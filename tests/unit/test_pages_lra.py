"""docs/lra-results.md from made-up records."""

import tomllib

import pytest

from pyramid_bert.lab.lra.presets import load_presets
from pyramid_bert.lab.pages import lra, lra_steps
from pyramid_bert.lab.study.arena import STUDY_TASKS
from pyramid_bert.lab.study.spec import read_study


@pytest.fixture(scope="module")
def paper():
    return tomllib.loads(lra.PAPER.read_text(encoding="utf-8"))


def records(value):
    """Records of two methods and the dense model, two seeds; `value` gives the accuracy of a cell."""
    study = read_study(
        {
            "name": "s",
            "tasks": ["performer-cifar10", "bigbird-text"],
            "methods": ["CS-1", "Merge"],
            "start": "pretrained",
            "seeds": [0, 1],
            "configurations": {"input": [{"keep_ratio": 0.5}]},
        }
    )
    done = []
    for cell in study.cells(STUDY_TASKS):
        preset = load_presets()[cell.task]
        n, kept = (1025, 1025) if cell.is_dense else (1025, 513)
        done.append(
            (
                cell,
                {
                    "value": value(cell),
                    "cell": cell.to_dict(),
                    "preset": {"backbone": preset.backbone, "task": preset.task, "epochs": preset.epochs},
                    "rows": {"train": 40, "dev": 20},
                    "training": {"epochs": 2.0, "batch_size": 32, "learning_rate": 1e-3, "bf16": False},
                    "tokens": n,
                    "kept": kept,
                    "attention": "linear",
                    "space": preset.space_saved(kept, n),
                },
            )
        )
    return done


def test_the_page_shows_ours_beside_the_papers(paper, table_rows):
    done = records(lambda cell: (0.4 if cell.method == "CS-1" else 0.3) + 0.02 * cell.seed)
    rows = table_rows(lra.page(done, [], paper, ""))
    assert ["CS-1", "41.0 ± 1.4 (45.5)", "41.0 ± 1.4 (61.4)"] in rows
    assert ["Merge", "31.0 ± 1.4", "31.0 ± 1.4"] in rows
    assert ["Dense", "31.0 ± 1.4 (42.9)", "31.0 ± 1.4 (63.8)"] in rows
    assert ["Performer CIFAR-10", "513 of 1025", "linear", "72 %", "50 %"] in rows
    assert ["Performer CIFAR-10", *"40 20 2 32 0.001 fp32 6 2 200".split()] in rows


def test_the_gap_stands_beside_how_much_was_seen(paper, table_rows):
    _, performer, bigbird = table_rows(lra.gap(records(lambda cell: 0.4 if cell.is_dense else 0.9), paper))
    assert performer[:-1] == [
        "Performer CIFAR-10",
        "80",
        "0.00089 %",
        "40.0 ± 0.0",
        "42.9",
        "-2.9",
    ]  # 40 rows, 2 of 200
    assert bigbird[:-1] == ["BigBird IMDB", "80", "0.00051 %", "40.0 ± 0.0", "63.8", "-23.8"]
    pyramids = [(cell, record) for cell, record in records(lambda cell: 0.4) if not cell.is_dense]
    assert len(table_rows(lra.gap(pyramids, paper))) == 1


def test_what_was_trained_for_longer(paper, table_rows):
    more = [
        (cell, {**record, "value": 0.45, "rows": {"train": 80, "dev": 20}})
        for cell, record in records(lambda cell: 0.3)
        if (cell.task, cell.seed) == ("performer-cifar10", 0) and cell.method != "Merge"
    ]
    assert [row[-3:] for row in table_rows(lra.longer(records(lambda cell: 0.3), more, paper))] == [
        ["rows seen in training", "Dense", "CS-1"],
        ["80", "30.0", "30.0"],
        ["160", "45.0", "45.0"],
        ["9,000,000", "42.9", "45.5"],
    ]


def test_what_was_found(table_rows):
    values = {"CS-1": 0.9, "Merge": 0.3, "Dense": 0.85}
    _, row = table_rows(lra.findings(records(lambda cell: 0.5 if "text" in cell.task else values[cell.method])))
    assert row == ["Performer CIFAR-10", "50 %", "CS-1 90.0", "+5.0, +5.0", "–", "–", "–", "+60.0, +60.0 *"]
    assert len(table_rows(lra.findings(records(lambda cell: values[cell.method])))) == 3  # a model that learned nothing


def test_what_was_not_run_has_a_dash(paper, table_rows):
    done = [
        (cell, record)
        for cell, record in records(lambda cell: 0.5)
        if (cell.method, cell.task) != ("CS-1", "bigbird-text")
    ]
    assert ["CS-1", "50.0 ± 0.0 (45.5)", "–"] in table_rows(lra.page(done, [], paper, ""))
    assert table_rows(lra.page([], [], paper, "")) == []


def test_the_papers_means(paper):
    """The printed means of its two tables."""
    printed = {
        ("70", "1st"): (46.8, 46.4),
        ("70", "Rand"): (56.3, 53.2),
        ("70", "CS-k-1"): (55.7, 53.7),
        ("70", "CS-1"): (58.8, 58.7),
        ("30", "1st"): (56.6, 55.1),
        ("30", "Rand"): (57.9, 57.4),
        ("30", "CS-k-1"): (58.3, 57.2),
        ("30", "CS-1"): (59.6, 59.5),
    }
    for (at, method), means in printed.items():
        for backbone, expected in zip(("bigbird", "performer"), means, strict=True):
            scores = paper[at][method][backbone].values()
            assert sum(scores) / 3 == pytest.approx(expected, abs=0.11)


def test_a_step_is_shown_with_its_command(table_rows):
    command = lra_steps.COMMANDS["performer-cifar10-0.49"]
    one = {
        "command": command,
        "task": "cifar10",
        "backbone": "performer",
        "batch_size": 256,
        "kept": 503,
        "tokens": 1025,
        "steps_per_second": {"dense": 0.5, "pyramid": 1.0},
        "speedup": 2.0,
        "peak_bytes": {"dense": 2_000_000_000, "pyramid": 900_000_000},
        "memory_share": 0.45,
        "space": {"printed": 0.72},
        "selecting": 0.123,
        "settings": {"cls_only": False},
        "attention": "linear",
        "machine": {"cpu": "C", "capability": "AVX", "threads": 2, "torch": "2"},
    }
    text = lra_steps.section([one])
    _, row = table_rows(text)
    assert row[1:] == ["256", "503 of 1025", "2.00", "1.00", "2.00x", "2,000 → 900", "55%", "72%", "12.3%"]
    assert command in text
    both = lra_steps.section([one, {**one, "settings": {"cls_only": True}}])
    assert table_rows(both).count(row) == 2
