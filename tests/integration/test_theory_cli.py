"""`pyramid-bert theory` as people and programs use it."""

import json

import pytest
from helpers import output, run

from pyramid_bert import PyramidClassifier, Schedule, pyramidize
from pyramid_bert.text.labels import Labels

TEXTS = [
    "a good film with a strong story and a very funny cast",
    "the plot is thin and the end was a tired mess without any wit",
    "it is a sweet little tale about love and time",
    "i could not see why people enjoy this dull movie so much",
]
SCHEDULE = ("--keep-ratio", "0.4", "--last-layer", "3")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "dev.csv"
    lines = [f"{text},{label}" for text, label in zip(TEXTS, ["LABEL_0", "LABEL_1"] * 2, strict=True)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


def test_both_sides_as_a_table_and_as_json(capsys, tiny_model_dir, data):
    command = ("theory", tiny_model_dir, "--data", data, *SCHEDULE)
    shown = output(capsys, *command)
    for words in ("Theorem 1 allows", "observed", "own predictions"):
        assert words in " ".join(shown.split())
    labelled = (*command, "--json", "--label-column", "label", "--rows", "3")
    found = json.loads(output(capsys, *labelled))
    assert (found["inputs"], len(found["layers"])) == (3, 4)
    assert found["loss"] == "cross-entropy on the labels"
    assert found["observed"]["max"] > 0
    assert all(bound["least_margin"] >= -1e-9 for bound in found["bounds"].values())
    assert found["settings"]["reduce"] == "replace"
    assert "cpu" in found["machine"]
    assert json.loads(output(capsys, *labelled)) == found


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--rows", "0"), 2, "--rows and --directions must be at least 1, got 0 and 2"),
        (("--directions", "0"), 2, "got 64 and 0"),
        (("--reduce", "merge"), 2, "leave out --reduce and --weighted"),
        (("--label-column", "nothing"), 1, "nothing"),
        (("--selector", "corset"), 1, "did you mean 'coreset'"),
        (("--keep-ratio", "1"), 1, "keeps every token of the 4 texts"),
    ],
)
def test_wrong_calls(capsys, tiny_model_dir, data, arguments, code, message):
    assert run("theory", tiny_model_dir, "--data", data, *SCHEDULE, *arguments) == code
    assert message in capsys.readouterr().err


def test_a_pyramid_of_clusters_is_measured_as_a_core_set(capsys, tiny_bert, tokenizer, data, tmp_path):
    schedule = Schedule.exponential(0.4, 3)
    clusters = pyramidize(tiny_bert(), schedule, "cluster", metric="cosine", within=5)
    PyramidClassifier(clusters, tokenizer, labels=Labels(("bad", "good"))).save(tmp_path / "model")
    command = ("theory", tmp_path / "model", "--data", data)
    assert run(*command) == 1
    assert "--selector coreset" in capsys.readouterr().err
    settings = json.loads(output(capsys, *command, "--selector", "coreset", "--json"))["settings"]
    assert (settings["selector"], settings["metric"], settings["within"]) == ("coreset", "cosine", None)
    assert settings["schedule"] == schedule.to_dict()
    assert run(*command, "--selector", "coreset", "--within", "5") == 1
    assert "within goes with the selector 'cluster'" in capsys.readouterr().err


def test_files_and_models_that_cannot_be_measured(capsys, tiny_model_dir, tiny_bert, tokenizer, data, tmp_path):
    def fails(message, model, *options):
        assert run("theory", model, "--data", data, *SCHEDULE, *options) == 1
        assert message in capsys.readouterr().err

    bare = tmp_path / "bare"
    tiny_bert().bert.save_pretrained(bare)
    tokenizer.save_pretrained(bare)
    fails("encoder without a trained classifier", bare)
    data.write_text("text,label\n")
    fails("has no rows", tiny_model_dir)
    data.write_text("text,label\na good film with a strong story,meh\n")
    fails("'meh', which the model does not know", tiny_model_dir, "--label-column", "label")
