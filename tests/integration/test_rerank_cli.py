"""`pyramid-bert rerank`: documents for a query, and the candidates of many queries in a file."""

import gzip
import json

import pytest
from helpers import output, run

from pyramid_bert import PyramidReranker, Schedule
from pyramid_bert.cli import rerank
from pyramid_bert.text.tables import iterate_rows

WORDS = ["a fine film", "the plot is thin", "no", "young people play a brilliant part in it", "sad , so sad", "good"]
LISTS = [("what is good ?", WORDS[:4]), ("who is sad ?", WORDS[2:]), ("why ?", WORDS[1:3]), ("is it ?", WORDS)]


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_bert, tokenizer):
    folder = tmp_path_factory.mktemp("model")
    tiny_bert(labels=1).save_pretrained(folder / "dense")
    tokenizer.save_pretrained(folder / "dense")
    schedule = Schedule.exponential(0.3, last_layer=3, min_tokens=3)
    PyramidReranker.from_pretrained(folder / "dense", schedule).save(folder / "fast")
    return folder / "fast"


@pytest.fixture
def documents(tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps({"id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(WORDS)))
    return path


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "candidates.jsonl"
    rows = [{"number": i, "query": query, "documents": texts} for i, (query, texts) in enumerate(LISTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def expected(model, query, texts, top_k):
    hits = PyramidReranker.load(model).rank(query, texts, top_k)
    return [hit["corpus_id"] for hit in hits], pytest.approx([hit["score"] for hit in hits], abs=1e-6)


def test_documents_for_a_query(model, documents, capsys):
    call = ("rerank", model, "--query", "what is good ?", "--documents", documents, "--top-k", 3)
    places, scores = expected(model, "what is good ?", WORDS, 3)
    lines = [line.split("\t") for line in output(capsys, *call).splitlines()]
    assert [(int(place), text) for place, _, text in lines] == [(n, WORDS[i]) for n, i in enumerate(places, start=1)]
    hits = [json.loads(line) for line in output(capsys, *call, "--json").splitlines()]
    assert [hit["score"] for hit in hits] == scores
    assert [(hit["corpus_id"], hit["id"], hit["text"]) for hit in hits] == [(i, f"d{i}", WORDS[i]) for i in places]


@pytest.mark.parametrize("name", ["ranked.jsonl", "ranked.jsonl.gz", "ranked.parquet"])
def test_candidates_of_many_queries(model, data, tmp_path, name, monkeypatch):
    monkeypatch.setattr(rerank, "CHUNK", 3)
    assert run("rerank", model, "--data", data, "--out", tmp_path / name, "--top-k", 2) == 0
    rows = [row for _, row in iterate_rows(tmp_path / name)]
    assert [row["number"] for row in rows] == [0, 1, 2, 3]
    for row, (query, texts) in zip(rows, LISTS, strict=True):
        places, scores = expected(model, query, texts, 2)
        assert (row["query"], row["documents"]) == (query, texts)
        assert [hit["corpus_id"] for hit in row["ranked"]] == places
        assert [hit["score"] for hit in row["ranked"]] == scores


def test_documents_with_ids_keep_them(model, tmp_path):
    named = [{"id": 7 * i, "text": text} for i, text in enumerate(WORDS)]
    with gzip.open(tmp_path / "in.jsonl.gz", "wt") as file:
        file.write(json.dumps({"query": "what is good ?", "documents": named}) + "\n")
    assert run("rerank", model, "--data", tmp_path / "in.jsonl.gz", "--out", tmp_path / "out.jsonl") == 0
    ((_, row),) = iterate_rows(tmp_path / "out.jsonl")
    assert [hit["id"] for hit in row["ranked"]] == [7 * hit["corpus_id"] for hit in row["ranked"]]
    assert len(row["ranked"]) == len(WORDS)


def test_a_stopped_run_goes_on(model, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rerank, "CHUNK", 1)
    call, asked, stops = ("rerank", model, "--data", data, "--out", tmp_path / "out.jsonl"), [], [True]
    score = PyramidReranker.score_lists

    def stopping(self, lists, **how):
        asked.append(lists[0][0])
        if stops and len(asked) == 3:
            raise KeyboardInterrupt
        return score(self, lists, **how)

    monkeypatch.setattr(PyramidReranker, "score_lists", stopping)
    assert run(*call) == 130
    assert "the same command goes on from here" in capsys.readouterr().err
    assert run(*call, "--top-k", 3) == 1
    assert "different: --top-k" in capsys.readouterr().err
    stops.clear()
    assert run(*call) == 0
    assert "resuming: 2 of 4 rows are done" in capsys.readouterr().err
    assert asked == [query for query, _ in [*LISTS[:3], *LISTS[2:]]]
    assert len(list(iterate_rows(tmp_path / "out.jsonl"))) == 4
    assert not (tmp_path / "out.jsonl.parts").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --query TEXT with --documents FILE, or --data FILE"),
        (["--query", "a", "--data", "x.jsonl"], "not both"),
        (["--query", "a"], "--query and --documents go together"),
        (["--documents", "x.jsonl", "--data", "x.jsonl"], "--query and --documents go together"),
        (["--data", "x.jsonl"], "--data and --out go together"),
        (["--query", "a", "--documents", "x.jsonl", "--restart"], "--restart goes with --out"),
        (["--query", "a", "--documents", "x.jsonl", "--top-k", "0"], "--top-k must be at least 1, got 0"),
        (["--query", "a", "--documents", "x.jsonl", "--batch-size", "0"], "--batch-size must be at least 1"),
    ],
)
def test_calls_that_do_not_fit_together(model, options, message, capsys):
    assert run("rerank", model, *options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query": "", "documents": ["a"]}, "row 2: the query is empty"),
        ({"query": "a", "documents": []}, "row 2: the list of documents is empty"),
        ({"query": "a", "documents": "a b"}, "row 2: column 'documents' must hold a list of texts, got 'a b'"),
        ({"query": "a", "documents": ["b", 3]}, "row 2: document 1 is not a text, got 3"),
        ({"query": "a", "documents": [{"id": 1}]}, "row 2: give every document as a text, or every one as"),
        ({"query": "a", "documents": [{"id": 1, "text": "x"}, "y"]}, "row 2: give every document as a text"),
        ({"query": "a"}, "row 2: no column 'documents'"),
        ({"query": "a", "documents": ["b"], "ranked": 1}, "row 2: has a column 'ranked', which is to be added"),
    ],
)
def test_rows_that_cannot_be_ranked_are_named_before_any_work(tmp_path, row, message, capsys):
    (tmp_path / "in.jsonl").write_text(json.dumps({"query": "a", "documents": ["b"]}) + "\n" + json.dumps(row) + "\n")
    call = ("rerank", tmp_path / "no model is needed for it", "--data", tmp_path / "in.jsonl", "--out")
    assert run(*call, tmp_path / "out.jsonl") == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out.jsonl").exists()


def test_a_query_or_a_document_that_is_empty(model, documents, capsys):
    assert run("rerank", model, "--query", " ", "--documents", documents) == 1
    assert "the query is empty" in capsys.readouterr().err
    documents.write_text('{"text": "a"}\n{"text": 3}\n')
    assert run("rerank", model, "--query", "a", "--documents", documents) == 1
    assert "row 2: column 'text' holds 3, not text" in capsys.readouterr().err
    documents.write_text("")
    assert run("rerank", model, "--query", "a", "--documents", documents) == 1
    assert "the list of documents is empty" in capsys.readouterr().err


def test_a_model_without_a_score_is_refused(tiny_model_dir, documents, capsys):
    assert run("rerank", tiny_model_dir, "--query", "a", "--documents", documents) == 1
    assert "a head that gives no score" in capsys.readouterr().err
