"""A user's own files: labels as numbers or words, and errors that name the file and the row."""

import gzip
import json

import pytest

from pyramid_bert.errors import DataError
from pyramid_bert.text.labels import Labels
from pyramid_bert.text.tables import Table, iterate_rows, read_table


def table_from(folder, name, content):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(folder / name)


def csv_of(*labels):
    return "text,label\n" + "".join(f"film {i},{label}\n" for i, label in enumerate(labels))


def json_of(*labels):
    return "\n".join(json.dumps({"text": "fine", "label": label}) for label in labels)


def labels_of(table):
    return Labels.of(table.labels, len(table.texts), where=table.where)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", csv_of("1", "0"), [1, 0]),
        ("a.csv", csv_of("1", "0.5"), [1.0, 0.5]),
        ("a.csv", csv_of("1", "x"), ["1", "x"]),
        ("a.csv", csv_of("pos", "neg"), ["pos", "neg"]),
        ("a.jsonl", json_of(3, 2.5), [3.0, 2.5]),
    ],
)
def test_what_labels_become(tmp_path, name, content, expected):
    labels = table_from(tmp_path, name, content).labels
    assert labels == expected
    assert list(map(type, labels)) == list(map(type, expected))


def test_rows_know_where_they_come_from(tmp_path):
    table = table_from(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b", "label": 0}\n')
    assert [table.where(i) for i in range(2)] == [f"{tmp_path / 'a.jsonl'}, row {n}" for n in (1, 3)]
    assert Table(["a"], [1]).where(0) == "data, row 1"
    assert table == Table(["a", "b"], [1, 0])  # where rows come from makes no difference to what they are


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", csv_of("a", "a"), "at least two classes, all labels are 'a', from {file}, row 1 to {file}, row 2"),
        ("a.csv", csv_of("1.5", "nan"), "{file}, row 2: the label is nan; a regression target must be a finite number"),
        ("a.csv", csv_of("1.5", "2", "inf"), "{file}, row 3: the label is inf"),
        ("a.csv", csv_of("1", "x", "2.5"), "{file}, row 2: the label 'x' is not a number, but '2.5' in row 3 is one"),
        (
            "a.csv",
            "text,label\na, b,1\n",
            "{file}, row 1: 3 fields for 2 columns; put texts that hold commas into double",
        ),
        ("a.csv", "text,label\na\n", "{file}, row 1: no label in column 'label'"),
        ("a.csv", "text,label\nfine,\n", "{file}, row 1: no label"),
        ("a.csv", "label,text\n1\n", "{file}, row 1: nothing in column 'text'; is the row cut short"),
        ("a.csv", "text,label\nfine,1\n ,0\n", "{file}, row 2: the text in column 'text' is empty"),
        ("a.csv", "sentence,label\nfine,1\n", "no column 'text'; the columns are 'sentence', 'label'"),
        ("a.csv", "text,label\n", "has no rows"),
        ("a.csv", "", "has no rows"),
        ("a.csv", "text,label\ncafé,1\n".encode("latin-1"), "{file} is not UTF-8"),
        ("a.csv.gz", gzip.compress(csv_of(1, 0, 1).encode(), mtime=0)[:-6], r"{file} is damaged after row \d: "),
        ("a.tsv", 'text\tlabel\n"a\tb"\t1\n', "{file}, row 1: 3 fields for 2 columns; a text cannot hold a tab"),
        ("a.jsonl", json_of("x", 1), "got int, str: {file}, row 2: the label is 1, unlike the first one"),
        ("a.jsonl", json_of(1) + '\n{"text":\n', "{file}, row 2: not JSON"),
        ("a.jsonl", '{"text": 7, "label": 1}\n', "holds 7, not text"),
        ("a.xlsx", "?", "cannot tell the format"),
        ("a.parquet", "text", "is not a Parquet file"),
    ],
)
def test_files_to_train_on(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message.replace("{file}", str(tmp_path / name))):
        labels_of(table_from(tmp_path, name, content))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        (["a", "b"], ["a", "c"], "row 2: the label is 'c', which the model does not know; its classes are 'a', 'b'"),
        (["0", "1"], ["0", "2"], "row 2: the label is 2, which the model does not know; its classes are 0, 1"),
        (["0", "1"], ["0", "1", "x"], "row 3: the label is 'x', which the model does not know"),
        (["0.5", "1"], ["0.5", "nan"], "row 2: the label is nan; a regression target must be a finite number"),
        (["0.5", "1"], ["a", "b"], "row 1: the label is 'a'; a regression target must be a finite number"),
    ],
)
def test_files_to_evaluate_on(tmp_path, train, dev, message):
    known = labels_of(table_from(tmp_path, "train.csv", csv_of(*train)))
    table = table_from(tmp_path, "dev.csv", csv_of(*dev))
    with pytest.raises(DataError, match=rf"{tmp_path / 'dev.csv'}, {message}"):
        known.targets(table.labels, where=table.where)


def test_columns_can_be_named_by_the_caller(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text('x\t"1\ny\t2\t3\n')
    rows = [row for _, row in iterate_rows(file, suffix=".tsv", header=("text", "label"), exact=False)]
    assert [(row["text"], row["label"]) for row in rows] == [("x", '"1'), ("y", "2")]
