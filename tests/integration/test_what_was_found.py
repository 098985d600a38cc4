"""Faults that somebody found by trying: each was a raw error, a wrong message or a destroyed file."""

import json
import shutil

import pytest
import torch
from helpers import run
from safetensors.torch import load_file, save_file
from transformers import BertForMultipleChoice, BertForNextSentencePrediction

from pyramid_bert import PyramidClassifier, PyramidError, Schedule
from pyramid_bert.errors import CheckpointError, UnsupportedModelError
from pyramid_bert.training.settings import TrainSettings

SAVED = "classifier"


@pytest.fixture
def model(saved_dir, tmp_path):
    """A copy of a saved classifier that can be damaged."""
    return shutil.copytree(saved_dir / SAVED, tmp_path / "model")


@pytest.fixture
def saved_dir(request):
    return request.config.rootpath / "tests" / "data" / "saved"


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_weight_of_another_shape_is_named(model):
    weights = load_file(model / "model.safetensors")
    weights["classifier.weight"] = torch.cat([weights["classifier.weight"], weights["classifier.weight"][:1]])
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"classifier\.weight has the shape \(3, \d+\), and \(2, \d+\) is needed"):
        PyramidClassifier.load(model)


@pytest.mark.parametrize("kind", [BertForMultipleChoice, BertForNextSentencePrediction])
def test_other_heads_on_cls_are_refused_by_name(tiny_bert, tokenizer, tmp_path, kind):
    other = kind(tiny_bert().config)
    other.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(CheckpointError, match=f"holds a {kind.__name__}, which gives a text no label"):
        PyramidClassifier.load(tmp_path / "other")
    with pytest.raises(UnsupportedModelError, match=f"{kind.__name__} gives a text no label"):
        PyramidClassifier(other, tokenizer).fit(["a", "b"], [0, 1])


@pytest.mark.parametrize("change", [{"return_dict": False}, {"chunk_size_feed_forward": 3}, {"return_dict": "x"}])
def test_settings_that_change_no_answer_do_not_matter(model, saved_dir, change):
    texts = ["a fine film", "the worst story of the year"]
    before = PyramidClassifier.load(saved_dir / SAVED).predict_logits(texts)
    change_config(model, **change)
    assert PyramidClassifier.load(model).predict_logits(texts) == pytest.approx(before, abs=1e-6)


def test_a_page_does_not_replace_a_file_of_the_model(model, capsys):
    before = (model / "config.json").read_bytes()
    assert run("explain", model, "a fine film", "--html", model / "config.json") == 1
    assert "is inside of" in capsys.readouterr().err
    assert (model / "config.json").read_bytes() == before


def test_a_model_that_was_moved_aside_is_still_read(model, tmp_path, capsys):
    aside = tmp_path / ".model.old.abc"
    aside.mkdir()
    model.rename(aside / "model")
    assert run("predict", model, "a fine film") == 0
    assert not model.exists()  # reading changes nothing


def test_bools_from_files_of_text(tiny_bert, tokenizer, sentiment, tmp_path, capsys):
    texts, labels = sentiment(20)
    classifier = PyramidClassifier(tiny_bert(), tokenizer)
    classifier.fit(texts, [label == labels[0] for label in labels], epochs=0.1, progress=False)
    classifier.save(tmp_path / "bools")
    for name, spelled in (("upper.csv", "True"), ("lower.csv", "true")):
        (tmp_path / name).write_text(f"text,label\na fine film,{spelled}\na dull one,{spelled.replace('rue', 'RUE')}\n")
        assert run("evaluate", tmp_path / "bools", "--data", tmp_path / name) == 1
        assert "row 2: the label is" in capsys.readouterr().err
        (tmp_path / name).write_text(f"text,label\na fine film,{spelled}\n")
        assert run("evaluate", tmp_path / "bools", "--data", tmp_path / name, "--json") == 0
        capsys.readouterr()


def test_a_text_that_is_too_long_is_named_before_any_work(model, tmp_path, capsys):
    record = json.loads((model / "classifier.json").read_text())
    (model / "classifier.json").write_text(json.dumps({**record, "max_length": None}))
    long = "so dull " * 400
    (tmp_path / "in.csv").write_text(f"text\na fine film\nx\n{long}\n")
    out = tmp_path / "out.csv"
    assert run("predict", model, "--data", tmp_path / "in.csv", "--out", out) == 1
    said = capsys.readouterr().err
    assert "in.csv, row 3: the text has" in said
    assert "pass --max-length" in said
    assert not out.exists()
    for words in (("predict", model, long), ("explain", model, long)):
        assert run(*words) == 1
        assert "pass --max-length" in capsys.readouterr().err
    assert run("predict", model, "--data", tmp_path / "in.csv", "--out", out, "--max-length", 16) == 0
    assert len(out.read_text().splitlines()) == 4
    assert run("explain", model, long, "--max-length", 16) == 0


def test_texts_may_stand_behind_options(model, capsys):
    assert run("predict", model, "--batch-size", 4, "a fine film", "a dull one") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run("predict", model, "a fine film", "--batch-size", 4, "a dull one") == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("a dull one")


def test_a_performer_is_known_to_every_command(saved_dir, tmp_path, capsys):
    folder = shutil.copytree(saved_dir / "performer", tmp_path / "performer")
    for file in (saved_dir / SAVED).glob("tokenizer*"):
        shutil.copy(file, folder)
    assert run("predict", folder, "a fine film") == 0
    assert capsys.readouterr().out.endswith("a fine film\n")


def test_arguments_of_the_wrong_kind(tiny_bert, tokenizer, sentiment):
    texts, labels = sentiment(8)
    make = lambda: PyramidClassifier(tiny_bert(), tokenizer)  # noqa: E731
    for call, message in (
        (lambda: make().save(3), "folder must be a path, got int"),
        (lambda: make().save(None), "folder must be a path, got NoneType"),
        (lambda: make().fit(texts, labels, output_dir=3), "output_dir must be a path, got int"),
        (lambda: make().fit(texts, labels, levels=3), "levels must be a Sequence, got int"),
        (lambda: make().fit(texts, labels, teacher_outputs=3), "teacher_outputs must be an? Outputs, got int"),
        (lambda: make().set_params(model__foo=3), "model has no parameters of its own, got 'model__foo'"),
        (lambda: Schedule.for_speedup(tiny_bert(), 1.1, lengths=3), "lengths must be an? Iterable, got int"),
        (lambda: make().set_params(training__epochs="x"), "epochs must be a number"),
    ):
        with pytest.raises(PyramidError, match=message):
            call()
    assert make().set_params(training=TrainSettings(epochs=1)).get_params()["training__epochs"] == 1
