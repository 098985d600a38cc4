"""`pyramid-bert train` on files of every format, and what it takes their labels for."""

import gzip
import json
from functools import cache

import pytest
from helpers import output, run, same, weights
from transformers import PreTrainedTokenizerBase

from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.text.metrics import CLASSIFICATION, REGRESSION

FAST = ("--epochs", 1, "--batch-size", 8, "--keep-ratio", 0.5, "--last-layer", 2)


def rows_of(kind, data):
    """Rows of a file whose labels are words, whole numbers for pairs of texts, or decimal numbers."""
    texts, labels = data
    rows = []
    for text, other, label in zip(texts, reversed(texts), labels, strict=True):
        if kind == "classes":
            rows.append({"text": text, "label": label})
        elif kind == "pair":
            rows.append({"text": text, "second": other, "label": int(label == "pos")})
        else:
            rows.append({"text": text, "label": len(text) / 8})
    return rows


def write(path, rows):
    """Rows as a file, in the format that its name says."""
    form = path.name.split(".")[1]
    if form == "parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'data'")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return
    if form == "jsonl":
        lines = [json.dumps(row) for row in rows]
    else:
        mark = {"csv": ",", "tsv": "\t"}[form]
        lines = [mark.join(map(str, cells)) for cells in (rows[0], *(row.values() for row in rows))]
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture(scope="module")
def by_hand(learner_dir, sentiment):
    """The weights that the library makes of the rows, without any file."""

    @cache
    def train(kind):
        rows = rows_of(kind, sentiment(24))
        texts = [(row["text"], row["second"]) if kind == "pair" else row["text"] for row in rows]
        clf = PyramidClassifier.from_pretrained(learner_dir, Schedule.exponential(0.5, last_layer=2))
        return weights(clf.fit(texts, [row["label"] for row in rows], epochs=1, batch_size=8, progress=False))

    return train


@pytest.mark.parametrize("kind", ["classes", "pair", "number"])
@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "tsv.gz"])
def test_files_of_every_format(capsys, learner_dir, sentiment, weights_in, by_hand, tmp_path, form, kind):
    train, dev, out = tmp_path / f"train.{form}", tmp_path / f"dev.{form}", tmp_path / "model"
    write(train, rows_of(kind, sentiment(24)))
    write(dev, rows_of(kind, sentiment(12, seed=1)))
    columns = ("--text-pair-column", "second") if kind == "pair" else ()
    call = ("train", "--model", learner_dir, "--train", train, "--dev", dev, "--out", out)
    metrics = json.loads(output(capsys, *call, *FAST, *columns, "--json"))
    assert tuple(metrics) == (REGRESSION if kind == "number" else CLASSIFICATION)
    assert same(weights_in(out), by_hand(kind))
    assert json.loads(output(capsys, "evaluate", out, "--data", dev, *columns, "--json")) == metrics


# ---- what the labels are ----


@pytest.mark.parametrize(
    ("labels", "options", "said", "classes"),
    [
        (["1", "5", "3", "4"], [], "4 classes: 1, 3, 4, 5", [1, 3, 4, 5]),
        (["1", "5", "3", "4"], ["--target", "number"], "a number, 1.0 to 5.0", None),
        (["0.0", "1.0", "1.0"], ["--target", "number"], "a number, 0.0 to 1.0", None),
        (["0.0", "1.0", "1.0"], ["--target", "classes"], "2 classes: 0, 1", [0, 1]),
    ],
)
def test_the_target_is_told_and_can_be_chosen(
    capsys, monkeypatch, learner_dir, tmp_path, labels, options, said, classes
):
    monkeypatch.setenv("COLUMNS", "200")
    file, out = tmp_path / "ratings.csv", tmp_path / "model"
    file.write_text("text,label\n" + "".join(f"{'fine ' * (i + 1)}film,{label}\n" for i, label in enumerate(labels)))
    assert run("train", "--model", learner_dir, "--train", file, "--dev", file, "--out", out, *FAST, *options) == 0
    told = capsys.readouterr().err
    assert said in told.splitlines()
    assert told.index(said) < told.index("training the pyramid")
    assert json.loads((out / "classifier.json").read_text())["classes"] == classes
    metrics = json.loads(output(capsys, "evaluate", out, "--data", file, "--json"))
    assert tuple(metrics) == (REGRESSION if classes is None else CLASSIFICATION)


# ---- texts that are too long ----


@pytest.mark.parametrize("long", ["train", "dev"])
def test_a_text_that_is_too_long_is_named_before_training(capsys, learner_dir, tmp_path, long):
    for name in ("train", "dev"):
        text = "fine " * 200 if name == long else "fine"
        (tmp_path / f"{name}.csv").write_text(f"text,label\ndull,a\n{text},b\n")
    files = ("--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv")
    call = ("train", "--model", learner_dir, *files, "--out", tmp_path / "model", *FAST)
    assert run(*call) == 1
    told = capsys.readouterr().err
    place = f"{tmp_path / long}.csv, row 2: the text has 202 tokens and the model reads at most 128"
    assert f"{place}; pass --max-length 128 to cut long texts" in told
    assert not (tmp_path / "model").exists()
    assert run(*call, "--max-length", 128) == 0


# ---- work that is done once ----


def test_each_text_is_tokenized_once(monkeypatch, learner_dir, tmp_path, vocabulary):
    seen = []
    tokenize = PreTrainedTokenizerBase.__call__

    def counting(self, text, *arguments, **options):
        seen.extend([text] if isinstance(text, str) else text)
        return tokenize(self, text, *arguments, **options)

    monkeypatch.setattr(PreTrainedTokenizerBase, "__call__", counting)
    for name, words in (("train", vocabulary.words[20:44]), ("dev", vocabulary.words[50:58])):
        rows = [f"{word},{'ab'[i % 2]}\n" for i, word in enumerate(words)]
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(rows))
    files = ("--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--patience", 1)
    assert run("train", "--model", learner_dir, *files, "--out", tmp_path / "model", *FAST) == 0
    assert sorted(seen) == sorted((*vocabulary.words[20:44], *vocabulary.words[50:58]))
    seen.clear()
    assert run("evaluate", tmp_path / "model", "--data", tmp_path / "dev.csv") == 0
    assert sorted(seen) == sorted(vocabulary.words[50:58])
