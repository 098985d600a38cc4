"""Labelling files in chunks: any format in and out, stopped and resumed."""

import csv
import gzip
import json
import re
import shutil
from datetime import datetime

import pytest
from helpers import output, run
from safetensors.torch import load_file, save_file

from pyramid_bert.cli import predict
from pyramid_bert.errors import DataError, PyramidError
from pyramid_bert.files import only_writer
from pyramid_bert.text.stream import transform_file
from pyramid_bert.text.tables import iterate_rows


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows([i, f'film "{i}",\u2028 fine\nand good'] for i in range(10))
    return path


def number_of(rows):
    return [{"prediction": number} for number, _ in rows]


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.jsonl.gz", "out.csv.gz", "out.parquet", "out.tsv"])
def test_every_format_holds_all_rows_in_order(source, tmp_path, name):
    target = tmp_path / name
    assert transform_file(source, target, number_of, run={}, chunk_size=3) == 10
    rows = [row for _, row in iterate_rows(target)]
    assert [int(row["prediction"]) for row in rows] == list(range(1, 11))
    assert [int(row["id"]) for row in rows] == list(range(10))
    if not name.endswith(".tsv"):  # which has no way to write a line break
        assert rows[3]["text"] == 'film "3",\u2028 fine\nand good'
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in.csv", name])


def test_a_stopped_run_goes_on_with_the_part_that_is_missing(source, tmp_path):
    target, parts, seen, resumed = tmp_path / "out.jsonl", tmp_path / "out.jsonl.parts", [], []

    def stops(rows):
        seen.append(rows[0][0])
        if rows[0][0] == 7 and seen.count(7) == 1:
            raise KeyboardInterrupt
        return number_of(rows)

    with pytest.raises(KeyboardInterrupt):
        transform_file(source, target, stops, run={"model": "a"}, chunk_size=3)
    assert not target.exists()
    with pytest.raises(DataError, match=r"another run \(different: model\).*--restart"):
        transform_file(source, target, stops, run={"model": "b"}, chunk_size=3)
    moved = source.rename(tmp_path / "moved.csv")
    moved.write_bytes(moved.read_bytes().replace(b"film", b"flim"))  # other rows, as many bytes
    with pytest.raises(DataError, match=r"different: data"):
        transform_file(moved, target, stops, run={"model": "a"}, chunk_size=3)
    moved.write_bytes(moved.read_bytes().replace(b"flim", b"film"))
    (parts / "000001.jsonl").write_text('{"prediction": 9}\n' * 3)  # damaged: made again
    how = {"run": {"model": "a"}, "chunk_size": 3, "resumed": resumed.append}
    assert transform_file(moved, target, stops, **how) == 10
    assert (seen, resumed) == ([1, 4, 7, 4, 7, 10], [3])
    assert [json.loads(line)["prediction"] for line in target.read_text().split("\n")[:-1]] == list(range(1, 11))


def test_restart_throws_away_what_another_run_left(source, tmp_path):
    target = tmp_path / "out.jsonl"
    parts = tmp_path / "out.jsonl.parts"
    parts.mkdir()
    (parts / "000000.jsonl").write_text("{}\n")
    for record in ("{", '{"data": "other"}'):
        (parts / "run.json").write_text(record)
        with pytest.raises(DataError, match="--restart"):
            transform_file(source, target, number_of, run={})
    assert transform_file(source, target, number_of, run={}, restart=True) == 10


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.tsv"])
def test_rows_with_different_columns_keep_all_of_them(tmp_path, name):
    source, target = tmp_path / "in.jsonl", tmp_path / name
    rows = [{"text": "a\rb", "n": None}, {"text": "c", "extra": [1]}, {"text": "d", "n": 0.5}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    transform_file(source, target, number_of, run={}, chunk_size=1)
    found = [row for _, row in iterate_rows(target)]
    assert list(found[0]) == ["text", "n", "prediction", "extra"]
    assert [str(found[1]["extra"]), float(found[2]["n"])] == ["[1]", 0.5]
    if name != "out.tsv":
        assert found[0]["text"] == "a\rb"


def test_what_a_format_cannot_hold_is_named(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "a", "n": 1}\n{"text": "b", "n": "one"}\n')
    with pytest.raises(DataError, match=r"column 'n' in rows 1 to 2.*name the output .jsonl"):
        transform_file(source, tmp_path / "out.parquet", number_of, run={})
    assert not (tmp_path / "out.parquet").exists()


def test_types_of_a_parquet_file_are_kept(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'data'")
    parquet = pytest.importorskip("pyarrow.parquet")
    day = datetime(2024, 5, 6, 7, 8)
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    parquet.write_table(pyarrow.table({"text": ["a"], "when": [day], "raw": [b"x"]}), source)
    transform_file(source, target, number_of, run={})
    assert next(iterate_rows(target))[1] == {"text": "a", "when": day, "raw": b"x", "prediction": 1}
    with pytest.raises(DataError, match="only Parquet can hold"):
        transform_file(source, tmp_path / "out.csv", number_of, run={})


def test_an_output_has_one_writer_and_is_not_the_input(source, tmp_path):
    target = tmp_path / "out.csv"
    with only_writer(target), pytest.raises(PyramidError, match="another process"):
        transform_file(source, target, number_of, run={})
    with pytest.raises(PyramidError, match="the input itself"):
        transform_file(source, source, number_of, run={})


def test_predict_resumes_only_with_the_same_model_and_settings(capsys, monkeypatch, tmp_path, tiny_model_dir):
    monkeypatch.setattr(predict, "CHUNK", 2)
    model = shutil.copytree(tiny_model_dir, tmp_path / "model")
    data, out = tmp_path / "in.csv", tmp_path / "out.csv"
    data.write_text("text\n" + "a fine film\n" * 5)
    command = ("predict", model, "--data", data, "--out", out)
    label, calls = predict._label, []

    def stops(*given):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return label(*given)

    monkeypatch.setattr(predict, "_label", stops)
    assert run(*command) == 130
    assert "the same command goes on" in capsys.readouterr().err
    weights = load_file(model / "model.safetensors")
    save_file({name: 2 * value for name, value in weights.items()}, model / "model.safetensors", {"format": "pt"})
    for given, differs in ((command, "model"), ((*command, "--radius"), "--radius")):
        assert run(*given) == 1
        assert re.search(rf"different: .*{differs}.*--restart", capsys.readouterr().err)
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    model.rename(tmp_path / "moved")
    assert run("predict", tmp_path / "moved", *command[2:], "--batch-size", 1) == 0
    assert "resuming: 2 of 5 rows are done" in capsys.readouterr().err
    assert len(list(iterate_rows(out))) == 5


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a", "prediction": 1}, "row 2: has a column 'prediction'"),
        ({"text": "half \ud800"}, "row 2: holds half of a character"),
        ({"text": "a", "deep": eval("[" * 40 + "]" * 40)}, "row 2: nested more than"),
    ],
)
def test_rows_that_cannot_be_written_are_named_before_the_model_is_loaded(capsys, tmp_path, row, message):
    data = tmp_path / "in.jsonl"
    data.write_text('{"text": "a"}\n' + json.dumps(row) + "\n")
    assert run("predict", "nowhere/at/all", "--data", data, "--out", tmp_path / "out.csv") == 1
    assert message in capsys.readouterr().err


def test_what_is_printed_stays_one_line(capsys, tiny_model_dir):
    hostile = "a \x1b]0;title\x07 film\nof \x9b31m two\u2028lines"
    for more in ((), ("--json",)):
        (line,) = output(capsys, "predict", tiny_model_dir, hostile, *more).split("\n")[:-1]
        assert line.replace("\t", "").isprintable()
    assert json.loads(line)["text"] == hostile


def test_predict_labels_a_file_chunk_by_chunk(capsys, monkeypatch, tmp_path, tiny_model_dir):
    monkeypatch.setattr(predict, "CHUNK", 2)
    texts = ["a fine film", "the plot is thin and the cast is tired", "no", "a mess", "great"]
    data = tmp_path / "in.jsonl.gz"
    lines = [json.dumps({"text": text, "n": i}) + "\n" for i, text in enumerate(texts)]
    data.write_bytes(gzip.compress("".join(lines).encode()))
    command = ("predict", tiny_model_dir, "--data", data)
    output(capsys, *command, "--out", tmp_path / "out.csv")
    rows = [row for _, row in iterate_rows(tmp_path / "out.csv")]
    assert [row["text"] for row in rows] == texts
    assert list(rows[0]) == ["text", "n", "prediction", "probability"]
    printed = [json.loads(line) for line in output(capsys, *command, "--json").splitlines()]
    assert [row["prediction"] for row in printed] == [row["prediction"] for row in rows]


def test_a_bad_row_is_named_before_the_model_is_loaded(capsys, tmp_path):
    data = tmp_path / "in.csv"
    data.write_text("text\nfine\n \n")
    assert run("predict", "nowhere/at/all", "--data", data, "--out", tmp_path / "o.csv") == 1
    assert "row 2: the text in column 'text' is empty" in capsys.readouterr().err
