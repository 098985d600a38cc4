"""The GLUE tasks: the same rows from every layout, and clear words about every kind of broken data."""

import gzip
import sys

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from pyramid_bert.errors import DataError, MissingExtraError, UnknownNameError
from pyramid_bert.lab.glue.tasks import TASKS, load_task, table_from_hub
from pyramid_bert.text.sampling import sample_rows, table_hash
from pyramid_bert.text.tables import Table

MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
    "\tsentence1\tsentence2\t{labels}\tgold_label"
)
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
    "qqp": (
        "QQP",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "133273\t213221\t213222\t{a}\t{b}\t{number}",
    ),
    "mnli": (
        "MNLI",
        MNLI.format(labels="label1\tlabel2\tlabel3\tlabel4\tlabel5"),
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
    """(first text, second text, label) of a few rows; with quotes that close nowhere, which GLUE is full of."""
    labels = [4.2, 0.083, 2.333333, 5.0] if name == "stsb" else [1, 0, 1, 0, 2] if name == "mnli" else [1, 0, 1, 0]
    return [(f'"{split} text {i}', f"it 's {i}", label) for i, label in enumerate(labels)]


def expected(name, split="train"):
    rows = rows_of(name, split)
    return Table(
        [a if name in SINGLE else (a, b) for a, b, _ in rows], [round(x, 4) if name == "stsb" else x for *_, x in rows]
    )


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_plain(folder, name, split="train", stem=None, words=False, suffix=".tsv.gz"):
    classes = HUB[name][1]
    single = name in SINGLE
    lines = ["sentence\tlabel" if single else "sentence\tsentence2\tlabel"]
    for a, b, label in rows_of(name, split):
        shown = classes[label] if words and classes else label
        lines.append(f"{a}\t{shown}" if single else f"{a}\t{b}\t{shown}")
    write(folder / name / f"{stem or split}{suffix}", lines)


def write_official(folder, name, split="train", stem=None):
    title, header, line = OFFICIAL[name]
    words = HUB[name][1]
    lines = [] if header is None else [header]
    for a, b, label in rows_of(name, split):
        lines.append(line.format(a=a, b=b, number=label, word=words and words[label]))
    write(folder / title / f"{stem or split}.tsv", lines)


def hub_rows(name, split="train", labels=None):
    columns, classes = HUB[name]
    rows = rows_of(name, split)
    data = {column: [row[i] for row in rows] for i, column in enumerate(columns)}
    kind = Value("float32") if classes is None else ClassLabel(names=classes)
    features = Features({**{column: Value("string") for column in columns}, "label": kind, "idx": Value("int32")})
    data |= {"label": labels or [row[2] for row in rows], "idx": list(range(len(rows)))}
    return Dataset.from_dict(data, features=features)


# ---- the same rows from every layout ----


def test_the_tasks():
    assert list(TASKS) == ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "imdb"]
    assert {name: list(task.classes) if task.classes else None for name, task in TASKS.items()} == {
        name: classes for name, (_, classes) in HUB.items()
    }
    assert [name for name, task in TASKS.items() if not task.pair] == ["cola", "sst2", "imdb"]
    assert [name for name, task in TASKS.items() if task.regression] == ["stsb"]
    assert TASKS["mnli"].splits == ("train", "dev", "dev_mismatched")


def test_the_papers_presets():
    assert {task.learning_rate for task in TASKS.values()} == {2e-5}
    assert {task.epochs for task in TASKS.values()} == {3}
    assert {task.eval_batch_size for task in TASKS.values()} == {128}
    sizes = {name: task.batch_size for name, task in TASKS.items()}
    assert {name: size for name, size in sizes.items() if size != 48} == {"mnli": 32, "rte": 16}
    lengths = {name: task.max_length for name, task in TASKS.items()}
    assert {name: n for name, n in lengths.items() if n != 128} == {"cola": 64, "sst2": 64, "rte": 256, "imdb": 256}
    metrics = {name: task.metric for name, task in TASKS.items()}
    other = {"cola": "matthews", "mrpc": "f1", "stsb": "spearman", "qqp": "f1"}
    assert {name: metric for name, metric in metrics.items() if metric != "accuracy"} == other


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
    stems = {"dev": "dev_matched"} if name == "mnli" else {}
    for split in TASKS[name].splits:
        write_official(tmp_path, name, split, stems.get(split))
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
        ("qqp", "train", "train_sub"),
        ("mnli", "dev", "dev_matched"),
        ("mnli", "dev", "dev_matched_1k"),
        ("mnli", "dev_mismatched", "dev_mismatched_1k"),
        ("imdb", "dev", "test"),
    ],
)
def test_names_of_files(tmp_path, name, split, stem):
    write_plain(tmp_path, name, split, stem)
    assert load_task(name, tmp_path, split) == expected(name, split)


def test_mismatched_rows_never_pass_for_matched_ones(tmp_path):
    write_plain(tmp_path, "mnli", "dev_mismatched")
    with pytest.raises(DataError, match=r"no dev file of MNLI .*dev_matched\.tsv.*only dev_mismatched\.tsv\.gz"):
        load_task("mnli", tmp_path, "dev")


def test_an_exact_name_wins_and_two_others_are_refused(tmp_path):
    write_plain(tmp_path, "rte", "train", "train_a")
    write_plain(tmp_path, "rte", "train", "train_a", suffix=".tsv")
    assert load_task("rte", tmp_path) == expected("rte")
    write_plain(tmp_path, "rte", "train", "train_b")
    with pytest.raises(DataError, match=r"holds train_a\.tsv, train_b\.tsv\.gz; keep one of them, or name it train"):
        load_task("rte", tmp_path)
    write_plain(tmp_path, "rte", "train")
    assert load_task("rte", tmp_path).source.endswith("train.tsv.gz")


def test_mrpc_as_its_makers_publish_it(tmp_path):
    for split, file in (("train", "msr_paraphrase_train.txt"), ("dev", "msr_paraphrase_test.txt")):
        write_official(tmp_path, "mrpc", split)
        (tmp_path / "MRPC" / f"{split}.tsv").rename(tmp_path / "MRPC" / file)
    (tmp_path / "MRPC" / "dev_ids.tsv").write_text("1\t2\n")
    assert load_task("mrpc", tmp_path, "dev") == expected("mrpc", "dev")
    # GLUE's dev rows are in the makers' train file: the two releases are never mixed.
    write_official(tmp_path, "mrpc", "dev")
    with pytest.raises(DataError, match=r"no train file of MRPC.*there is only dev\.tsv"):
        load_task("mrpc", tmp_path, "train")


def test_rows_that_qqp_is_known_to_have_broken_are_left_out(tmp_path):
    write_official(tmp_path, "qqp")
    file = tmp_path / "QQP" / "train.tsv"
    lines = file.read_text().splitlines()
    halves = ['9\t1\t2\t"cut by a line break', "in two?\tyes?\t0", "9\t1\t2\tempty?\t\t0"]
    file.write_text("\n".join([*lines[:2], *halves, *lines[2:]]))
    with pytest.warns(UserWarning, match=r"train\.tsv: left out 3 rows without text or label: 2, 3, 4"):
        table = load_task("qqp", tmp_path)
    assert table == expected("qqp")
    assert table.where(1).endswith("train.tsv, row 5")


# ---- broken data ----


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("rte", lambda lines: [], "{file} has no rows"),
        ("rte", lambda lines: lines[:1], "{file} has no rows"),
        ("cola", lambda lines: lines[:1], "{file} has no rows"),
        (
            "rte",
            lambda lines: ["sentence\tlabel", "a\t0"],
            "{file}: RTE needs the columns 'sentence, sentence2, label' or",
        ),
        (
            "cola",
            lambda lines: ["text\tlabel", "a\t0"],
            "{file}: CoLA needs the columns 'sentence, label'.*'text, label'",
        ),
        ("sst2", lambda lines: [*lines, "fine\t2"], "{file}, row 5: unknown label 2; SST-2 has negative .0., positive"),
        ("sst2", lambda lines: [*lines, "fine\tpos"], "{file}, row 5: unknown label 'pos'"),
        ("sst2", lambda lines: [*lines, "fine\t-1"], "{file}, row 5: the label -1 stands for a hidden one"),
        ("rte", lambda lines: [*lines, "a\tb\tneutral"], "{file}, row 5: unknown label 'neutral'"),
        ("rte", lambda lines: [*lines, "a\tb"], "{file}, row 5: no label in column 'label'"),
        ("rte", lambda lines: [*lines, "a"], "{file}, row 5: nothing in column 'sentence2'; is the row cut short"),
        ("rte", lambda lines: [*lines, "a\t \t1"], "{file}, row 5: the text in column 'sentence2' is empty"),
        ("rte", lambda lines: [*lines, "a\tb\tc\t1"], "{file}, row 5: unknown label 'c'"),
        ("rte", lambda lines: lines[:2], "{file}: every label is 1; at least two"),
        (
            "stsb",
            lambda lines: [*lines, "a\tb\tnan"],
            "{file}, row 5: the target is nan; STS-B has numbers from 0 to 5",
        ),
        ("stsb", lambda lines: [*lines, "a\tb\tinf"], "{file}, row 5: the target is inf"),
        ("stsb", lambda lines: [*lines, "a\tb\t5.1"], "{file}, row 5: the target is 5.1"),
        ("stsb", lambda lines: [*lines, "a\tb\t-0.5"], "{file}, row 5: the target is -0.5"),
        ("stsb", lambda lines: [*lines, "a\tb\tx"], "{file}, row 5: the label 'x' is not a number, but '4.2' in row 1"),
        ("stsb", lambda lines: lines[:2], "{file}: every label is 4.2"),
    ],
)
def test_broken_rows(tmp_path, name, change, message, split):
    write_plain(tmp_path, name, split, suffix=".tsv")
    file = tmp_path / name / f"{split}.tsv"
    file.write_text("\n".join(change(file.read_text().splitlines())))
    with pytest.raises(DataError, match=message.replace("{file}", str(file))):
        load_task(name, tmp_path, split)


def test_a_class_that_train_lacks(tmp_path):
    for split in ("train", "dev"):
        write_plain(tmp_path, "mnli", split, suffix=".tsv")
        file = tmp_path / "mnli" / f"{split}.tsv"
        file.write_text("\n".join(file.read_text().splitlines()[:-1]))
    with pytest.raises(DataError, match=r"train\.tsv: no row has the label 'contradiction'"):
        load_task("mnli", tmp_path)
    assert load_task("mnli", tmp_path, "dev").labels == [1, 0, 1, 0]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-12], lambda data: b"no gzip", lambda data: data[:-8] + bytes(8)]
)
def test_a_broken_gzip(tmp_path, damage):
    write_plain(tmp_path, "rte")
    file = tmp_path / "rte" / "train.tsv.gz"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=rf"{file} is damaged after row \d+"):
        load_task("rte", tmp_path)


@every_task
@pytest.mark.parametrize(("there", "missing"), [("train", "dev"), ("dev", "train")])
def test_half_of_the_files(tmp_path, name, there, missing):
    write_plain(tmp_path, name, there)
    assert load_task(name, tmp_path, there) == expected(name, there)
    title = TASKS[name].title
    message = rf"no {missing} file of {title} in {tmp_path / name}: looked for .*\.tsv.*there is only {there}\.tsv\.gz"
    with pytest.raises(DataError, match=message):
        load_task(name, tmp_path, missing)


def test_folders_that_are_wrong(tmp_path):
    with pytest.raises(DataError, match=rf"no such folder: {tmp_path / 'none'}"):
        load_task("rte", tmp_path / "none")
    with pytest.raises(DataError, match=rf"no data of RTE: looked for train\.tsv.* in {tmp_path}, .*glue/RTE"):
        load_task("rte", tmp_path)
    write_plain(tmp_path, "cola")
    with pytest.raises(DataError, match=r"cola is the folder of CoLA, not of SST-2; give the folder above it"):
        load_task("sst2", tmp_path / "cola")


def test_names_that_are_wrong(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown task 'sst-2'; did you mean 'sst2'"):
        load_task("sst-2", tmp_path)
    with pytest.raises(UnknownNameError, match=r"unknown split of SST-2 'test'.*Known: dev, train"):
        load_task("sst2", tmp_path, "test")


def test_a_hub_out_of_reach_names_the_local_ways(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("no route to the hub\nat all")

    monkeypatch.setattr("datasets.load_dataset", offline)
    with pytest.raises(
        DataError, match=r"SST-2 from the hub .*no route to the hub\. Give a local folder.*sst2/train.*SST-2/train"
    ):
        load_task("sst2", None)


def test_the_hub_is_asked_for_the_right_rows(monkeypatch):
    asked = []

    def load(repository, configuration, split):
        asked.append((repository, configuration, split))
        return hub_rows("mnli", "dev_mismatched")

    monkeypatch.setattr("datasets.load_dataset", load)
    assert load_task("mnli", None, "dev_mismatched") == expected("mnli", "dev_mismatched")
    assert asked == [("nyu-mll/glue", "mnli", "validation_mismatched")]


def test_datasets_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        MissingExtraError, match=r"SST-2 from the hub needs datasets: pip install 'pyramid-bert\[hub\]'"
    ):
        load_task("sst2", None)


def test_hidden_labels_and_other_classes_on_the_hub():
    with pytest.raises(DataError, match=r"nyu-mll/glue rte validation, row 2: the label -1 stands for a hidden one"):
        table_from_hub(TASKS["rte"], "dev", hub_rows("rte", labels=[1, -1, 0, 1]))
    with pytest.raises(DataError, match=r"has the classes entailment, not_entailment; expected not_entailment, entail"):
        table_from_hub(TASKS["wnli"], "dev", hub_rows("rte"))
    with pytest.raises(DataError, match=r"nyu-mll/glue stsb validation, row 1: no column 'sentence1'"):
        table_from_hub(TASKS["stsb"], "dev", [{"premise": "a", "label": 1.0}])


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
    tables = [
        Table(["a", "b"], [0, 1]),
        Table(["a", "b"], [1, 0]),
        Table(["b", "a"], [0, 1]),
        Table(["a", "b"], [0.0, 1.0]),
        Table(["a\nb"], [0, 1]),
        Table([("a", "b")], [0, 1]),
        Table(["a", "b", "c"], [0, 1]),
        Table(["a", "b"], ["c"]),
        Table(["a"], ["b", "c"]),
    ]
    assert len({table_hash(table) for table in tables}) == len(tables)
    assert table_hash(tables[0]) == table_hash(Table(["a", "b"], [0, 1], "elsewhere", [7, 9]))
