"""The GLUE tasks: the same rows from every layout, and a clear message for every kind of broken data."""

import gzip
import sys

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from pyramid_bert.errors import DataError, MissingExtraError, UnknownNameError
from pyramid_bert.lab.glue.tasks import TASKS, load_task, table_from_hub
from pyramid_bert.text.sampling import sample_rows, table_hash
from pyramid_bert.text.tables import Table

# The official download: folder, header and one row, written down from its files and not from our tables.
OFFICIAL = {
    "cola": ("CoLA", None, "gj04\t{number}\t\t{a}"),
    "sst2": ("SST-2", "sentence\tlabel", "{a} \t{number}"),
    "mrpc": ("MRPC", "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{number}\t702876\t702977\t{a}\t{b}"),
    "stsb": (
        "STS-B",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "7\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\t{a}\t{b}\t{number}",
    ),
    "qqp": ("QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "133273\t213221\t213222\t{a}\t{b}\t{number}"),
    "mnli": (
        "MNLI",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
        "0\t31193\t31193n\tgovernment\t( a )\t( b )\t(ROOT a)\t(ROOT b)\t{a}\t{b}\tx\tx\tx\tx\tx\t{word}",
    ),
    "qnli": ("QNLI", "index\tquestion\tsentence\tlabel", "0\t{a}\t{b}\t{word}"),
    "rte": ("RTE", "index\tsentence1\tsentence2\tlabel", "0\t{a}\t{b}\t{word}"),
    "wnli": ("WNLI", "index\tsentence1\tsentence2\tlabel", "0\t{a}\t{b}\t{number}"),
}
# Columns and class names as the hub's own description gives them.
HUB = {
    "cola": (["sentence"], ["unacceptable", "acceptable"]),
    "sst2": (["sentence"], ["negative", "positive"]),
    "mrpc": (["sentence1", "sentence2"], ["not_equivalent", "equivalent"]),
    "stsb": (["sentence1", "sentence2"], None),
    "qqp": (["question1", "question2"], ["not_duplicate", "duplicate"]),
    "mnli": (["premise", "hypothesis"], ["entailment", "neutral", "contradiction"]),
    "qnli": (["question", "sentence"], ["entailment", "not_entailment"]),
    "rte": (["sentence1", "sentence2"], ["entailment", "not_entailment"]),
    "wnli": (["sentence1", "sentence2"], ["not_entailment", "entailment"]),
    "imdb": (["text"], ["neg", "pos"]),
}
SINGLE = {"cola", "sst2", "imdb"}

every_task = pytest.mark.parametrize("name", TASKS)


def rows_of(name, split="train"):
    """(first text, second text, label) of a few rows; with quotes that are never closed, as in many rows of GLUE."""
    labels = {"stsb": [4.2, 0.083, 2.333333, 5.0], "mnli": [1, 0, 1, 0, 2]}.get(name, [1, 0, 1, 0])
    return [(f'"{split} text {i}', f"it 's {i}", label) for i, label in enumerate(labels)]


def expected(name, split="train"):
    rows = rows_of(name, split)
    labels = [round(x, 4) if name == "stsb" else x for *_, x in rows]
    return Table([a if name in SINGLE else (a, b) for a, b, _ in rows], labels)


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_plain(folder, name, split="train", stem=None, words=False, suffix=".tsv.gz", change=lambda lines: lines):
    classes, single = HUB[name][1], name in SINGLE
    lines = ["sentence\tlabel" if single else "sentence\tsentence2\tlabel"]
    for a, b, label in rows_of(name, split):
        shown = classes[label] if words and classes else label
        lines.append(f"{a}\t{shown}" if single else f"{a}\t{b}\t{shown}")
    return write(folder / name / f"{stem or split}{suffix}", change(lines))


def write_official(folder, name, split="train", file=None):
    title, header, line = OFFICIAL[name]
    words = HUB[name][1]
    rows = [line.format(a=a, b=b, number=x, word=words and words[x]) for a, b, x in rows_of(name, split)]
    return write(folder / title / (file or f"{split}.tsv"), ([] if header is None else [header]) + rows)


def hub_rows(name, split="train", labels=None):
    columns, classes = HUB[name]
    rows = rows_of(name, split)
    data = {column: [row[i] for row in rows] for i, column in enumerate(columns)}
    kind = Value("float32") if classes is None else ClassLabel(names=classes)
    features = Features({**{column: Value("string") for column in columns}, "label": kind, "idx": Value("int32")})
    data |= {"label": labels or [row[2] for row in rows], "idx": list(range(len(rows)))}
    return Dataset.from_dict(data, features=features)


def refused(message, *call):
    with pytest.raises(DataError, match=message):
        load_task(*call)


# ---- the same rows from every layout ----


def test_the_tasks():
    assert list(TASKS) == list(HUB)
    assert [task.classes and list(task.classes) for task in TASKS.values()] == [classes for _, classes in HUB.values()]
    assert {name for name, task in TASKS.items() if not task.pair} == SINGLE
    assert [name for name, task in TASKS.items() if task.regression] == ["stsb"]
    assert TASKS["mnli"].splits == ("train", "dev", "dev_mismatched")


def test_the_papers_presets():
    usual = {"batch_size": 48, "max_length": 128, "metric": "accuracy"}
    usual |= {"learning_rate": 2e-5, "epochs": 3, "eval_batch_size": 128}
    others = {name: {key: getattr(task, key) for key in usual} for name, task in TASKS.items()}
    others = {name: dict(found.items() - usual.items()) for name, found in others.items()}
    assert {name: changes for name, changes in others.items() if changes} == {
        "cola": {"max_length": 64, "metric": "matthews"},
        "sst2": {"max_length": 64},
        "mrpc": {"metric": "f1"},
        "stsb": {"metric": "spearman"},
        "qqp": {"metric": "f1"},
        "mnli": {"batch_size": 32},
        "rte": {"batch_size": 16, "max_length": 256},
        "imdb": {"max_length": 256},
    }


@pytest.mark.parametrize("words", [False, True], ids=["numbers", "words"])
@pytest.mark.parametrize("above", ["", "glue"])
@every_task
def test_plain_files(tmp_path, name, above, words):
    for split in TASKS[name].splits:
        write_plain(tmp_path / above, name, split, words=words)
    for split in TASKS[name].splits:
        assert load_task(name, tmp_path, split) == expected(name, split)
        assert load_task(name, tmp_path / above / name, split) == expected(name, split)
    assert load_task(name, str(tmp_path)).where(0) == f"{tmp_path / above / name / 'train.tsv.gz'}, row 1"


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_official_download(tmp_path, name):
    for split in TASKS[name].splits:
        write_official(tmp_path, name, split, "dev_matched.tsv" if (name, split) == ("mnli", "dev") else None)
    for split in TASKS[name].splits:
        assert load_task(name, tmp_path, split) == expected(name, split)
        assert load_task(name, tmp_path / OFFICIAL[name][0], split) == expected(name, split)


@every_task
def test_the_hub(name):
    for split in TASKS[name].splits:
        table = table_from_hub(TASKS[name], split, hub_rows(name, split))
        assert table == expected(name, split)
        assert table_hash(table) == table_hash(expected(name, split))
        assert {type(label) for label in table.labels} == {float if name == "stsb" else int}


@pytest.mark.parametrize(
    ("name", "split", "stem"),
    [
        ("qqp", "dev", "dev_heldout"),
        ("mnli", "dev", "dev_matched"),
        ("mnli", "dev", "dev_matched_1k"),
        ("mnli", "dev_mismatched", "dev_mismatched_1k"),
        ("imdb", "dev", "test"),
    ],
)
def test_names_of_files(tmp_path, name, split, stem):
    write_plain(tmp_path, name, split, stem)
    assert load_task(name, tmp_path, split) == expected(name, split)


def test_an_exact_name_wins_and_two_others_are_refused(tmp_path):
    write_plain(tmp_path, "rte", "train", "train_a")
    write_plain(tmp_path, "rte", "train", "train_a", suffix=".tsv")
    assert load_task("rte", tmp_path) == expected("rte")
    write_plain(tmp_path, "rte", "train", "train_b")
    refused(r"holds train_a\.tsv, train_b\.tsv\.gz; keep one of them, or name it train", "rte", tmp_path)
    write_plain(tmp_path, "rte", "train")
    assert load_task("rte", tmp_path).source.endswith("train.tsv.gz")


def test_mrpc_as_its_authors_publish_it(tmp_path):
    for split, file in (("train", "msr_paraphrase_train.txt"), ("dev", "msr_paraphrase_test.txt")):
        write_official(tmp_path, "mrpc", split, file)
    (tmp_path / "MRPC" / "dev_ids.tsv").write_text("1\t2\n")
    assert load_task("mrpc", tmp_path, "dev") == expected("mrpc", "dev")
    # GLUE's dev rows are in the authors' train file: the two releases are never mixed.
    write_official(tmp_path, "mrpc", "dev")
    refused(r"no train file of MRPC.*there is only dev\.tsv", "mrpc", tmp_path, "train")


def test_rows_that_qqp_is_known_to_have_broken_are_left_out(tmp_path):
    file = write_official(tmp_path, "qqp")
    lines = file.read_text().splitlines()
    halves = ['9\t1\t2\t"cut by a line break', "in two?\tyes?\t0", "9\t1\t2\tempty?\t\t0"]
    file.write_text("\n".join([*lines[:2], *halves, *lines[2:]]))
    with pytest.warns(UserWarning, match=r"train\.tsv: left out 3 rows without text or label: 2, 3, 4"):
        table = load_task("qqp", tmp_path)
    assert table == expected("qqp")
    assert table.where(1).endswith("train.tsv, row 5")


# ---- broken data ----


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        # Rows instead of those that there are, from the header on.
        ("rte", [], "{file} has no rows"),
        ("rte", ["sentence\tsentence2\tlabel"], "{file} has no rows"),
        ("cola", ["sentence\tlabel"], "{file} has no rows"),
        ("rte", ["sentence\tlabel", "a\t0"], "{file}: RTE needs the columns 'sentence, sentence2, label' or"),
        ("cola", ["text\tlabel", "a\t0"], "{file}: CoLA needs the columns 'sentence, label'.*'text, label'"),
        ("rte", ["sentence\tsentence2\tlabel", "a\tb\t1"], "{file}: every label is 1; at least two"),
        ("stsb", ["sentence\tsentence2\tlabel", "a\tb\t4.2"], "{file}: every label is 4.2"),
        # A fifth row.
        ("sst2", "fine\t2", "{file}, row 5: unknown label 2; SST-2 has negative .0., positive"),
        ("sst2", "fine\tpos", "{file}, row 5: unknown label 'pos'"),
        ("sst2", "fine\t-1", "{file}, row 5: the label -1 stands for a hidden one"),
        ("rte", "a\tb", "{file}, row 5: no label in column 'label'"),
        ("rte", "a", "{file}, row 5: nothing in column 'sentence2'; is the row cut short"),
        ("rte", "a\t \t1", "{file}, row 5: the text in column 'sentence2' is empty"),
        ("rte", "a\tb\tc\t1", "{file}, row 5: unknown label 'c'"),
        ("stsb", "a\tb\tnan", "{file}, row 5: the target is nan; STS-B has numbers from 0 to 5"),
        ("stsb", "a\tb\t5.1", "{file}, row 5: the target is 5.1"),
        ("stsb", "a\tb\t-0.5", "{file}, row 5: the target is -0.5"),
        ("stsb", "a\tb\tx", "{file}, row 5: the label 'x' is not a number, but '4.2' in row 1"),
    ],
)
def test_broken_rows(tmp_path, name, rows, message):
    for split in ("train", "dev"):
        change = (lambda lines: [*lines, rows]) if isinstance(rows, str) else lambda lines: rows
        file = write_plain(tmp_path, name, split, suffix=".tsv", change=change)
        refused(message.replace("{file}", str(file)), name, tmp_path, split)


def test_a_class_that_train_lacks(tmp_path):
    for split in ("train", "dev"):
        write_plain(tmp_path, "mnli", split, change=lambda lines: lines[:-1])
    refused(r"train\.tsv\.gz: no row has the label 'contradiction'", "mnli", tmp_path)
    assert load_task("mnli", tmp_path, "dev").labels == [1, 0, 1, 0]


@pytest.mark.parametrize("damage", [lambda data: data[:-12], lambda _: b"no gzip", lambda data: data[:-8] + bytes(8)])
def test_a_broken_gzip(tmp_path, damage):
    file = write_plain(tmp_path, "rte")
    file.write_bytes(damage(file.read_bytes()))
    refused(rf"{file} is damaged after row \d+", "rte", tmp_path)


def test_folders_and_names_that_are_wrong(tmp_path):
    refused(rf"no such folder: {tmp_path / 'none'}", "rte", tmp_path / "none")
    refused(rf"no data of RTE: looked for train\.tsv.* in {tmp_path}, .*glue/RTE", "rte", tmp_path)
    write_plain(tmp_path, "cola")
    refused(r"cola is the folder of CoLA, not of SST-2; give the folder above it", "sst2", tmp_path / "cola")
    only = rf"no dev file of CoLA in {tmp_path / 'cola'}: looked for dev\.tsv.*there is only train\.tsv\.gz"
    refused(only, "cola", tmp_path, "dev")
    write_plain(tmp_path, "mnli", "dev_mismatched")  # never passes for the matched rows
    refused(r"no dev file of MNLI .*dev_matched\.tsv.*only dev_mismatched\.tsv\.gz", "mnli", tmp_path, "dev")
    for call, message in (
        (("sst-2", tmp_path), r"unknown task 'sst-2'; did you mean 'sst2'"),
        (("sst2", tmp_path, "test"), r"unknown split of SST-2 'test'.*Known: dev, train"),
    ):
        with pytest.raises(UnknownNameError, match=message):
            load_task(*call)


def test_what_the_hub_is_asked_for_and_what_to_do_without_it(monkeypatch):
    asked = []
    rows = hub_rows("mnli", "dev_mismatched")
    monkeypatch.setattr("datasets.load_dataset", lambda *name, split: asked.append((*name, split)) or rows)
    assert load_task("mnli", None, "dev_mismatched") == expected("mnli", "dev_mismatched")
    assert asked == [("nyu-mll/glue", "mnli", "validation_mismatched")]

    def offline(*name, split):
        raise ConnectionError("no route to the hub\nat all")

    monkeypatch.setattr("datasets.load_dataset", offline)
    message = r"SST-2 from the hub .*no route to the hub\. Give a local folder.*sst2/train.*SST-2/train"
    refused(message, "sst2", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"SST-2 from the hub needs datasets: .*'pyramid-bert\[hub\]'"):
        load_task("sst2", None)


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("rte", hub_rows("rte", labels=[1, -1, 0, 1]), r"glue rte validation, row 2: the label -1 stands for a hidden"),
        ("wnli", hub_rows("rte"), r"has the classes entailment, not_entailment; expected not_entailment, entail"),
        ("stsb", [{"premise": "a", "label": 1.0}], r"nyu-mll/glue stsb validation, row 1: no column 'sentence1'"),
    ],
)
def test_rows_of_the_hub_that_are_wrong(name, rows, message):
    with pytest.raises(DataError, match=message):
        table_from_hub(TASKS[name], "dev", rows)


# ---- samples and hashes ----


def test_a_sample_is_fixed_and_in_order():
    table = Table([f"text {i}" for i in range(50)], [i % 2 for i in range(50)], "file", [2 * i for i in range(50)])
    sample = sample_rows(table, 20, seed=3)
    assert sample == sample_rows(table, 20, seed=3)
    assert sample != sample_rows(table, 20, seed=4)
    assert len(sample.texts) == 20
    order = [table.texts.index(text) for text in sample.texts]
    assert order == sorted(set(order))
    assert sample.labels == [table.labels[i] for i in order]
    assert sample.where(0) == f"file, row {2 * order[0]}"
    # Written down once: it must not change with versions of anything.
    assert sample_rows(table, 5, seed=0).texts == [f"text {i}" for i in (15, 20, 36, 44, 46)]
    assert sample_rows(table, 50, seed=0) == table
    assert sample_rows(table, 99, seed=0) == table
    with pytest.raises(DataError, match="at least 1 row, got 0"):
        sample_rows(table, 0, seed=0)


def test_the_hash_sees_every_text_and_label():
    tables = [Table(["a", "b"], labels) for labels in ([0, 1], [1, 0], [0.0, 1.0], ["c"])]
    tables += [Table(texts, [0, 1]) for texts in (["b", "a"], ["a\nb"], [("a", "b")], ["a", "b", "c"])]
    tables += [Table(["a"], ["b", "c"])]
    assert len({table_hash(table) for table in tables}) == len(tables)
    assert table_hash(tables[0]) == table_hash(Table(["a", "b"], [0, 1], "elsewhere", [7, 9]))
