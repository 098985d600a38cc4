"""Training to the end, stopped on the way, and resumed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from helpers import FAST, fresh, run, same, stopped_at, weights
from safetensors import SafetensorError

from pyramid_bert import PyramidClassifier
from pyramid_bert.core import distances as distance
from pyramid_bert.errors import CheckpointError, PyramidError
from pyramid_bert.files import only_writer
from pyramid_bert.training import LengthSampler, TrainSettings
from pyramid_bert.training.checkpoints import last_complete_checkpoint


@pytest.mark.parametrize("selector", ["coreset", "random"])
@pytest.mark.parametrize("stop", [7, 13])  # in the middle of the first and of the second epoch
def test_a_stopped_run_ends_with_the_weights_of_an_unstopped_one(tiny_model_dir, tmp_path, sentiment, stop, selector):
    data = sentiment(150)
    whole = fresh(tiny_model_dir, selector=selector).fit(*data, **FAST, output_dir=tmp_path / "whole")
    with stopped_at(stop):
        fresh(tiny_model_dir, selector=selector).fit(*data, **FAST, output_dir=tmp_path / "parts")
    assert last_complete_checkpoint(tmp_path / "parts") is not None
    resumed = fresh(tiny_model_dir, selector=selector).fit(*data, **FAST, output_dir=tmp_path / "parts")
    assert same(weights(resumed), weights(whole))


def test_a_killed_command_goes_on_where_it_was(tiny_model_dir, tmp_path, sentiment_files, weights_in):
    def command(out):
        return [
            *(sys.executable, "-m", "pyramid_bert", "train", "--model", str(tiny_model_dir), "--out", str(out)),
            *("--train", str(sentiment_files / "train.csv"), "--epochs", "5", "--learning-rate", "1e-3"),
            *("--batch-size", "8", "--keep-ratio", "0.5", "--last-layer", "2"),
        ]

    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # tensors are tiny: threads would wait for one another
    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True, env=one_thread)
    process = subprocess.Popen(command(tmp_path / "killed"), stderr=subprocess.DEVNULL, env=one_thread)
    checkpoints = tmp_path / "killed" / "checkpoints"
    while last_complete_checkpoint(checkpoints) is None:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "config.json").exists()
    subprocess.run(command(tmp_path / "killed"), check=True, capture_output=True, env=one_thread)
    assert same(weights_in(tmp_path / "killed"), weights_in(tmp_path / "whole"))
    assert not checkpoints.exists()


def test_one_fit_at_a_time_writes_to_a_folder(tiny_model_dir, tmp_path, sentiment):
    with only_writer(tmp_path / "run"), pytest.raises(PyramidError, match="another process is writing"):
        fresh(tiny_model_dir).fit(*sentiment(20), **FAST, output_dir=tmp_path / "run")
    assert list((tmp_path / "run").glob("*")) == []


def test_train_resumes_its_own_work_or_starts_over(capsys, tiny_model_dir, tmp_path, sentiment_files):
    def call(*more):
        words = ("train", "--model", tiny_model_dir, "--out", tmp_path / "out", "--epochs", 1, *more)
        return run(*words, "--train", sentiment_files / "train.csv", "--keep-ratio", 0.5, "--last-layer", 2)

    with only_writer(tmp_path / "out"):
        assert call() == 1
    assert "another process" in capsys.readouterr().err
    with stopped_at(6, escapes=False):
        assert call() == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert call("--seed", 1) == 1
    assert re.search(r"different: seed\b.*--restart", capsys.readouterr().err)
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert call() == 0
    assert "resuming from step 4" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "out")
    shutil.copytree(tmp_path / "copy", tmp_path / "out")
    (tmp_path / "out" / "checkpoints" / "run.json").write_text("[" * 99999)
    assert call() == 1
    (line,) = [line for line in capsys.readouterr().err.split("\n") if line.startswith("pyramid-bert:")]
    assert "--restart" in line
    assert call("--seed", 1, "--restart") == 0
    assert "resuming" not in capsys.readouterr().err


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left")])
def test_a_full_disk_is_told_in_one_line(tiny_model_dir, tmp_path, sentiment, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("pyramid_bert.training.checkpoints.save_file", fails)
    with pytest.raises(CheckpointError, match=r"cannot write a checkpoint to .*No space left"):
        fresh(tiny_model_dir).fit(*sentiment(64), **FAST, output_dir=tmp_path)
    clf = PyramidClassifier.load(tiny_model_dir)
    monkeypatch.setattr(clf.model, "save_pretrained", fails)
    with pytest.raises(PyramidError, match=r"cannot write .*No space left"):
        clf.save(tmp_path / "model")


def test_a_stopped_fit_leaves_a_model_that_predicts(tiny_model_dir, sentiment):
    clf = fresh(tiny_model_dir)
    with stopped_at(2):
        clf.fit(*sentiment(64), **FAST)
    assert not any(module.training for module in clf.model.modules())


@pytest.mark.parametrize(
    ("file", "content"),
    [("model.safetensors", "half"), ("model.safetensors", None), ("trainer_state.json", '{"half":')],
)
def test_a_checkpoint_that_is_not_complete_is_passed_over(tiny_model_dir, tmp_path, sentiment, file, content):
    data = sentiment(64)
    whole = fresh(tiny_model_dir).fit(*data, **FAST, output_dir=tmp_path)
    newest = last_complete_checkpoint(tmp_path)
    (newest / file).unlink()
    if content is not None:
        (newest / file).write_text(content)
    assert last_complete_checkpoint(tmp_path) not in (None, newest)
    again = fresh(tiny_model_dir).fit(*data, **FAST, output_dir=tmp_path)
    assert same(weights(again), weights(whole))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("epochs", (float("inf"), "3")),
        ("batch_size", (2.5, 0)),
        ("seed", (-1,)),
        ("warmup_ratio", (2,)),
        ("dropout", (1,)),
        ("patience", (0,)),
        ("bf16", (1, 0.0, "true", None)),
    ],
)
def test_settings_are_checked(name, values):
    for value in values:
        with pytest.raises(PyramidError, match=f"{name} must be (an?|true or) .*got {value!r}"):
            TrainSettings(**{name: value})


@pytest.mark.parametrize("dropout", [None, 0.0, 0.5])
def test_dropout_is_another_one_while_learning(tiny_model_dir, sentiment, dropout):
    clf = fresh(tiny_model_dir)
    layer = clf.model.bert.encoder.layer[0]
    own, seen = layer.output.dropout.p, []
    layer.output.register_forward_hook(
        lambda *_: seen.append((layer.output.dropout.p, layer.attention.self.dropout.p, clf.model.dropout.p))
    )
    clf.fit(*sentiment(16), **FAST, dropout=dropout)
    assert set(seen) == {(own if dropout is None else dropout,) * 3}
    assert {place.p for place in clf.model.modules() if isinstance(place, torch.nn.Dropout)} == {own}


def test_training_on_a_cpu_uses_plain_attention_and_gives_back_the_fused_one(tiny_model_dir, sentiment):
    clf = fresh(tiny_model_dir)
    assert clf.model.config._attn_implementation == "sdpa"
    seen = []
    clf.model.bert.register_forward_hook(lambda module, *_: seen.append(module.config._attn_implementation))
    clf.fit(*sentiment(16), **FAST)
    assert set(seen) == {"eager"}
    assert clf.model.config._attn_implementation == "sdpa"


@pytest.fixture
def products(monkeypatch):
    """Watches a classifier: the types of a linear layer's outputs by training or not, and of Gram matrices."""

    def watch(classifier):
        seen = {"training": set(), "evaluating": set(), "distances": set()}

        def linear(module, given, output):
            seen["training" if module.training else "evaluating"].add(output.dtype)

        def gram(x):
            made = make_gram(x)
            seen["distances"].add(made.matrix.dtype)
            return made

        make_gram = distance.Gram.of
        monkeypatch.setattr(distance.Gram, "of", gram)
        classifier.model.bert.encoder.layer[0].intermediate.dense.register_forward_hook(linear)
        return seen

    return watch


@pytest.mark.parametrize("bf16", [True, False])
def test_mixed_precision_is_for_training_and_for_products_alone(
    tiny_model_dir, tmp_path, sentiment, products, weights_in, bf16
):
    data, dev = sentiment(32), sentiment(8, seed=1)
    clf = fresh(tiny_model_dir)
    clf.fit(*data, **FAST, bf16=not bf16)  # leaves nothing behind
    seen = products(clf)
    clf.fit(*data, **FAST, bf16=bf16, dev=dev, patience=2)
    assert seen["training"] == {torch.bfloat16 if bf16 else torch.float32}
    assert seen["evaluating"] == {torch.float32}
    clf.evaluate(*dev)
    assert seen["evaluating"] == seen["distances"] == {torch.float32}
    clf.save(tmp_path / "saved")
    assert {value.dtype for value in weights(clf).values()} == {torch.float32}
    assert {value.dtype for value in weights_in(tmp_path / "saved").values()} == {torch.float32}
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["dtype"] == "float32"
    loaded = PyramidClassifier.load(tmp_path / "saved")
    assert (loaded.predict_logits(dev[0]) == clf.predict_logits(dev[0])).all()


def test_a_teacher_answers_in_the_precision_of_the_training(tiny_model_dir, sentiment, products):
    data, teacher = sentiment(32), fresh(tiny_model_dir).fit(*sentiment(32), **FAST)
    seen = products(teacher)
    for bf16, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        seen["evaluating"].clear()
        fresh(tiny_model_dir).fit(*data, **FAST, bf16=bf16, teacher=teacher)
        assert seen["evaluating"] == {dtype}


def test_the_seed_alone_decides(tiny_model_dir, sentiment):
    data = sentiment(64)
    first, again, other = (fresh(tiny_model_dir).fit(*data, **FAST, seed=seed) for seed in (1, 1, 2))
    assert same(weights(first), weights(again))
    assert not same(weights(first), weights(other))


def test_checkpoints_hold_no_pickle_and_belong_to_one_run(tiny_model_dir, tmp_path, sentiment):
    data, where = sentiment(64), {"output_dir": tmp_path}
    fresh(tiny_model_dir).fit(*data, **FAST, **where)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "training_state.safetensors" for path in files)
    assert {path.suffix for path in files} <= {".json", ".jsonl", ".safetensors", ".txt"}
    for rows, changes, differs in (
        (data, {"learning_rate": 2e-3}, "learning_rate"),
        (data, {"bf16": True}, "bf16"),
        (sentiment(64, seed=5), {}, "training data"),
    ):
        with pytest.raises(CheckpointError, match=f"different: {differs}.*--restart"):
            fresh(tiny_model_dir).fit(*rows, **{**FAST, **changes}, **where)
    (last_complete_checkpoint(tmp_path) / "training_state.safetensors").write_bytes(b"broken")
    with pytest.raises(CheckpointError, match=r"cannot read the checkpoint .*--restart"):
        fresh(tiny_model_dir).fit(*data, **FAST, **where)


def test_sampler_deals_every_row_once_in_batches_of_like_length():
    lengths = [1 + (7 * i) % 40 for i in range(333)]
    sampler = LengthSampler(lengths, batch_size=8, seed=0)
    order = list(sampler)
    assert sorted(order) == list(range(333))
    batches = [[lengths[row] for row in order[i : i + 8]] for i in range(0, 328, 8)]
    spans = [max(batch) - min(batch) for batch in batches]
    assert sum(spans) / len(spans) < 2
    sampler.set_epoch(1)
    assert list(sampler) != order
