"""Labelling files in chunks: any format in and out, stopped and resumed."""

import csv
import gzip
import json

import pytest
from helpers import output, run

from pyramid_bert.cli import predict
from pyramid_bert.errors import DataError
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
    return [{**row, "prediction": number} for number, row in rows]


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
    target, seen = tmp_path / "out.jsonl", []

    def stops(rows):
        seen.append(rows[0][0])
        if rows[0][0] == 7 and seen.count(7) == 1:
            raise KeyboardInterrupt
        return number_of(rows)

    with pytest.raises(KeyboardInterrupt):
        transform_file(source, target, stops, run={"model": "a"}, chunk_size=3)
    assert not target.exists()
    with pytest.raises(DataError, match="parts of another run"):
        transform_file(source, target, stops, run={"model": "b"}, chunk_size=3)
    assert transform_file(source, target, stops, run={"model": "a"}, chunk_size=3) == 10
    assert seen == [1, 4, 7, 7, 10]
    assert [json.loads(line)["prediction"] for line in target.read_text().split("\n")[:-1]] == list(range(1, 11))


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
