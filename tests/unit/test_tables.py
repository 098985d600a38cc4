"""A user's own files: labels as numbers or words, and errors that name the file and the row."""

import gzip
import json

import pytest

from pyramid_bert.errors import DataError
from pyramid_bert.text.labels import Labels
from pyramid_bert.text.tables import Table, iterate_rows, read_table


def table_from(folder, name, content):
    (folder / name).write_text(content)
    return read_table(folder / name)


def csv_of(*labels):
    return "text,label\n" + "".join(f"film {i},{label}\n" for i, label in enumerate(labels))


def labels_of(table):
    return Labels.of(table.labels, len(table.texts), where=table.where)


# ---- what labels become ----


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["1", "0"], [1, 0]),
        (["1", "0.5"], [1.0, 0.5]),
        (["1", "x"], ["1", "x"]),
        (["pos", "neg"], ["pos", "neg"]),
    ],
)
def test_labels_in_csv(tmp_path, given, expected):
    labels = table_from(tmp_path, "a.csv", csv_of(*given)).labels
    assert labels == expected
    assert list(map(type, labels)) == list(map(type, expected))


def test_json_numbers_are_floats_when_one_is(tmp_path):
    lines = [json.dumps({"text": "fine", "label": label}) for label in (3, 2.5)]
    labels = table_from(tmp_path, "a.jsonl", "\n".join(lines)).labels
    assert labels == [3.0, 2.5]
    assert isinstance(labels[0], float)


# ---- errors that name the place ----


def test_rows_know_where_they_come_from(tmp_path):
    table = table_from(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b", "label": 0}\n')
    assert [table.where(i) for i in range(2)] == [f"{tmp_path / 'a.jsonl'}, row {n}" for n in (1, 3)]
    assert Table(["a"], [1]).where(0) == "data, row 1"
    assert table == Table(["a", "b"], [1, 0])  # where rows come from makes no difference to what they are


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (csv_of("a", "a"), "at least two classes, all labels are 'a', from {file}, row 1 to {file}, row 2"),
        (csv_of("1.5", "nan"), "{file}, row 2: the label is nan; a regression target must be a finite number"),
        (csv_of("1.5", "2", "inf"), "{file}, row 3: the label is inf"),
        (csv_of("1", "x", "2.5"), "{file}, row 2: the label 'x' is not a number, but '2.5' in row 3 is one"),
        (
            "text,label\na, b,1\n",
            "{file}, row 1: 3 fields for 2 columns; put texts that hold commas into double quotes",
        ),
        ("text,label\na\n", "{file}, row 1: no label in column 'label'"),
        ("label,text\n1\n", "{file}, row 1: nothing in column 'text'; is the row cut short"),
    ],
)
def test_files_to_train_on(tmp_path, content, message):
    with pytest.raises(DataError, match=message.replace("{file}", str(tmp_path / "a.csv"))):
        labels_of(table_from(tmp_path, "a.csv", content))


def test_a_tab_inside_of_a_text(tmp_path):
    with pytest.raises(DataError, match=r"a\.tsv, row 1: 3 fields for 2 columns; a text cannot hold a tab"):
        table_from(tmp_path, "a.tsv", 'text\tlabel\n"a\tb"\t1\n')


def test_kinds_of_labels_that_do_not_go_together(tmp_path):
    table = table_from(tmp_path, "a.jsonl", '{"text": "a", "label": "x"}\n{"text": "b", "label": 1}\n')
    with pytest.raises(DataError, match=r"got int, str: .*a\.jsonl, row 2: the label is 1, unlike the first one"):
        labels_of(table)


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


def test_a_cut_gzip_says_how_far_it_could_be_read(tmp_path):
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(csv_of(1, 0, 1).encode())[:-6])
    with pytest.raises(DataError, match=r"a\.csv\.gz is damaged after row \d: "):
        read_table(file)


# ---- files without a header, or with another name ----


def test_columns_can_be_named_by_the_caller(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text('x\t"1\ny\t2\t3\n')
    rows = [row for _, row in iterate_rows(file, suffix=".tsv", header=("text", "label"), exact=False)]
    assert [(row["text"], row["label"]) for row in rows] == [("x", '"1'), ("y", "2")]
    with pytest.raises(DataError, match="cannot tell the format"):
        list(iterate_rows(file))
