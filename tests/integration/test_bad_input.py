"""Bad input gets a clear error, before any work is done."""

import gzip
import os

import pytest
import torch
from transformers import BertForTokenClassification

from pyramid_bert import PyramidClassifier, Schedule, pyramidize
from pyramid_bert.errors import CheckpointError, DataError, PyramidError, UnknownNameError, UnsupportedModelError
from pyramid_bert.families.bert import key_mask
from pyramid_bert.text.tables import read_table

SCHEDULE = Schedule.constant(0.5)


@pytest.fixture
def untrained(tiny_model_dir):
    return PyramidClassifier.from_pretrained(tiny_model_dir, SCHEDULE)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["fine", " "], ["a", "b"], "text 1 is empty"),
        (["fine", ""], ["a", "b"], "text 1 is empty"),
        ([], [], "no texts given"),
        (["fine"], ["a", "b"], "2 labels for 1 texts"),
        (["fine", "dull"], ["a", "a"], "at least two classes, all labels are 'a'"),
        (["fine", "dull"], ["a", 1], "all strings, all ints or all floats, got int, str"),
        (["fine", "dull"], [1.0, float("nan")], "label 1 is nan"),
        ([("fine", "film"), "dull"], ["a", "b"], "text 1 should be a pair of texts"),
        ([None, "dull"], ["a", "b"], "text 0 should be a text, got None"),
        (["fine", float("nan")], ["a", "b"], "text 1 should be a text, got nan"),
        ([b"fine", "dull"], ["a", "b"], "text 0 should be a text, got b'fine'"),
        (["fine", "dull"], [True, False], "labels must be strings, ints or floats, got bool"),
        (["fine " * 200, "dull"], ["a", "b"], "text 0 has 202 tokens and the model reads at most 128.*max_length=128"),
    ],
)
def test_texts_and_labels(untrained, texts, labels, message):
    with pytest.raises(DataError, match=message):
        untrained.fit(texts, labels)


def test_one_text_instead_of_a_list(untrained):
    with pytest.raises(DataError, match=r"put it into a list"):
        untrained.predict("a fine film")


def test_long_texts_are_cut_when_asked_for(tiny_model_dir):
    clf = PyramidClassifier.from_pretrained(tiny_model_dir, SCHEDULE, max_length=32)
    assert clf.predict(["fine " * 200]).shape == (1,)
    with pytest.raises(DataError, match=r"max_length must be an integer in 2-128, got 500"):
        PyramidClassifier.from_pretrained(tiny_model_dir, SCHEDULE, max_length=500).predict(["fine"])


def test_settings_are_checked_before_the_model_is_touched(tiny_bert):
    model = tiny_bert()
    encoder = model.bert.encoder
    for call, error, message in [
        (lambda: Schedule.exponential(1.5, 3), PyramidError, r"keep_ratio must be in \(0, 1\], got 1.5"),
        (lambda: pyramidize(model, Schedule.exponential(0.5, 7)), PyramidError, "last_layer must be in 1-4, got 7"),
        (lambda: pyramidize(model, SCHEDULE, "corset"), UnknownNameError, "did you mean 'coreset'"),
        (lambda: pyramidize(model, SCHEDULE, reduce="merg"), UnknownNameError, "did you mean 'merge'"),
        (lambda: pyramidize(model, SCHEDULE, centers_per_step=0), PyramidError, "centers_per_step must be"),
        (lambda: pyramidize(model, 0.5), PyramidError, "schedule must be a Schedule, got float"),
        (lambda: pyramidize(model), PyramidError, "needs a schedule"),
        (lambda: pyramidize(model, Schedule.input_only(0.5), "attention"), PyramidError, "cannot select at the input"),
    ]:
        with pytest.raises(error, match=message):
            call()
    assert model.bert.encoder is encoder


def test_model_folders(tmp_path, tiny_model_dir):
    def load(path):
        return PyramidClassifier.from_pretrained(path, SCHEDULE)

    with pytest.raises(CheckpointError, match="no model folder at"):
        load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        load(tmp_path)
    config = (tiny_model_dir / "config.json").read_bytes()
    (tmp_path / "config.json").write_bytes(config)
    with pytest.raises(CheckpointError, match=r"no \.safetensors file: no weights"):
        load(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(CheckpointError, match="pickles, which are never loaded"):
        load(tmp_path)
    weights = (tiny_model_dir / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        load(tmp_path)


def test_a_checkpoint_without_some_weights(tmp_path, tiny_model_dir):
    from safetensors.torch import load_file, save_file

    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_model_dir / name).read_bytes())
    weights = load_file(tiny_model_dir / "model.safetensors")
    del weights["bert.encoder.layer.2.output.dense.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks weights.*layer\.2\.output\.dense\.weight"):
        PyramidClassifier.from_pretrained(tmp_path, SCHEDULE)


def test_a_hub_name_that_cannot_be_had():
    with pytest.raises(CheckpointError, match="neither a folder nor a model that the hub gives: no/such-model"):
        PyramidClassifier.from_pretrained("no/such-model", SCHEDULE)


@pytest.mark.parametrize("kind", ["tokens", "several"])
def test_a_head_that_does_not_give_a_text_one_label_is_no_classifier(tmp_path, tiny_bert, tokenizer, kind):
    model = tiny_bert(labels=3)
    if kind == "tokens":
        model = BertForTokenClassification(model.config)
    else:
        model.config.problem_type = "multi_label_classification"
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"BertFor\w+\) holds an encoder without a trained classifier that gives a"
    ):
        PyramidClassifier.load(tmp_path)
    assert PyramidClassifier.from_pretrained(tmp_path, SCHEDULE).labels is None


def test_predicting_before_training(tmp_path, tiny_bert, tokenizer):
    tiny_bert().bert.save_pretrained(tmp_path)  # an encoder without a classifier
    tokenizer.save_pretrained(tmp_path)
    clf = PyramidClassifier.from_pretrained(tmp_path, SCHEDULE)
    with pytest.raises(PyramidError, match="no trained classifier yet; call fit"):
        clf.predict(["fine"])
    with pytest.raises(CheckpointError, match="without a trained classifier"):
        PyramidClassifier.load(tmp_path)


def test_an_output_folder_that_cannot_be_written(tmp_path, untrained):
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        with pytest.raises(PyramidError, match=r"cannot write to .*is a file"):
            untrained.fit(["fine", "dull"], ["a", "b"], output_dir=folder)
        with pytest.raises(PyramidError, match=r"cannot write to .*is a file"):
            untrained.save(folder)
    if os.geteuid() != 0:  # root may write anywhere
        tmp_path.chmod(0o500)
        with pytest.raises(PyramidError, match="cannot write to"):
            untrained.save(tmp_path / "model")


def test_masks_that_a_pyramid_cannot_serve(tiny_bert, tiny_batch):
    model = pyramidize(tiny_bert(), SCHEDULE)
    batch = tiny_batch([6, 9])
    batch["attention_mask"] = batch["attention_mask"].flip(1)
    with pytest.raises(PyramidError, match=r"row 0 masks its first token.*padding_side"):
        model(**batch)
    causal = torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    with pytest.raises(UnsupportedModelError, match="differs between queries"):
        key_mask(causal)
    with pytest.raises(UnsupportedModelError, match="adds a bias"):
        key_mask(torch.full((2, 1, 1, 9), -0.5))
    with pytest.raises(UnsupportedModelError, match=r"got \(2, 9, 9\)"):
        key_mask(torch.ones(2, 9, 9))


def test_attention_selection_on_a_backbone_that_cannot_give_it():
    from pyramid_bert.core.selectors import Candidates, get_selector

    with pytest.raises(PyramidError, match="selection by attention needs the attention that tokens receive"):
        get_selector("attention").rank(Candidates(torch.zeros(1, 4, 2)), 2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\n", "has no rows"),
        ("a.csv", "", "has no rows"),
        ("a.csv", "text,label\nfine,\n", r"a\.csv, row 1: no label"),
        ("a.csv", "text,label\nfine,1\n ,0\n", r"a\.csv, row 2: the text in column 'text' is empty"),
        ("a.csv", "sentence,label\nfine,1\n", r"no column 'text'; the columns are 'sentence', 'label'"),
        ("a.jsonl", '{"text": "fine", "label": 1}\n{"text":\n', r"a\.jsonl, row 2: not JSON"),
        ("a.jsonl", '{"text": 7, "label": 1}\n', "holds 7, not text"),
        ("a.xlsx", "?", "cannot tell the format"),
        ("a.parquet", "text", "is not a Parquet file"),
    ],
)
def test_data_files(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / name)


def test_broken_and_missing_files(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "none.csv")
    packed = gzip.compress(b"text,label\n" + b"fine,1\n" * 5000)
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match=r"cut\.csv\.gz is damaged"):
        read_table(tmp_path / "cut.csv.gz")
    (tmp_path / "latin.csv").write_bytes("text,label\ncafé,1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"not UTF-8"):
        read_table(tmp_path / "latin.csv")
