"""Studies as a user runs them: a tiny model on tiny tasks, through the command line, killed and resumed."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyramid_bert import PyramidClassifier
from pyramid_bert.cli import main
from pyramid_bert.lab.study.cell import SAMPLE_SEED
from pyramid_bert.lab.study.runs import all_runs
from pyramid_bert.lab.study.store import Store, machine
from pyramid_bert.text.sampling import shuffled

SPEC = """
methods = ["CS-1", "Merge", "Merge+KD", "Rand", "1st-I", "Pool"]
seeds = [0, 1]
measure = { rows = 8, batch_size = 4, rounds = 1 }
dense = { epochs = 2, batch_size = 16, learning_rate = 2e-3 }
pyramid = { epochs = 1, batch_size = 16, learning_rate = 2e-3 }
[tasks.sst2]
rows = 48
[configurations]
select = [{ keep_ratio = 0.5, last_layer = 2 }, { keep_ratio = 0.3, last_layer = 2 }]
pool = [{ window = 2, at_layers = [2] }]
truncate = [{ keep_ratio = 0.5 }]
"""
CELLS = 2 * (1 + 4 * 2 + 1 + 1)
DONE = "done sst2"


@pytest.fixture(scope="session")
def glue_dir(sentiment, tmp_path_factory):
    """sst2/train.tsv and sst2/dev.tsv."""
    folder = tmp_path_factory.mktemp("glue")
    (folder / "sst2").mkdir()
    for name, rows, seed in (("train", 64, 0), ("dev", 24, 1)):
        lines = [f"{text}\t{int(label == 'pos')}" for text, label in zip(*sentiment(rows, seed), strict=True)]
        (folder / "sst2" / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return folder


@pytest.fixture
def other_rows(glue_dir, tmp_path):
    """Copies the data and changes some words in files of it."""

    def copy(*files):
        for file in shutil.copytree(glue_dir, tmp_path / "glue").glob("sst2/*.tsv"):
            if file.name in files:
                file.write_text(file.read_text().replace("film", "movie"))
        return tmp_path / "glue"

    return copy


@pytest.fixture
def study(tmp_path, monkeypatch, glue_dir, learner_dir):
    """Runs `pyramid-bert study ACTION tiny.toml ...` in a new folder that holds the experiment."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(SPEC)

    def run(action, *words, file="tiny.toml"):
        places = ["--data", str(glue_dir), "--model", str(learner_dir)] if action == "run" else []
        return main(["study", action, file, *places, *map(str, words)])

    return run


def records(name="tiny", folder="results", measured=False):
    """The records of cells, or of measurements."""
    found = Store.of(folder, name).records
    return {key: record for key, record in found.items() if key != "study" and ("ledger" in record) == measured}


def by_name():
    return {record["name"]: record for record in records().values()}


def dense_folders():
    return sorted(Path("runs/dense").glob("*/sst2*"))


@pytest.fixture
def trained(monkeypatch):
    """What was trained in this process, one word each."""
    words, fit = [], PyramidClassifier.fit

    def noted(self, *arguments, **settings):
        words.append("dense" if self.settings is None else "pyramid")
        return fit(self, *arguments, **settings)

    monkeypatch.setattr(PyramidClassifier, "fit", noted)
    return words


def test_one_cell_and_the_dense_one_it_starts_from(study, capsys):
    name = "sst2 Merge 0.5@1-2 seed 1"
    assert study("run", "--only", name) == 0
    found = by_name()
    assert set(found) == {"sst2 Dense seed 1", name}
    dense, merge = found["sst2 Dense seed 1"], found[name]
    assert merge["metrics"]["accuracy"] == merge["value"]
    assert (merge["metric"], dense["ideal"]["over_c"]) == ("accuracy", 1)
    assert dense["space"] == {"printed": 0, "attention_input": 0}
    assert merge["dense"] == dense["metrics"]
    assert "dense" not in dense
    assert merge["ideal"]["over_a"] > merge["ideal"]["over_c"] > 1  # texts are far shorter than N = 64
    assert merge["ideal"]["over_a"] / merge["ideal"]["over_c"] == pytest.approx(dense["ideal"]["over_a"])
    assert merge["space"]["printed"] > merge["space"]["attention_input"] > 0
    assert merge["rows"] == {"train": 48, "dev": 24}
    assert (merge["training"]["epochs"], merge["pyramid"]["reduce"]) == (1, "merge")
    assert merge["training"]["seed"] == merge["pyramid"]["seed"] == 1
    assert merge["seconds"]["train"] > 0
    assert merge["command"] == f"pyramid-bert study run tiny.toml --only {merge['id']} --again --model DIR --data DIR"
    assert {"cpu", "torch", "python", "pyramid_bert"} <= set(merge["machine"])
    assert len(merge["data"]["train"]) == len(merge["weights"]) == 64
    assert DONE in capsys.readouterr().err
    (kept,) = dense_folders()
    assert (kept / "model.safetensors").exists()
    assert json.loads((kept / "record.json").read_text()) == dense
    file = Path("results/tiny.jsonl")
    before = file.read_bytes()
    assert study("run", "--only", name) == 0
    assert file.read_bytes() == before
    assert "nothing is left to run" in capsys.readouterr().err
    assert study("run", "--only", merge["id"], "--again") == 0
    again = by_name()
    assert again[name]["value"] == merge["value"]
    assert again[name]["finished"] >= merge["finished"]
    assert file.read_bytes().startswith(before)
    assert again["sst2 Dense seed 1"] == dense


def test_killed_and_resumed_with_two_processes_then_measured_and_tabulated(study, capsys, glue_dir, learner_dir):
    command = [sys.executable, "-m", "pyramid_bert", "study", "run", "tiny.toml", "--data", glue_dir]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "--model", learner_dir], stderr=subprocess.DEVNULL, env=environment)
    end = time.monotonic() + 120
    while len(records()) < 3:
        assert time.monotonic() < end, "nothing happened for two minutes"
        time.sleep(0.02)
    process.kill()
    process.wait()
    first = records()
    assert 3 <= len(first) < CELLS
    assert all(record["status"] == "done" for record in first.values())

    assert study("run", "--jobs", 2) == 0
    every = records()
    assert len(every) == CELLS
    assert {key: every[key] for key in first} == first  # what was done was not done again
    assert all(record["cell"]["distills"] == ("KD" in record["name"]) for record in every.values())
    assert len(by_name()) == CELLS
    made = [record for key, record in every.items() if key not in first and record["cell"]["method"] != "Dense"]
    assert all(record["command"].endswith(f" --threads {record['machine']['threads']}") for record in made)
    assert capsys.readouterr().err.count(DONE) == CELLS - len(first)

    assert study("status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert status["total"] == {"done": CELLS, "failed": 0, "running": 0, "left": 0}
    assert status["seconds_left"] == 0
    assert status["measured"] == {"done": 0, "left": 8, "waiting": 0, "failed": []}
    assert "cells" not in status

    assert study("table", "--axis", "measured-c") == 0
    assert "Merge" in capsys.readouterr().out
    assert study("run", "--measure", "--threads", 1) == 0
    speeds = records(measured=True).values()
    assert len(speeds) == 3 * 2 + 1 + 1
    assert all(record["seconds"]["total"] > 0 and record["machine"]["threads"] == 1 for record in speeds)
    assert all(record["command"].endswith(" --again --model DIR --data DIR --threads 1") for record in speeds)
    capsys.readouterr()
    assert study("run", "--measure") == 0
    assert "nothing is left to measure" in capsys.readouterr().err
    assert study("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["measured"] == {"done": 8, "left": 0, "waiting": 0, "failed": []}
    capsys.readouterr()
    for axis in ("ideal-c", "ideal-a", "measured-a", "measured-c", "space", "space-printed"):
        at = "0.1" if axis.startswith("space") else "0.01,99"
        assert study("table", "--axis", axis, "--at", at, "--json") == 0
        entries = json.loads(capsys.readouterr().out)["entries"]
        assert {entry["method"] for entry in entries} == {"CS-1", "Merge", "Merge+KD", "Rand", "1st-I", "Pool"}
        assert all(entry["seeds"] == 2 for entry in entries if entry["at"] != 99)
        assert all(entry["mean"] is None for entry in entries if entry["at"] == 99)
    assert study("table", "--metric", "f1", "--json") == 0
    f1 = json.loads(capsys.readouterr().out)["dense"]["sst2"]["mean"]
    dense = [record["metrics"]["f1"] for record in every.values() if record["cell"]["method"] == "Dense"]
    assert f1 == pytest.approx(sum(dense) / 2)
    assert study("table", "--markdown") == 0
    assert "| 1.5x | CS-1 |" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    assert study("plot", "--out", "picture.png") == 0
    assert capsys.readouterr().out.split() == ["picture.png", "picture.svg"]
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")


def test_cells_that_are_not_done_can_be_found_and_run_by_their_id(study, capsys):
    assert study("status", "--cells", "--only", "*Merge 0.5*", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert [cell["name"] for cell in status["cells"]] == [f"sst2 Merge 0.5@1-2 seed {seed}" for seed in (0, 1)]
    assert status["total"]["left"] == 2
    first = status["cells"][0]
    assert study("run", "--only", first["id"], "--limit-minutes", 0) == 0
    assert "tiny: 0 done, 2 left" in capsys.readouterr().err  # the cell, and the dense one
    assert study("status", "--cells") == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"left {first['id']} {first['name']}" in lines
    assert sum(line.startswith("left ") for line in lines) == CELLS


SPEEDS = """
methods = ["Taught", "Elastic"]
measure = { rows = 8, batch_size = 4, rounds = 1 }
dense = { epochs = 1, batch_size = 16, learning_rate = 2e-3 }
pyramid = { epochs = 0.2, batch_size = 16, learning_rate = 2e-3, dropout = 0, distill_weight = 0.9 }
tasks = ["sst2"]
configurations.speed = [1.5, 2]
"""


def test_pyramids_found_for_a_speed_and_one_elastic_model_for_all(study, capsys, trained, sentiment, tmp_path):
    (tmp_path / "glue" / "sst2").mkdir(parents=True)
    for name, rows in (("train", 240), ("dev", 24)):
        lines = [f"{text}\t{int(label == 'pos')}" for text, label in zip(*sentiment(rows, rows), strict=True)]
        (tmp_path / "glue" / "sst2" / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    Path("tiny.toml").write_text(SPEEDS)
    data = ["--data", tmp_path / "glue"]
    first = "sst2 Taught 2x seed 0"
    assert study("run", "--only", first, *data) == 0
    capsys.readouterr()
    assert study("run", "--measure", *data) == 0
    assert "its cell is done: 3 cells (sst2 " in " ".join(capsys.readouterr().err.split())
    (speed,) = records(measured=True).values()
    taught = by_name()[first]
    assert speed["ledger"]["settings"] == taught["pyramid"]
    assert f"--only '{taught['id']}'" in speed["command"]
    assert study("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["measured"] == {"done": 1, "left": 0, "waiting": 3, "failed": []}
    assert study("run", *data) == 0
    assert trained == ["dense", "pyramid", "pyramid", "pyramid"]  # two taught, one elastic
    found = by_name()
    for speed in (1.5, 2):
        for method in ("Taught", "Elastic"):
            one = found[f"sst2 {method} {speed}x seed 0"]
            assert one["ideal"]["over_c"] > 0.9 * speed
            assert one["pyramid"]["rest_from"]
            assert one["dense"] == found["sst2 Dense seed 0"]["metrics"]
    seconds = [found[f"sst2 Elastic {speed}x seed 0"]["seconds"]["train"] for speed in (1.5, 2)]
    assert sorted(seconds)[0] == 0 < sorted(seconds)[1]  # trained once
    assert study("run", "--measure", *data) == 0
    assert len(records(measured=True)) in (2, 3, 4)  # pyramids that are alike are measured once
    assert study("run", "--measure", "--only", taught["id"], "--again", *data) == 0  # as the record's command says
    assert "measured sst2 Taught 2x seed 0" in capsys.readouterr().err
    speeds = {key: record["over_c"] for key, record in records(measured=True).items()}
    assert study("table", "--axis", "measured-c", "--at", "0.01", "--json") == 0
    table = json.loads(capsys.readouterr().out)
    assert {entry["method"] for entry in table["entries"] if entry["mean"] is not None} == {"Taught", "Elastic"}
    (run,) = all_runs(tmp_path, tmp_path / "results")
    assert {result.x for result in run.results("measured-c") if result.method != "Dense"} == set(speeds.values())
    (file,) = Path("runs/dense").glob("*/sst2_Dense*/record.json")
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "metrics": {"accuracy": 0.125}}))  # as if it were trained again
    assert study("run", "--only", "*2x*", "--again", *data) == 0
    again = by_name()
    assert again["sst2 Taught 2x seed 0"]["dense"] == {"accuracy": 0.125}
    assert again["sst2 Elastic 2x seed 0"]["dense"] == kept["metrics"]  # of the earlier dense model
    assert study("run", "--only", "*Taught*", "--again") == 1  # the other folder has 64 rows
    assert "needs at least 200 texts, got 64" in capsys.readouterr().err


def test_cells_and_measurements_keep_apart(study, capsys):
    with machine("runs", alone=True):
        assert study("run", "--only", "sst2 Dense seed 0") == 1
    assert "speeds are being measured with the work folder runs" in capsys.readouterr().err
    with machine("runs", alone=False):
        assert study("run", "--measure") == 1
    assert "speeds are measured alone" in capsys.readouterr().err
    assert not records()


def test_a_sample_with_one_class_is_named_by_its_file(study, capsys, other_rows):
    folder = other_rows()
    file = folder / "sst2" / "train.tsv"
    head, *rows = file.read_text().splitlines()
    left_out = shuffled(len(rows), SAMPLE_SEED)[-1]
    rows = [f"{row[:-1]}{int(number != left_out)}" for number, row in enumerate(rows)]
    file.write_text("\n".join([head, *rows]) + "\n")
    assert study("run", "--data", folder) == 1
    assert f"all labels are 1, from {file}, row " in capsys.readouterr().err


def test_a_study_on_a_cluster(study):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'pyramid-bert[ray]'")
    assert study("run", "--ray", "local", "--only", "sst2 Rand 0.5@1-2 seed 0") == 0
    found = by_name()
    assert set(found) == {"sst2 Dense seed 0", "sst2 Rand 0.5@1-2 seed 0"}
    for record in found.values():
        assert record["status"] == "done"
        assert record["machine"]["threads"] == 1
        assert record["command"].endswith(" --threads 1")
    assert len(dense_folders()) == 1


@pytest.mark.parametrize(
    ("setting", "trained_cells"),
    [('selection = "inference"', ["dense"]), ('start = "pretrained"', ["pyramid", "pyramid"])],
)
def test_the_dense_model_is_trained_only_if_needed_and_pyramids_only_if_wanted(study, trained, setting, trained_cells):
    text = SPEC.replace("seeds = [0, 1]", setting).replace('"Merge+KD", ', "")
    Path("tiny.toml").write_text(text)
    assert study("run", "--only", "*CS-1*") == 0
    assert trained == trained_cells
    for record in (record for record in records().values() if record["cell"]["method"] == "CS-1"):
        assert (record["training"] is None) == (record["seconds"]["train"] == 0) == ("pyramid" not in trained)
    assert ("Dense" in {record["cell"]["method"] for record in records().values()}) == ("dense" in trained)


def test_studies_share_their_dense_classifiers(study, trained):
    Path("other.toml").write_text(SPEC.replace('"CS-1", "Merge", ', '"Att", '))
    one = "sst2 Dense seed 0"
    assert study("run", "--only", one) == 0
    assert study("run", "--only", "sst2 Att 0.5@1-2 seed 0", file="other.toml") == 0
    assert trained == ["dense", "pyramid"]
    (key, record), *others = records().items()
    assert others == []
    assert records("other")[key] == record
    assert " tiny.toml " in record["command"]

    assert study("run", "--only", one, "--again", file="other.toml") == 0
    assert trained == ["dense", "pyramid", "dense"]
    again = records("other")[key]
    assert " other.toml " in again["command"]
    assert again["value"] == record["value"]
    assert records() == {key: record}

    (folder,) = dense_folders()
    shutil.rmtree(folder)  # it is needed, and nobody has it
    assert study("run", "--only", "sst2 Rand 0.5@1-2 seed 0") == 0
    assert trained[3:] == ["dense", "pyramid"]
    assert dense_folders() == [folder]


@pytest.mark.parametrize("other", ["model", "train.tsv", "dev.tsv"])
def test_other_weights_or_rows_share_no_results_and_no_dense_classifier(
    study, trained, capsys, tiny_model_dir, other_rows, other
):
    only = ["--only", "sst2 Dense seed 0"]
    assert study("run", *only) == 0
    change = ["--model", tiny_model_dir] if other == "model" else ["--data", other_rows(other)]
    assert study("run", *change) == 1
    assert ("were made with another model" if other == "model" else "other rows of sst2") in capsys.readouterr().err
    assert study("run", *only, *change, "--results", "elsewhere") == 0
    assert trained == ["dense", "dense"]
    assert len(dense_folders()) == (1 if other == "dev.tsv" else 2)  # dev rows change no weight
    (first,), (second,) = records().values(), records(folder="elsewhere").values()
    assert (first["weights"], first["data"]) != (second["weights"], second["data"])
    assert study("run", *only, "--results", "third", *change) == 0
    assert trained == ["dense", "dense"]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("methods = [", "methods = ["), 1, "no such folder: nowhere"),
        (("seeds", "seeds ="), 2, "is not a TOML file"),
        (('"CS-1"', '"CS-l"'), 2, "unknown method 'CS-l'; did you mean 'CS-1'?"),
        (("tasks.sst2", "tasks.sst3"), 2, "unknown task 'sst3'; did you mean 'sst2'?"),
        (("0.3, last_layer = 2", "0.3, last_layer = 5"), 2, "last_layer must be in 1-4, got 5"),
        (("learning_rate = 2e-3", "learning_rate = 2e3"), 2, "learning_rate must be a number in"),
        (("rows = 48", "rows = 48\nmax_length = 500"), 2, "max_length 500, the model reads 128"),
    ],
)
def test_mistakes_are_found_before_any_work(study, capsys, change, code, message):
    Path("tiny.toml").write_text(SPEC.replace(*change))
    data = ["--data", "nowhere"] if code == 1 else []
    assert study("run", *data) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not records()
    assert not Path("runs/dense").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "--jobs", "0"], 2, "--jobs must be at least 1, got 0"),
        (["run", "--limit-minutes", "-1"], 2, "--limit-minutes must be at least 0, got -1"),
        (["run", "--only", "xyz"], 1, "no cell is meant by 'xyz'"),
        (["status", "--only", "xyz"], 1, "no cell is meant by 'xyz'"),
        (["table", "--metric", "acuracy"], 2, "unknown metric 'acuracy'; did you mean 'accuracy'?"),
        (["run", "--measure", "--jobs", "2"], 2, "--measure runs nothing beside it"),
        (["table", "--at", "fast"], 2, "--at takes numbers"),
        (["table", "--markdown", "--json"], 2, "not both"),
        (["plot"], 1, "nothing to draw"),
    ],
)
def test_wrong_calls(study, capsys, words, code, message):
    assert study(*words) == code
    assert message in capsys.readouterr().err


def test_readings_of_space_agree_where_the_input_is_cut(capsys):
    assert main(["schedule", "--schedule", "input_only", "--keep-ratio", "0.5", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["space_reduction_printed"] == row["space_reduction_attention_input"] > 0
