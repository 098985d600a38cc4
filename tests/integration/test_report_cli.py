"""`pyramid-bert report` as a user calls it."""

import json

import pytest

from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.cli import main

TEXTS = ["--texts", "texts.csv", "--text-column", "sentence", "--figures", "figures"]


@pytest.fixture
def folders(tmp_path, write_study, monkeypatch):
    """A study of two tasks, a file of texts, and the rows of one task in data/."""
    write_study(tmp_path, "any")
    (tmp_path / "texts.csv").write_text("sentence\nthe film is good\na sad story\n")
    (tmp_path / "data" / "rte").mkdir(parents=True)
    rows = ["sentence\tsentence2\tlabel", "a film\tit is good\tentailment", "a story\tit is sad\tnot_entailment"]
    (tmp_path / "data" / "rte" / "dev.tsv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_report_of_results_only(folders, capsys):
    assert main(["report"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "report.html" in captured.err
    page = (folders / "report.html").read_text()
    assert "pyramid-bert report --results results --model DIR --out report.html" in page


def test_a_report_with_a_model_texts_tasks_and_files(folders, capsys, tiny_model_dir):
    options = ["--model", str(tiny_model_dir), *TEXTS, "--examples", "1", "--data", "data", "--json"]
    assert main(["report", *options]) == 0
    captured = capsys.readouterr()
    assert "no data of MRPC in data" in captured.err  # a task without data is left out
    made = json.loads(captured.out)
    assert made["page"] == "report.html"
    assert made["bytes"] == (folders / "report.html").stat().st_size
    names = {path.name for path in (folders / "figures").iterdir()}
    assert {f"figures/{name}" for name in names} == set(made["figures"])
    keys = ("cls-similarity", "clusters", "lengths", "schedule", "radius", "tokens-1", "pareto-any")
    assert names == {f"{key}.{suffix}" for key in keys for suffix in ("png", "svg")}
    page = (folders / "report.html").read_text()
    assert '"text": "the film is good"' in page
    assert '"text": "a sad story"' not in page  # looked at, but not explained
    assert "these texts" in page
    assert "RTE" in (folders / "figures" / "lengths.svg").read_text()


def test_a_model_of_clusters_has_no_radius_to_show(folders, tiny_model_dir):
    PyramidClassifier.from_pretrained(tiny_model_dir, Schedule.exponential(0.5, 2), selector="cluster").save("clusters")
    assert main(["report", "--model", "clusters", *TEXTS]) == 0
    assert not (folders / "figures" / "radius.png").exists()


def test_a_folder_without_data_of_any_task_is_refused(folders, capsys, tiny_model_dir):
    assert main(["report", "--model", str(tiny_model_dir), "--data", "."]) == 1
    assert "no data of RTE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--texts", "t.txt"], 2, "--texts needs a model"),
        (["--data", "glue"], 2, "--data needs a model"),
        (["--examples", "0"], 2, "--examples must be at least 1, got 0"),
        (["--max-texts", "-1"], 2, "--max-texts must be at least 1, got -1"),
        (["--results", "nowhere"], 1, "there is no folder nowhere"),
        (["--out", "results"], 1, "it is a folder; name a file"),
        (["--model", "nowhere/at/all"], 1, "no model folder at nowhere/at/all"),
    ],
)
def test_mistakes_get_a_message_and_leave_no_page(folders, capsys, options, code, message):
    assert main(["report", *options]) == code
    assert message in capsys.readouterr().err
    assert not (folders / "report.html").exists()
