"""Bad input gets a clear error, before any work is done."""

import os

import pytest
import torch
from safetensors.torch import load_file, save
from transformers import BertForTokenClassification

from pyramid_bert import PyramidClassifier, Schedule, pyramidize
from pyramid_bert.errors import CheckpointError, DataError, PyramidError, UnknownNameError, UnsupportedModelError
from pyramid_bert.families.attention import key_mask

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
        (["fine", "dull"], ["a", 1], "all bools or all floats, got int, str"),
        (["fine", "dull"], [1.0, float("nan")], "label 1 is nan"),
        ([("fine", "film"), "dull"], ["a", "b"], "text 1 should be a pair of texts"),
        ([None, "dull"], ["a", "b"], "text 0 should be a text, got None"),
        (["fine", float("nan")], ["a", "b"], "text 1 should be a text, got nan"),
        ([b"fine", "dull"], ["a", "b"], "text 0 should be a text, got b'fine'"),
        (["fine", "dull"], [True, "a"], "all bools or all floats, got bool, str"),
        (["fine", "dull"], [None, None], "labels must be strings, ints, bools or floats, got NoneType"),
        (["fine", "dull"], [0.0, 1.0], "Say which with target"),
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
    whole = (tiny_model_dir / "model.safetensors").read_bytes()
    lacking = load_file(tiny_model_dir / "model.safetensors")
    del lacking["bert.encoder.layer.2.output.dense.weight"]
    folder = tmp_path / "model"
    for name, content, message in (
        (None, b"", "no model folder at"),
        ("notes.txt", b"", r"no config\.json"),
        ("config.json", (tiny_model_dir / "config.json").read_bytes(), r"no model\.safetensors: no weights"),
        ("pytorch_model.bin", b"pickle", "pickles, which are never loaded"),
        ("model.safetensors", whole[: len(whole) // 2], r"model\.safetensors is damaged"),
        ("model.safetensors", save(lacking, {"format": "pt"}), r"lacks weights.*layer\.2\.output\.dense\.weight"),
        ("config.json", b"{", r"config\.json is damaged"),
    ):
        if name is not None:
            folder.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            PyramidClassifier.from_pretrained(folder, SCHEDULE)


def test_a_hub_name_that_cannot_be_had():
    with pytest.raises(CheckpointError, match="no model folder at no/such-model, and the hub gave none"):
        PyramidClassifier.from_pretrained("no/such-model", SCHEDULE)


@pytest.mark.parametrize("kind", ["tokens", "several", "encoder"])
def test_a_model_without_a_head_that_gives_a_text_one_label(tmp_path, tiny_bert, tokenizer, kind):
    model = tiny_bert(labels=3)
    if kind == "several":
        model.config.problem_type = "multi_label_classification"
    else:
        model = model.bert if kind == "encoder" else BertForTokenClassification(model.config)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"Bert\w+\) holds an encoder without a trained classifier that gives a"):
        PyramidClassifier.load(tmp_path)
    with pytest.raises(PyramidError, match="no trained classifier yet; call fit"):
        PyramidClassifier.from_pretrained(tmp_path, SCHEDULE).predict(["fine"])


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
