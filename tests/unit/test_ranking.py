"""Files of rankings, and what is refused in one line."""

import gzip
import json

import pytest

from pyramid_bert.errors import DataError, NoDataError
from pyramid_bert.ranking import Collection, GradedList, compare, measure, read_candidates, read_graded, read_qrels
from pyramid_bert.ranking.files import check_list

ROWS = {
    "docs": [{"id": "d1", "text": "a film"}, {"id": "d2", "text": "a play"}],
    "queries": [{"id": "1", "text": "which film ?"}],
    "qrels": [{"query": "1", "doc": "d2", "grade": 2}],
    "candidates": [{"query": "1", "doc": "d1", "rank": 2}, {"query": "1", "doc": "d2", "rank": 1}],
}


def write(path, rows):
    if ".jsonl" in path.name:
        lines = [json.dumps(row) for row in rows]
    else:
        lines = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def collection(folder, suffix="tsv", **changed):
    for part, rows in (ROWS | changed).items():
        write(folder / f"{part}.{suffix}", rows)
    return Collection.load(folder)


@pytest.mark.parametrize("suffix", ["tsv", "tsv.gz", "jsonl", "jsonl.gz"])
def test_a_collection_in_every_format(tmp_path, suffix):
    found = collection(tmp_path, suffix)
    assert found.candidates == {"1": ("d2", "d1")}  # by rank
    assert found.qrels == {"1": {"d2": 2.0}}
    assert found.lists() == {"1": ("which film ?", ["a play", "a film"])}


def test_ids_may_be_whole_numbers_in_one_file_and_texts_in_another(tmp_path):
    assert read_qrels(write(tmp_path / "q.jsonl", [{"query": 7, "doc": 8, "grade": 1}])) == {"7": {"8": 1.0}}


def test_candidates_without_ranks_keep_the_order_of_the_rows(tmp_path):
    rows = [{"query": "1", "doc": name} for name in ("z", "a", "m")]
    assert read_candidates(write(tmp_path / "c.tsv", rows)) == {"1": ("z", "a", "m")}


def test_graded_rows_become_lists(tmp_path):
    rows = [("who", "a", 1), ("what", "b", 0), ("who", "c", 0), ("who", "a", 1)]
    rows = [dict(zip(("query", "document", "grade"), row, strict=True)) for row in rows]
    found = read_graded(write(tmp_path / "train.tsv", rows))
    assert found == [GradedList("who", ("a", "c"), (1.0, 0.0)), GradedList("what", ("b",), (0.0,))]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"candidates": [{"query": "9", "doc": "d1"}]}, "names query '9', which"),
        ({"candidates": [{"query": "1", "doc": "d9"}]}, "names document 'd9', which"),
        ({"candidates": [{"query": "1", "doc": "d1"}] * 2}, "row 2: document 'd1' is a candidate of this query twice"),
        ({"candidates": [{"query": "1", "doc": "d1", "rank": "x"}]}, "row 1: column 'rank' must hold a number"),
        ({"qrels": [{"query": "9", "doc": "d1", "grade": 1}]}, "names query '9', which"),
        ({"qrels": [{"query": "1", "doc": "d1", "grade": 0}]}, "has no positive"),
        ({"qrels": [{"query": "1", "doc": "d1", "grade": 1}] * 2}, "judged twice"),
        ({"qrels": [{"query": "1", "doc": "d1", "grade": "good"}]}, "row 1: column 'grade' must hold a number"),
        ({"qrels": [{"query": "1", "doc": "d1", "grade": "nan"}]}, "row 1: column 'grade' must hold a number"),
        ({"qrels": [{"query": "1", "doc": "d1", "grade": "1e9"}]}, "row 1: column 'grade' must hold a number"),
        ({"docs": [{"id": "d1", "text": " "}]}, "the text in column 'text' is empty"),
        ({"docs": [{"id": "d1", "text": "x"}] * 2}, "row 2: the id 'd1' is there twice"),
        ({"docs": [{"id": "", "text": "x"}]}, "column 'id' must hold an id"),
        ({"queries": [{"name": "1", "text": "x"}]}, "no column 'id'; the columns are 'name', 'text'"),
    ],
)
def test_files_that_cannot_be_used_are_refused_in_one_line(tmp_path, changed, message):
    with pytest.raises(DataError, match=message) as raised:
        collection(tmp_path, **changed)
    assert "\n" not in str(raised.value)


def test_a_missing_part_is_named(tmp_path):
    with pytest.raises(NoDataError, match=r"has no docs\.tsv\.gz"):
        Collection.load(tmp_path)


def test_a_document_graded_twice_for_a_query_is_refused(tmp_path):
    rows = [{"query": "who", "document": "a", "grade": grade} for grade in (1, 0)]
    with pytest.raises(DataError, match="row 2: this document has another grade"):
        read_graded(write(tmp_path / "train.tsv", rows))


@pytest.mark.parametrize(
    ("rankings", "qrels", "message"),
    [
        ({}, {}, "no rankings given"),
        ({"1": ["a"]}, {"2": {"a": 1}}, "qrels do not know query '1'"),
        ({"1": ["a"]}, {"1": {"a": 0}}, "no positive for query '1', no grade of at least 1"),
        ({"1": []}, {"1": {"a": 1}}, "ranking of query '1' is empty"),
        ({"1": "ab"}, {"1": {"a": 1}}, "must be a list of document ids"),
        ({"1": [3]}, {"1": {"a": 1}}, "must be a list of document ids"),
        ({"1": ["a", "a"]}, {"1": {"a": 1}}, "document 'a' twice"),
    ],
)
def test_rankings_that_cannot_be_measured(rankings, qrels, message):
    with pytest.raises(DataError, match=message):
        measure(rankings, qrels)


def test_only_rankings_of_the_same_queries_are_compared():
    qrels = {"1": {"a": 1}, "2": {"a": 1}}
    one, both = measure({"1": ["a"]}, qrels), measure({"1": ["a"], "2": ["a"]}, qrels)
    with pytest.raises(DataError, match="query '2' is only in the first"):
        compare(both, one)
    with pytest.raises(DataError, match="the second has further queries"):
        compare(one, both)
    with pytest.raises(DataError, match="different metrics"):
        compare(one, measure({"1": ["a"]}, qrels, k=5))


@pytest.mark.parametrize(
    ("query", "documents", "message"),
    [
        ("", ["a"], "the query is empty"),
        (3, ["a"], "the query must be a text"),
        ("q", [], "the list of documents is empty"),
        ("q", "a", "documents must be a list"),
        ("q", 3, "documents must be a list"),
        ("q", ["a", None], "document 1 is not a text, got None"),
        ("q", ["a", " "], "document 1 is empty"),
    ],
)
def test_lists_that_cannot_be_ranked(query, documents, message):
    with pytest.raises(DataError, match=message):
        check_list(query, documents)
